import os
import runpy
import shlex
import sys

import pytest
import setuptools
from support.helpers import REPOSITORY, run_command

from muse_plugin_command import doctor
from muse_plugin_command.doctor import BROKEN, MISSING, OK, WARN, Finding


def make_findings(**changes):
    """Everything installed as tested, with a GPU; ``changes`` by module, dots written as two underscores."""
    findings = {requirement.module: Finding(version=requirement.tested) for requirement in doctor.REQUIREMENTS}
    findings["torch"] = Finding("2.13.0", facts={"cuda_build": "13.0", "gpus": 1, "gpu": "NVIDIA X", "gib": 79.6})
    findings["triton"] = Finding("3.5.0")
    findings.update({name: Finding("0.0.0") for name in doctor.FAIRSEQ_KERNELS})
    findings["muse_plugin"] = Finding(
        facts={"installed": True, "version": "0.1.0", "models": ["muse", "muse_simple"], "uncompiled": []}
    )
    findings.update({name.replace("__", "."): finding for name, finding in changes.items()})
    return findings


def examine(python=(3, 11, 7), **changes):
    rows = doctor.examine(lambda modules: {name: make_findings(**changes)[name] for name in modules}, python=python)
    return {row.label: row for row in rows}


def render(rows):
    return doctor.render(list(rows.values()))


MISSING_ONE = Finding(missing=True, error="ModuleNotFoundError: No module named 'x'")


def test_complete_installation_is_all_ok_and_fits_one_screen():
    rows = examine()
    assert {row.state for row in rows.values()} == {OK}
    assert set(rows) >= {"python", "torch", "numpy", "fairseq", "hydra", "omegaconf", "GPU", "triton", "muse_plugin"}
    text = render(rows)
    assert text.endswith("Training works on the GPU.")
    assert len(text.splitlines()) <= 33
    assert "1 x NVIDIA X, 80 GiB" in text
    assert doctor.find_obstacles(list(rows.values())) == []


@pytest.mark.parametrize(
    ("changes", "state", "found", "advice"),
    [
        ({}, OK, "dynamicconv_cuda, lightconv_cuda", ""),
        (dict.fromkeys(doctor.FAIRSEQ_KERNELS, MISSING_ONE), OK, "not built", ""),
        ({"lightconv_cuda": MISSING_ONE}, WARN, "dynamicconv_cuda", "lightconv_cuda is not built; --conv-backend "),
        (
            {"dynamicconv_cuda": Finding(error="ImportError: undefined symbol: x")},
            BROKEN,
            "lightconv_cuda",
            "importing dynamicconv_cuda fails with ImportError: undefined symbol: x; --conv-backend fairseq_cuda does ",
        ),
    ],
)
def test_the_kernels_of_fairseq_that_are_built_are_named(changes, state, found, advice):
    rows = examine(**changes)
    row = rows["fairseq kernels"]
    assert (row.state, row.found) == (state, found)
    assert row.cost.startswith(advice)
    assert bool(row.fix) == (state != OK)
    assert row.fix.endswith("scripts/build_lightconv.sh") or state == OK
    assert render(rows).endswith("Training works on the GPU.")


@pytest.mark.parametrize("module", ["torch", "numpy", "fairseq", "hydra", "omegaconf"])
def test_missing_necessity_stops_training_and_names_its_cost_and_the_command(module):
    rows = examine(**{module: MISSING_ONE})
    assert rows[module].state == MISSING
    assert doctor.find_obstacles(list(rows.values())) == [module]
    text = render(rows)
    assert text.endswith(f"Training cannot work: {module}.")
    (advice,) = [line for line in text.splitlines() if line.startswith(f"MISSING {module}: ")]
    assert "nothing can be trained" in advice
    assert "Fix: bash " in advice
    assert "scripts/setup.sh" in advice


@pytest.mark.parametrize(
    ("module", "cost"),
    [
        ("sacrebleu", "no BLEU score is computed"),
        ("sacremoses", "neither the quickstart nor 'muse-plugin translate' works"),
        ("subword_nmt", "neither the quickstart nor 'muse-plugin translate' works"),
        ("sentencepiece", "no text is cut into pieces of SentencePiece"),
        ("triton", "the dynamic convolution has no GPU kernels"),
    ],
)
def test_missing_convenience_names_its_cost_but_training_works(module, cost):
    rows = examine(**{module: MISSING_ONE})
    label = module.replace("_", "-")
    assert rows[label].state == MISSING
    assert cost in rows[label].cost
    assert rows[label].fix.endswith(f"-m pip install {label}")
    assert doctor.find_obstacles(list(rows.values())) == []


