"""The GPU run, rehearsed without a GPU, so that it works on the day there is one."""

import json
import subprocess
from pathlib import Path

import pytest
from support.helpers import REPOSITORY, assert_refused, load_program, recipe_environment

from muse_plugin.benchmark.gpu_steps import DONE, Step, format_steps, read_step, read_steps, write_list, write_step

SCRIPT = REPOSITORY / "examples" / "benchmark" / "gpu.sh"
RAW = REPOSITORY.parent / "shared" / "data" / "multi30k"
gpu = load_program(SCRIPT.with_suffix(".py"))


def run_script(*words, **settings):
    environment = recipe_environment(**settings)
    return subprocess.run(["bash", str(SCRIPT), *words], env=environment, capture_output=True, text=True)


def test_a_rehearsal_runs_every_step_and_writes_the_report(tmp_path):
    run = run_script("--rehearse", RESULTS_DIR=str(tmp_path), RAW_DIR=str(RAW), OMP_NUM_THREADS="1")
    states = {step.name: step for step in read_steps(tmp_path / "gpu")}
    assert {name[0] for name in states} == set(gpu.LIMITS)
    expected = {name for name in states if RAW.is_dir() or not name.startswith("e/")}
    wrong = [f"{name}: {step.state}" for name, step in states.items() if name in expected and step.state != DONE]
    assert wrong == [], run.stdout + run.stderr
    assert run.returncode == 0, run.stdout + run.stderr
    assert "skipped" in states["a/gpu-tests"].result
    assert states["a/unit-tests"].result.startswith("2 passed")
    text = (tmp_path / "BENCHMARKS.md").read_text(encoding="utf-8")
    assert "| float16 and CUDA graphs: decoding of MUSE-simple, 6+6 layers, 512/1024, batch 1 |" in text
    assert "## The GPU run, step by step" in text
    assert "muse-plugin benchmark conv --backend triton" in text
    assert "| f/lama | done |" in text
    assert "LAMA encoder, width 100 |" in text
    assert text.count("`muse-plugin benchmark generate") == 1


def test_without_a_gpu_there_is_one_sentence(tmp_path):
    run = run_script(RESULTS_DIR=str(tmp_path), CUDA_VISIBLE_DEVICES="")
    assert run.returncode == 2
    assert run.stderr.splitlines()[-1].startswith("gpu: error: PyTorch sees no GPU; use --rehearse")
    assert list(tmp_path.iterdir()) == []
    run = run_script("--rehearse", RESULTS_DIR=str(tmp_path), MINUTES="-1")
    assert_refused(run, "MINUTES must be a number above 0, but got -1.")


def make_runner(folder, minutes=1.0):
    return gpu.Runner(folder, minutes, rehearses=False)


def job(name, code, seconds=60, **options):
    return gpu.Job(name, ["python", "-c", code], seconds, **options)


