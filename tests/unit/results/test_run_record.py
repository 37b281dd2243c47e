import json
import os
import platform
import subprocess
from importlib import metadata

import pytest
import torch

from muse_plugin.results import run_record
from muse_plugin.results.run_record import describe_run, read_cpu_name, read_git_state, read_versions


def git(folder, *words):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "a.txt").write_text("a")
    git(tmp_path, "add", "a.txt")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_description_has_every_part_and_fits_json(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    description = describe_run()
    assert set(description) == {"versions", "git", "hardware", "threads"}
    assert json.loads(json.dumps(description, allow_nan=False)) == description
    assert description["threads"] == {"torch": torch.get_num_threads(), "OMP_NUM_THREADS": "1"}
    hardware = description["hardware"]
    assert set(hardware) == {"cpu", "cores", "memory_gib", "gpus"}
    assert 1 <= hardware["cores"] <= os.cpu_count()
    assert hardware["memory_gib"] > 0.1
    assert len(hardware["gpus"]) == torch.cuda.device_count()


def test_unset_threads_are_none(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert describe_run()["threads"]["OMP_NUM_THREADS"] is None


def test_versions_are_those_installed(monkeypatch):
    versions = read_versions()
    assert set(versions) == {
        "python", "torch", "triton", "fairseq-fixed", "numpy", "sacrebleu", "sacremoses", "subword-nmt",
        "sentencepiece", "scikit-learn",
    }  # fmt: skip
    assert versions["python"] == platform.python_version()
    assert versions["torch"] == metadata.version("torch")
    monkeypatch.setattr(run_record, "PACKAGES", ("no-such-package",))
    assert read_versions() == {"python": platform.python_version(), "no-such-package": None}


def test_git_state_tells_a_changed_and_a_new_file(repository):
    state = {"commit": git(repository, "rev-parse", "HEAD"), "dirty": False}
    assert read_git_state(repository) == state
    (repository / "a.txt").write_text("b")
    assert read_git_state(repository) == {**state, "dirty": True}
    git(repository, "checkout", "a.txt")
    (repository / "new.txt").write_text("b")
    assert read_git_state(repository) == {**state, "dirty": True}


def test_folder_within_another_repository_or_none_has_no_state(repository, tmp_path_factory):
    inner = repository / "site-packages"
    inner.mkdir()
    assert read_git_state(inner) is None
    assert read_git_state(tmp_path_factory.mktemp("plain")) is None
    empty = tmp_path_factory.mktemp("empty")
    git(empty, "init", "-q")
    assert read_git_state(empty) is None


def test_no_git_is_no_state(repository, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert read_git_state(repository) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\nflags\t: a\nmodel name\t: Other\n", "Some CPU @ 2.00GHz"),
        ("processor\t: 0\nmodel name\t: \n", None),
        (None, None),
    ],
)
def test_cpu_name_is_the_model_or_the_architecture(tmp_path, monkeypatch, text, expected):
    path = tmp_path / "cpuinfo"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(run_record, "_CPU_INFO", path)
    assert read_cpu_name() == (expected or platform.processor() or platform.machine())


def test_gpus_are_listed_with_their_memory(monkeypatch):
    class Properties:
        name, total_memory = "Some GPU", 24 * 2**30

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: Properties)
    assert run_record.describe_hardware()["gpus"] == [{"name": "Some GPU", "memory_gib": 24.0}] * 2


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Some GPU, 570.1, 1980, 2619\n", {"driver": "570.1", "clocks_mhz": {"sm": 1980, "memory": 2619}}),
        ("Another GPU, 570.1, 1980, 2619\n", {}),
        ("Some GPU, 570.1, [N/A], 2619\n", {}),
        ("no devices were found\n", {}),
    ],
)
def test_driver_and_clocks_are_those_of_nvidia_smi(answer, expected, tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf '%s' '{answer}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert run_record._read_drivers().get("Some GPU", {}) == expected