def test_extensions_of_fairseq_that_are_not_compiled_are_named_with_what_they_would_bring():
    facts = {"installed": True, "version": "0.1.0", "models": ["muse"], "uncompiled": ["data.data_utils_fast"]}
    rows = examine(muse_plugin=Finding(facts=facts))
    assert rows["extensions"].found == "in Python"
    advice = "MISSING extensions: data.data_utils_fast of fairseq are not compiled; Python stands in"
    assert advice in render(rows)
    assert "Fix: FAIRSEQ_EXTENSIONS=1 bash " in render(rows)
    assert doctor.find_obstacles(list(rows.values())) == []
    assert examine()["extensions"].found == "compiled"


def test_every_extra_of_the_package_is_listed_with_its_lowest_version(monkeypatch):
    given = {}
    monkeypatch.setattr(setuptools, "setup", lambda **arguments: given.update(arguments))
    monkeypatch.setenv("READTHEDOCS", "1")  # or it asks for a compiler
    runpy.run_path(str(REPOSITORY / "setup.py"))
    listed = {f"{known.distribution}>={known.oldest}" for known in (*doctor.REQUIREMENTS, doctor.TRITON)}
    extras = {name: packages for name, packages in given["extras_require"].items() if name not in ("dev", "docs")}
    assert len(extras) >= 7
    for name, packages in extras.items():
        assert {package.partition(";")[0] for package in packages} <= listed, name


def environment(folder, monkeypatch, *, pip=False, uv=False, config=""):
    """An interpreter's own folder; its commands are those that doctor proposes."""
    monkeypatch.setattr(doctor.sys, "prefix", str(folder))
    monkeypatch.setattr(doctor.sys, "executable", "/env/bin/python")
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: object() if pip else None)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: "/usr/bin/uv" if uv and name == "uv" else None)
    (folder / "pyvenv.cfg").write_text(config)


UV = "home = /usr\nuv = 0.9.1\n"


@pytest.mark.parametrize(
    ("settings", "command"),
    [
        ({"pip": True}, "/env/bin/python -m pip install gensim"),
        ({"pip": True, "uv": True, "config": UV}, "/env/bin/python -m pip install gensim"),
        ({"config": UV}, "uv pip install --python /env/bin/python gensim"),
        ({"uv": True}, "uv pip install --python /env/bin/python gensim"),
        ({}, "/env/bin/python -m ensurepip && /env/bin/python -m pip install gensim"),
    ],
)
def test_remedies_work_where_there_is_no_pip(tmp_path, monkeypatch, settings, command):
    environment(tmp_path, monkeypatch, **settings)
    assert examine(gensim=MISSING_ONE)["gensim"].fix == command


@pytest.mark.parametrize("python", ["/home/o'neil/x/python", "/a b/$c/python"])
def test_remedies_name_paths_as_a_shell_reads_them(tmp_path, monkeypatch, python):
    environment(tmp_path, monkeypatch, pip=True)
    monkeypatch.setattr(doctor.sys, "executable", python)
    assert shlex.split(examine(gensim=MISSING_ONE)["gensim"].fix) == [python, "-m", "pip", "install", "gensim"]


def test_remedies_work_in_conda_environments(tmp_path, monkeypatch):
    (tmp_path / "conda-meta").mkdir()
    environment(tmp_path, monkeypatch, uv=True)
    fix = examine(gensim=MISSING_ONE)["gensim"].fix
    assert fix == f"conda install --prefix {tmp_path} pip && /env/bin/python -m pip install gensim"
    environment(tmp_path, monkeypatch, pip=True)
    assert examine(gensim=MISSING_ONE)["gensim"].fix == "/env/bin/python -m pip install gensim"


def test_a_package_that_needs_others_first_is_installed_after_them(tmp_path, monkeypatch):
    environment(tmp_path, monkeypatch, config=UV)
    assert examine(seqeval=MISSING_ONE)["seqeval"].fix == (
        "uv pip install --python /env/bin/python setuptools_scm wheel && "
        "uv pip install --python /env/bin/python --no-build-isolation seqeval"
    )


def test_package_that_fails_to_import_is_broken_and_its_error_is_shown():
    rows = examine(torch=Finding("2.13.0", error="OSError: libgomp.so.1: cannot open shared object file"))
    assert rows["torch"].state == BROKEN
    assert "BROKEN torch: OSError: libgomp.so.1: cannot open shared object file; nothing can be trained" in render(rows)


@pytest.mark.parametrize("version", ["3.9.18", "3.15.0"])
def test_python_outside_the_range_cannot_train(version):
    rows = examine(python=tuple(map(int, version.split("."))))
    assert rows["python"].state == BROKEN
    assert rows["python"].found == version
    assert doctor.find_obstacles(list(rows.values())) == ["python"]


@pytest.mark.parametrize("version", ["3.10.0", "3.14.9"])
def test_ends_of_the_python_range_are_inside(version):
    assert examine(python=tuple(map(int, version.split("."))))["python"].state == OK


