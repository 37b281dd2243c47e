"""Runs the steps of a GPU run, each a process of its own that may fail or be stopped alone; see gpu.sh and docs/gpu.md.

A step that is done is not run again. What stops one is its limit, that of its part, or that of the whole run; its
processes are then ended together. States are in RESULTS/gpu, one JSON a step; measured numbers in RESULTS/cuda-*.json.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from muse_plugin.benchmark.gpu_steps import DONE, NOT_MEASURED, Step, read_step, write_list, write_step
from muse_plugin.results.run_record import describe_run

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Rows of MUSE's tables that are trained once all systems and seeds are: sharing, kernel size, feed-forward networks.
ABLATION = ("separate_depthconv_3", "shared_depthconv_3", "no_ffn", "separate_conv_3", "shared_depthconv_15")
# Minutes of each part of a run of 25; another limit for the whole, or fewer parts, change them alike.
LIMITS = {"a": 5.0, "b": 4.0, "c": 5.0, "d": 4.0, "e": 5.0, "f": 2.0}
_MINUTES = sum(LIMITS.values())
_ENDING = 10.0  # seconds that a process has to end in when it is asked to


@dataclass
class Job:
    """A step before it runs.

    Attributes:
        name: "part/step".
        words: the command.
        seconds: its own limit.
        read: turns what is there afterwards into a few words; what it raises is the step's failure.
        passes: exit codes of success.
        environment: variables that are set.
        needs: a path without which the step is not begun.
    """

    name: str
    words: list[str]
    seconds: float
    read: Callable[[], str] = lambda: ""
    passes: tuple[int, ...] = (0,)
    environment: dict[str, str] = field(default_factory=dict)
    needs: Optional[Path] = None

    @property
    def command(self) -> str:
        """As a user would type it from the top of the repository."""
        words = [word.replace(f"{ROOT}/", "") for word in self.words]
        return " ".join([*(f"{k}={shlex.quote(v)}" for k, v in self.environment.items()), shlex.join(words)])


def list_jobs(results: Path, rehearses: bool) -> Iterator[Job]:
    """All steps, in order of worth."""
    yield from _list_tests(results / "gpu", rehearses)
    prefix = "rehearsal" if rehearses else "cuda"
    device = ["--threads", "1"] if rehearses else ["--device", "cuda"]

    def measure(name: str, kind: str, *flags: object, seconds: float = 90) -> Job:
        path = results / f"{prefix}-{name.replace('/', '-')}.json"
        words = ["python", "-m", "muse_plugin.cli", "benchmark", kind, *map(str, flags), *device]
        return Job(name, [*words, "--json", str(path)], seconds, lambda: _check_record(path))

    yield from _list_measurements(measure, rehearses)
    yield from _list_multi30k(results, rehearses)
    yield from _list_rest(measure, results, rehearses)


def _list_tests(folder: Path, rehearses: bool) -> Iterator[Job]:
    def test(name: str, *words: str, seconds: float = 240) -> Job:
        report = folder / f"{name.replace('/', '-')}.xml"
        command = ["python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *words, f"--junitxml={report}"]
        return Job(name, command, seconds, lambda: _read_tests(report, rehearses))

    yield test("a/gpu-tests", "-m", "gpu", "tests/gpu")
    if rehearses:
        yield test("a/unit-tests", "--device", "cpu", "tests/unit/ops/test_linear_cross_entropy.py", "-k", "half")
    else:
        yield test("a/unit-tests", "--device", "cuda", *(f"tests/unit/{room}" for room in ("ops", "modules", "models")))


def _list_measurements(measure: Callable[..., Job], rehearses: bool) -> Iterator[Job]:
    if rehearses:
        small = ("--rounds", 1, "--dtype", "float32")
        sizes = ("--lengths", 4, "--kernels", 3, "3+5", "--tokens", 4, "--channels", 4)
        yield measure("b/triton-float32", "conv", "--backend", "triton", *sizes, *small)
        tiny = ("--setting", "tiny", "--lengths", 5, "--vocabulary", 50)
        few = ("--without", "fairseq dynamic conv", "MUSE, unfused form", "MUSE, fairseq's loss", "MUSE-simple")
        yield measure("c/base-float32", "train", *tiny, "--tokens", 20, *small, *few)
        yield measure("c/base-memory-float32", "train", "--memory", *tiny, "--tokens", 20, *small, *few)
        yield measure("d/base-float32", "generate", *tiny, "--sentences", 1, 2, "--beam", 2, *small)
        return
    sizes = ("--lengths", 10, 25, 50, 100, 400, 1000, 4000, "--kernels", 3, 7, 31, "3+15", "--tokens", 64_000)
    pairs = [("triton", "float16"), ("triton", "bfloat16"), ("triton", "float32"), ("band", "float16")]
    pairs += [("fairseq_cuda", "float16"), ("reference", "float16"), ("band", "bfloat16"), ("fairseq_cuda", "float32")]
    pairs += [("band", "float32"), ("reference", "bfloat16"), ("reference", "float32")]
    for backend, dtype in pairs:
        rounds = ("--rounds", 20, "--max-seconds", 2, "--dtype", dtype)
        yield measure(f"b/{backend}-{dtype}", "conv", "--backend", backend, *sizes, *rounds)
    joint = ("--share-all-embeddings", "--vocabulary", 10_000, "--lengths", 25, "--tokens")
    times = ("--rounds", 9, "--max-seconds", 15)
    for dtype in ("float16", "bfloat16"):
        for setting in ("base", "large"):
            own = ("--setting", setting, "--dtype", dtype, *joint, 4000)
            yield measure(f"c/{setting}-{dtype}", "train", *own, *times, seconds=120)
            # With 4,000 tokens a GPU waits for Python, with these it computes.
            yield measure(f"c/{setting}-32000-{dtype}", "train", *own[:-1], 32_000, *times, seconds=120)
            yield measure(f"c/{setting}-memory-{dtype}", "train", "--memory", *own, seconds=120)
    for setting in ("six_layers", "base"):
        flags = ("--setting", setting, "--sentences", 1, 32, 128, "--lengths", 25, "--beam", 5, "--dtype", "float16")
        yield measure(f"d/{setting}-float16", "generate", *flags, "--rounds", 5, "--max-seconds", 20)


def _list_multi30k(results: Path, rehearses: bool) -> Iterator[Job]:
    raw = Path(os.environ.get("RAW_DIR") or ROOT / "runs" / "multi30k" / "raw").resolve()
    work = results / "multi30k"
    base = {"WORK_DIR": str(work), "RAW_DIR": str(raw), "SKIP_SETUP": "1"}
    base |= {"TRIAL": "1", "NUM_GPUS": "0"} if rehearses else {"PROFILE": "published"}

    def recipe(name: str, script: str, seconds: float, read: Callable[[], str] = lambda: "", **own: str) -> Job:
        words = ["bash", str(ROOT / "examples" / "multi30k" / f"{script}.sh")]
        passes = (0, 1) if script == "evaluate" else (0,)  # 1: a score outside of the published interval
        return Job(name, words, seconds, read, passes, base | own, raw)

    yield recipe("e/prepare", "prepare", 120)
    systems = {name: {"MODEL": name} for name in ("muse", "transformer", "muse_simple")}
    systems["muse-simcut"] = {"MODEL": "muse", "SIMCUT": "1", "BPE_DROPOUT": "0.1"}
    runs = [(name, seed, own) for seed in ("1", "2", "3") for name, own in systems.items()]
    runs += [(row, "1", {"ROW": row}) for row in ABLATION]
    for name, seed, own in runs[:1] if rehearses else runs:
        own = {**own, "SEED": seed}
        yield recipe(f"e/{name}-seed{seed}-train", "train", 280, **own)
        yield recipe(f"e/{name}-seed{seed}", "evaluate", 120, lambda: _read_scores(work), **own)


def _list_rest(measure: Callable[..., Job], results: Path, rehearses: bool) -> Iterator[Job]:
    windows = ("--windows", "--lengths", *((10, 50) if rehearses else (22, 109, 201, 400, 800, 1600)))
    few = ("--sentences", 2, "--scales", "1,3,N/4", "--rounds", 1) if rehearses else ("--rounds", 5, "--max-seconds", 5)
    yield measure("f/windows", "attention", *windows, *few, "--dtype", "float32" if rehearses else "float16")
    examples = ROOT / "examples"
    lama = ["python", str(examples / "documents" / "speed.py"), "--output", str(results / "gpu" / "lama")]
    lama += ["--lengths", "20", "--documents", "32", "--batch", "2", "--repeats", "1"] if rehearses else []
    yield Job("f/lama", [*lama, "--device", "cpu" if rehearses else "cuda"], 90)
    match = ["python", str(examples / "head_wise_match" / "throughput.py"), "--corpus-rows", "0"]
    match += ["--json", str(results / "gpu" / "match.json")]
    small = ["--cpu", "--sentences", "0", "--sizes", "20", "--vocabulary", "100"]
    match += small if rehearses else ["--sizes", "10000"]
    yield Job("f/match", match, 90)


def _check_record(path: Path) -> str:
    cases = len(json.loads(path.read_text(encoding="utf-8"))["measurements"])
    return f"{cases} case{'s' * (cases != 1)}"


def _read_tests(report: Path, rehearses: bool) -> str:
    """Counts of a JUnit report; without a GPU, that tests of the GPU are skipped is all that is asked."""
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    names = ("tests", "failures", "errors", "skipped")
    total, failures, errors, skipped = (sum(int(suite.get(name, 0)) for suite in suites) for name in names)
    passed = total - failures - errors - skipped
    if passed == 0 and not rehearses:
        raise ValueError(f"no test passed, {skipped} were skipped")
    return f"{passed} passed, {failures + errors} failed, {skipped} skipped"


def _read_scores(work: Path) -> str:
    """Tokenised BLEU by test set, of the evaluation that has just ended."""
    files = list(work.glob("*/results/*.json"))
    newest = max(files, key=lambda path: path.stat().st_mtime).parent
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(newest.glob("*.json"))}
    scores = {test: json.loads(text)["scores"]["tokenized_bleu"]["mean"] for test, text in texts.items()}
    return "tokenised BLEU " + ", ".join(f"{test} {score:.2f}" for test, score in scores.items())


class Runner:
    """Runs jobs until the time is over.

    Args:
        folder: of states and logs.
        minutes: for the whole run.
        rehearses: there is no other limit; who rehearses wants to see the end.
        parts: that are run, and share the time.
    """

    def __init__(self, folder: Path, minutes: float, rehearses: bool, parts: Iterable[str] = LIMITS) -> None:
        self.folder, self._rehearses = folder, rehearses
        now = time.monotonic()
        self._end = now + 60 * minutes
        whole = sum(LIMITS[part] for part in parts)
        self._left = {part: 60 * minutes * share / whole for part, share in LIMITS.items()}

    def run(self, job: Job) -> Step:
        """Runs a step unless it is done, and writes what became of it."""
        step = read_step(self.folder, job.name)
        if step.state == DONE:
            return step
        part = job.name[0]
        limits = {"its own limit": job.seconds, f"the limit of part {part}": self._left[part]}
        if self._rehearses:
            limits.clear()
        limits["the limit of the run"] = self._end - time.monotonic()
        which = min(limits, key=lambda name: limits[name])
        step = Step(job.name, command=job.command)
        if limits[which] <= 1:
            step.state = f"{NOT_MEASURED}: {which} was reached"
        elif job.needs is not None and not job.needs.exists():
            step.state = f"{NOT_MEASURED}: there is no {job.needs.name}; see docs/gpu.md"
        else:
            started = time.monotonic()
            try:
                self._execute(job, step, limits[which], which)
            except Exception as error:  # whatever a step does, the next one has its turn
                step.state = f"failed: {type(error).__name__}: {error}"
            step.seconds = round(time.monotonic() - started, 1)
            self._left[part] -= step.seconds
        write_step(self.folder, step)
        return step

    def _execute(self, job: Job, step: Step, seconds: float, limit: str) -> None:
        step.run = describe_run()
        log = self.folder / f"{job.name.replace('/', '-')}.log"
        log.with_suffix(".xml").unlink(missing_ok=True)  # the report of an earlier run of tests
        with log.open("wb") as output:
            process = subprocess.Popen(
                job.words,
                cwd=ROOT,
                env={**os.environ, **job.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                step.state = f"stopped: {limit} was reached"
                return
            finally:
                _end(process)
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        step.table = [line for line in lines if line.startswith("|") and line.endswith("|")]
        if job.name.startswith(("b/", "c/", "d/", "f/windows")):
            step.table = []  # the records have it
        if code in job.passes:
            step.result, step.state = job.read(), DONE
            return
        said = [line.strip() for line in lines if line.strip()]
        step.state = f"failed with exit code {code}: {said[-1][:300] if said else 'it said nothing'}"
        if job.name.startswith("a/"):
            step.result = job.read()


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ends a step with all processes that it started; a no-op where none is left."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):
            break
        try:
            process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            continue
        time.sleep(0.1)
    process.wait()


def report(results: Path, output: Path) -> int:
    """Writes BENCHMARKS.md from all records that there are."""
    if not any(results.glob("*.json")):
        print(f"gpu: error: there is no record in {results}; no step has measured anything.", file=sys.stderr)
        return 1
    places = {"RESULTS_DIR": str(results), "OUTPUT": str(output), "SKIP_SETUP": "1", "TRIAL": "0"}
    return subprocess.run(["bash", str(HERE / "run.sh"), "report"], env={**os.environ, **places}).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=_MINUTES, help="for the whole run (default: %(default)g)")
    parser.add_argument("--rehearse", action="store_true", help="every step in small, on the CPU")
    parser.add_argument("--parts", nargs="+", choices=list(LIMITS), default=list(LIMITS), help="some parts only")
    parser.add_argument("--report", action="store_true", help="write BENCHMARKS.md from what is there, and end")
    args = parser.parse_args()
    default = ROOT / "runs" / "gpu-rehearsal" if args.rehearse else HERE
    results = Path(os.environ.get("RESULTS_DIR") or default).resolve()
    output = Path(os.environ.get("OUTPUT") or (ROOT if results == HERE else results) / "BENCHMARKS.md").resolve()
    if not 0 < args.minutes < 10_000:
        print(f"gpu: error: MINUTES must be a number above 0, but got {args.minutes:g}.", file=sys.stderr)
        return 2
    if args.report:
        return report(results, output)
    import torch

    if not args.rehearse and not torch.cuda.is_available():
        print("gpu: error: PyTorch sees no GPU; use --rehearse to try everything in small without.", file=sys.stderr)
        return 2
    if args.rehearse:
        os.environ |= {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}
    folder = results / "gpu"
    folder.mkdir(parents=True, exist_ok=True)
    jobs = list(list_jobs(results, args.rehearse))
    write_list(folder, [job.name for job in jobs])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the step that runs is ended, too
    runner = Runner(folder, args.minutes, args.rehearse, args.parts)
    bad = 0
    for job in jobs:
        if job.name[0] in args.parts:
            step = runner.run(job)
            bad += not step.state.startswith((DONE, NOT_MEASURED))
            result = f" ({step.result})" if step.result else ""
            print(f"{job.name}: {step.state}{result}, {step.seconds:.0f} s", flush=True)
    return report(results, output) or bool(bad)


if __name__ == "__main__":
    sys.exit(main())