def test_the_raw_data_are_those_of_the_folder_where_it_was_called(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAW_DIR", "raw")
    jobs = list(gpu._list_multi30k(tmp_path / "results", rehearses=False))
    assert {job.environment["RAW_DIR"] for job in jobs if "RAW_DIR" in job.environment} == {str(tmp_path / "raw")}


def test_the_report_of_tests_is_removed_when_they_run_again_not_when_they_are_done(tmp_path):
    report = tmp_path / "a-gpu-tests.xml"
    report.touch()
    list(gpu._list_tests(tmp_path, rehearses=True))
    assert report.exists()
    make_runner(tmp_path).run(job("a/gpu-tests", "raise SystemExit(3)"))
    assert not report.exists()


def test_a_step_that_fails_or_takes_too_long_stops_no_other_and_is_run_again(tmp_path):
    runner = make_runner(tmp_path)
    assert runner.run(job("b/bad", "raise SystemExit('it is broken')")).state == "failed with exit code 1: it is broken"
    child = "import subprocess, time; subprocess.Popen(['sleep', '77.77']); time.sleep(60)"
    assert runner.run(job("b/slow", child, seconds=1.5)).state == "stopped: its own limit was reached"
    unread = job("b/unread", "", read=lambda: str(1 / 0))
    assert runner.run(unread).state == "failed: ZeroDivisionError: division by zero"
    missing = gpu.Job("b/missing", ["no-such-program"], 60)
    assert runner.run(missing).state.startswith("failed: FileNotFoundError")
    assert runner.run(job("b/good", "print('| 1 |')", read=lambda: "fine")).state == DONE
    assert "sleep\x0077.77" not in "".join(
        path.read_text(errors="replace") for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()
    )
    assert make_runner(tmp_path).run(job("b/good", "raise SystemExit(3)")).result == "fine"  # not run again
    assert make_runner(tmp_path).run(job("b/bad", "")).state == DONE


def test_limits_of_parts_and_of_the_run_leave_steps_for_the_next_time(tmp_path):
    short = make_runner(tmp_path, minutes=0.1)
    assert short.run(job("f/one", "")).state == "not measured: the limit of part f was reached"
    assert short.run(job("e/two", "", needs=tmp_path / "raw")).state in (
        "not measured: the limit of part e was reached",
        "not measured: there is no raw; see docs/gpu.md",
    )
    none = make_runner(tmp_path, minutes=0.0)
    assert none.run(job("b/three", "")).state.startswith("not measured: the limit")
    assert make_runner(tmp_path).run(job("f/one", "")).state == DONE
    alone = gpu.Runner(tmp_path, 0.1, False, parts="f")  # has the time of the others, too
    assert alone.run(job("f/four", "")).state == DONE


def test_every_step_of_a_gpu_run_has_a_name_of_its_own_and_fits_its_part(tmp_path):
    jobs = list(gpu.list_jobs(tmp_path, rehearses=False))
    names = [one.name for one in jobs]
    assert len({*names}) == len(names) > 40
    assert {name[0] for name in names} == set(gpu.LIMITS)
    assert all(one.seconds <= 60 * gpu.LIMITS[one.name[0]] for one in jobs)
    flags = [one.words for one in jobs if "benchmark" in one.words]
    assert all(words[words.index("--device") + 1] == "cuda" for words in flags)


@pytest.mark.parametrize("index", range(len(list(gpu.list_jobs(Path("x"), rehearses=False)))))
def test_flags_of_a_gpu_run_are_those_of_the_programs(index):
    words = list(gpu.list_jobs(Path("x"), rehearses=False))[index].words
    if "muse_plugin.cli" in words:
        from muse_plugin_command import cli

        args = cli.build_parser("benchmark").parse_args(words[3:])
        assert args.kind in ("conv", "train", "generate", "attention")
    else:
        assert words[0] in ("bash", "python")
        assert all((REPOSITORY / word).exists() for word in words if word.endswith((".py", ".sh")) or "tests/" in word)


def test_every_row_and_system_of_multi30k_is_one_that_the_recipe_trains(tmp_path):
    jobs = [one for one in gpu.list_jobs(tmp_path, rehearses=False) if one.name.endswith("-train")]
    assert [one.name for one in jobs[-len(gpu.ABLATION) :]] == [f"e/{row}-seed1-train" for row in gpu.ABLATION]
    seeds = {(*sorted(one.environment.items()),): one for one in jobs if one.environment["SEED"] == "1"}
    assert len(seeds) == 4 + len(gpu.ABLATION)
    for one in seeds.values():
        run = subprocess.run(one.words, env=recipe_environment(**one.environment), capture_output=True, text=True)
        assert "there is no data in " in run.stderr, one.name  # the settings are right


def test_what_is_there_is_reported_without_a_gpu_run(tmp_path):
    record = next((REPOSITORY / "examples" / "benchmark").glob("cpu-*.json"))
    (tmp_path / record.name).write_bytes(record.read_bytes())
    run = run_script("--report", RESULTS_DIR=str(tmp_path))
    assert run.returncode == 0, run.stderr
    text = (tmp_path / "BENCHMARKS.md").read_text(encoding="utf-8")
    assert "## Targets" in text
    assert "step by step" not in text


def test_states_are_shown_and_bad_files_refused(tmp_path):
    write_list(tmp_path, ["a/x", "b/y"])
    run = {
        "hardware": {"cpu": "C", "gpus": [{"name": "G", "driver": "1.2", "clocks_mhz": {"sm": 7, "memory": 6}}]},
        "versions": {"torch": "9", "triton": "8"},
        "git": {"commit": "0123456789ab", "dirty": False},
    }
    write_step(tmp_path, Step("a/x", DONE, 3.0, "do | it", "4 | 5", ["| 1 |"], run))
    text = format_steps(read_steps(tmp_path))
    assert (
        "| a/x | done | 3 | 4 / 5 | G (driver 1.2, at most 7 MHz, memory 6 MHz), torch 9, triton 8, 0123456789 |"
        in text
    )
    assert "| b/y | not measured |  |  |  |" in text
    assert "`do | it`:\n\n| 1 |" in text
    for content in ("{", "[]", json.dumps({"name": 3}), json.dumps({"name": "a", "state": 1})):
        (tmp_path / "b-y.json").write_text(content)
        with pytest.raises(ValueError, match=r"b-y.json must be the state of a step"):
            read_step(tmp_path, "b/y")
    (tmp_path / "steps.json").write_text("{}")
    with pytest.raises(ValueError, match="must be a list of names"):
        read_steps(tmp_path)
    (tmp_path / "steps.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"there is no .*steps.json; 'bash examples/benchmark/gpu.sh'"):
        read_steps(tmp_path)