@pytest.mark.parametrize(
    ("module", "version", "words"),
    [
        ("torch", "2.3.1", "2.3.1 is older than what is needed"),
        ("omegaconf", "2.4.0", "2.4.0 is newer than what is needed"),
        ("fairseq", "0.12.2", "0.12.2 is older than what is needed"),
        ("sacrebleu", "1.5.1", "1.5.1 is older than what is needed"),
    ],
)
def test_version_outside_the_range_is_a_warning(module, version, words):
    rows = examine(**{module: Finding(version)})
    assert rows[module].state == WARN
    assert words in rows[module].cost
    assert "pip install" in rows[module].fix


@pytest.mark.parametrize(("version", "state"), [("2.4.0", OK), ("2.10.1+cu130", OK), ("2.14.0.dev1", OK), ("", OK)])
def test_versions_are_compared_by_number(version, state):
    assert examine(torch=Finding(version))["torch"].state == state


def test_plugin_must_register_models_and_should_be_installed():
    rows = examine(muse_plugin=Finding(facts={"installed": True, "version": "0.1.0", "models": []}))
    assert rows["muse_plugin"].state == BROKEN
    assert "registers no model with fairseq" in rows["muse_plugin"].cost
    rows = examine(muse_plugin=Finding(facts={"installed": False, "version": "0.1.0", "models": ["muse"]}))
    assert rows["muse_plugin"].state == WARN
    assert "it is not installed, so only --user-dir" in rows["muse_plugin"].cost
    rows = examine(muse_plugin=Finding(error="RuntimeError: defect"))
    assert "'import muse_plugin' fails with RuntimeError: defect" in render(rows)
    assert doctor.find_obstacles(list(rows.values())) == ["muse_plugin"]


@pytest.mark.parametrize(
    ("program", "state", "cost"),
    [(None, MISSING, "training uses the CPU"), ("/usr/bin/x", WARN, "this build of torch is for the CPU only")],
    ids=["no GPU", "a GPU that torch was not built for"],
)
def test_without_a_gpu_for_torch_training_works_on_the_cpu(monkeypatch, program, state, cost):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: program)
    rows = examine(torch=Finding("2.13.0+cpu", facts={"cuda_build": None}))
    assert rows["GPU"].state == state
    assert cost in rows["GPU"].cost
    assert render(rows).endswith("Training works on the CPU.")


# The second process


def write_modules(folder, monkeypatch, **modules):
    for name, code in modules.items():
        (folder / f"{name}.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_probe_survives_crash_noise_and_failure(tmp_path, monkeypatch):
    write_modules(
        tmp_path,
        monkeypatch,
        good="print('noise', end='')\n__version__ = '1.2'",
        crashing="import os; os._exit(7)",
        failing="raise OSError('no library\\nsecond line')",
        needy="import absent_thing",
        last="",
    )
    findings = doctor.probe_modules(["good", "crashing", "failing", "needy", "absent", "absent.part", "last"])
    assert findings["good"] == Finding(version="1.2")
    assert findings["crashing"].error == "importing it ended Python with exit code 7"
    assert findings["failing"].error == "OSError: no library"
    assert findings["needy"].error == "ModuleNotFoundError: No module named 'absent_thing'"
    assert not findings["needy"].missing  # it is there; what it needs is not
    assert findings["absent"].missing
    assert findings["absent.part"].missing
    assert findings["last"] == Finding()


def test_probe_gives_up_on_an_import_that_hangs(tmp_path, monkeypatch):
    write_modules(tmp_path, monkeypatch, good="", hanging="import time; time.sleep(600)", last="")
    findings = doctor.probe_modules(["good", "hanging", "last"], timeout=5)
    assert findings["good"] == findings["last"] == Finding()
    assert findings["hanging"].error == "importing it took longer than 5 seconds"


def run_doctor(folder, sitecustomize=""):
    (folder / "sitecustomize.py").write_text(sitecustomize)
    env = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{REPOSITORY}"}
    return run_command([sys.executable, "-m", "muse_plugin_command", "doctor"], cwd=folder, env=env)


BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""


def test_command_reports_this_environment(tmp_path):
    done = run_doctor(tmp_path)
    assert done.returncode == 0, done.stdout
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[-1] in ("Training works on the CPU.", "Training works on the GPU.")
    assert len(lines) <= 39  # with the sentence on extensions that are not compiled
    (row,) = [line for line in lines if line.startswith("muse_plugin ")]
    assert row.endswith("OK")


def test_command_works_without_torch_and_fairseq_and_fails(tmp_path):
    done = run_doctor(tmp_path, BLOCKER.format(names=["torch", "fairseq", "sacremoses"]))
    assert done.returncode == 1
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[-1] == "Training cannot work: torch, fairseq, muse_plugin."
    for label in ("torch", "fairseq", "sacremoses"):
        assert any(line.startswith(f"MISSING {label}: ") and "Fix: " in line for line in lines), label
    assert any(
        line.startswith("BROKEN muse_plugin: 'import muse_plugin' fails with ModuleNotFoundError") for line in lines
    )
