"""``muse-plugin doctor``: one screen on what is installed, what is missing, what that costs and what fixes it.

It must work where nothing else does, so only the standard library is imported here, and every package is imported in a
second process: one that crashes or hangs is reported, not suffered.
"""

import argparse
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

PACKAGE_FOLDER = Path(__file__).resolve().parents[1] / "muse_plugin"
SETUP_SCRIPT = PACKAGE_FOLDER.parent / "scripts" / "setup.sh"

OK, WARN, MISSING, BROKEN = "OK", "WARN", "MISSING", "BROKEN"

PROBE_MARK = "@doctor@ "  # tells the second process's findings from what packages print when they are imported


class Requirement(NamedTuple):
    """What is asked of one package.

    Attributes:
        label: its name in the table.
        module: what is imported to see whether it works.
        distribution: its name for pip, whose metadata hold the version.
        oldest: lowest version that should work.
        newest: highest version that should work, compared in as many digits as it has; None if there is no limit.
        tested: the version that the tests were last run with.
        needed: if true, training cannot work without it.
        cost: what does not work without it.
        install: arguments of ``pip install`` that fix it; of several in turn, with ``&&`` between them.
    """

    label: str
    module: str
    distribution: str
    oldest: str
    newest: Optional[str]
    tested: str
    needed: bool
    cost: str
    install: str


def _optional(name: str, oldest: str, tested: str, cost: str, **others: str) -> Requirement:
    """A package that training works without, of any later version and of one name but for ``others``."""
    return Requirement(name, name, name, oldest, None, tested, False, cost, name)._replace(**others)


OLDEST_PYTHON, NEWEST_PYTHON, TESTED_PYTHON = "3.10", "3.14", "3.11"
FAIRSEQ_INSTALL = "--no-deps --no-build-isolation fairseq-fixed==0.12.3.1"
NO_TRAINING = "nothing can be trained or translated"
NO_TEXT = "no raw text can be prepared: neither the quickstart nor 'muse-plugin translate' works"
NO_PIECES = "no text is cut into pieces of SentencePiece (SUBWORDS=sentencepiece)"
NO_SERVER = "nothing is served over HTTP (serve, view)"
NO_EXPORT = "no model is written to a folder that runs without fairseq and torch (muse-plugin export)"
NO_BERT = "head-wise match has no BERT (--bert-dir), only this package's own encoders"

REQUIREMENTS = (
    Requirement("torch", "torch", "torch", "2.4", None, "2.13.0", True, NO_TRAINING, "torch"),
    Requirement("numpy", "numpy", "numpy", "1.23", None, "2.4.6", True, NO_TRAINING, "numpy"),
    Requirement("hydra", "hydra", "hydra-core", "1.3.2", "1.3", "1.3.8", True, NO_TRAINING, "'hydra-core>=1.3.2,<1.4'"),
    Requirement(
        "omegaconf", "omegaconf", "omegaconf", "2.3.0", "2.3", "2.3.1", True, NO_TRAINING, "'omegaconf>=2.3.0,<2.4'"
    ),
    Requirement(
        "fairseq", "fairseq", "fairseq-fixed", "0.12.3.1", "0.12.3.1", "0.12.3.1", True, NO_TRAINING, FAIRSEQ_INSTALL
    ),
    _optional("sacrebleu", "2.0", "2.6.0", "no BLEU score is computed"),
    _optional("sacremoses", "0.0.53", "0.2.0", NO_TEXT),
    _optional("subword-nmt", "0.3.8", "0.3.8", NO_TEXT, module="subword_nmt"),
    _optional("sentencepiece", "0.1.97", "0.2.3", NO_PIECES),
    _optional("pytorch-crf", "0.7.2", "0.7.2", "taggers have no conditional random field (--crf)", module="torchcrf"),
    _optional(
        "python-crfsuite", "0.9.9", "0.9.12", "recipes of taggers have no floor (BASELINE=crf)", module="pycrfsuite"
    ),
    _optional(
        "seqeval",
        "1.2",
        "1.2.2",
        "taggers are not measured by entities (--entities)",
        install="setuptools_scm wheel && --no-build-isolation seqeval",
    ),
    _optional("tokenizers", "0.19", "0.23.3", NO_BERT),
    _optional("safetensors", "0.4", "0.8.0", NO_BERT),
    _optional(
        "faiss",
        "1.8",
        "1.15.1",
        "match search has no approximate first stage (--first-stage faiss)",
        distribution="faiss-cpu",
        install="faiss-cpu",
    ),
    _optional("starlette", "0.37", "1.10.0", NO_SERVER),
    _optional("uvicorn", "0.30", "0.54.0", NO_SERVER),
    _optional("prometheus-client", "0.20", "0.26.0", NO_SERVER, module="prometheus_client"),
    _optional("onnx", "1.15", "1.23.2", NO_EXPORT),
    _optional("onnxruntime", "1.17", "1.32.0", NO_EXPORT),
    _optional(
        "ctranslate2", "4.0", "4.8.5", "no plain Transformer is written for CTranslate2 (export --format ctranslate2)"
    ),
    _optional("gensim", "4.3", "4.4.0", "prepare-text trains no word vectors (--word2vec); up to Python 3.13"),
    _optional("matplotlib", "3.6", "3.11.2", "no figures are drawn (analyze, match explain, evaluate --plot)"),
    _optional("tensorboard", "2.10", "none yet", "fairseq-train --tensorboard-logdir writes nothing"),
)
TRITON = _optional(
    "triton",
    "3.0",
    "3.6.0",
    "the dynamic convolution has no GPU kernels of its own; nothing on a CPU",
)
FAIRSEQ_KERNELS = ("dynamicconv_cuda", "lightconv_cuda")
KERNELS_SCRIPT = SETUP_SCRIPT.with_name("build_lightconv.sh")
PLUGIN = "muse_plugin"


class Finding(NamedTuple):
    """What the second process saw of one module.

    Attributes:
        version: of the distribution or module; empty if unknown.
        error: why the import failed, as "<exception>: <text>"; empty if it worked.
        missing: if true, the module itself is not installed.
        facts: anything else, such as the GPU's name.
    """

    version: str = ""
    error: str = ""
    missing: bool = False
    facts: dict[str, Any] = {}


class Row(NamedTuple):
    """One line of the table, and the advice below it."""

    label: str
    found: str
    needs: str = "optional"
    tested: str = ""
    state: str = OK
    needed: bool = False
    cost: str = ""
    fix: str = ""


Prober = Callable[[Sequence[str]], dict[str, Finding]]


def run(args: argparse.Namespace) -> int:
    """Prints the screen.

    Returns:
        0 if training can work, otherwise 1.
    """
    rows = examine(lambda modules: probe_modules(modules, timeout=args.timeout))
    print(render(rows))
    return 1 if find_obstacles(rows) else 0


def examine(prober: Prober, python: Sequence[int] = sys.version_info[:3]) -> list[Row]:
    """Compares what is installed with what is needed.

    Args:
        prober: imports modules by name and says what it saw.
        python: version of the interpreter.

    Returns:
        The rows of the table, in the order in which things depend on each other.
    """
    modules = [requirement.module for requirement in (*REQUIREMENTS, TRITON)] + [*FAIRSEQ_KERNELS, PLUGIN]
    findings = prober(modules)
    rows = [_examine_python(".".join(map(str, python)))]
    rows += [_examine_package(requirement, findings[requirement.module]) for requirement in REQUIREMENTS]
    rows += [_examine_extensions(findings[PLUGIN]), _examine_plugin(findings[PLUGIN])]
    rows.append(_examine_gpu(findings["torch"]))
    rows.append(_examine_package(TRITON, findings[TRITON.module]))
    rows.append(_examine_kernels({name: findings[name] for name in FAIRSEQ_KERNELS}))
    return rows


def find_obstacles(rows: Sequence[Row]) -> list[str]:
    """Names the rows because of which training cannot work."""
    return [row.label for row in rows if row.needed and row.state in (MISSING, BROKEN)]


def render(rows: Sequence[Row]) -> str:
    """Lays out the table, one piece of advice per faulty row, and the verdict as the last line."""
    table = [("muse-plugin doctor", "found", "needs", "tested", f"of {sys.executable}"), *(row[:5] for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
    for row in [row for row in rows if row.state != OK]:
        lines.append(f"{row.state} {row.label}: {row.cost}." + (f" Fix: {row.fix}" if row.fix else ""))
    obstacles = find_obstacles(rows)
    if obstacles:
        lines.append(f"Training cannot work: {', '.join(obstacles)}.")
    else:
        gpu = next((row for row in rows if row.label == "GPU"), None)
        device = "the GPU" if gpu is not None and gpu.state == OK else "the CPU"
        lines.append(f"Training works on {device}.")
    return "\n".join(lines)


def probe_modules(modules: Sequence[str], timeout: float = 180.0) -> dict[str, Finding]:
    """Imports modules in a second process, one after the other.

    Args:
        modules: their names. If an import kills the process or hangs, the remaining ones get a new process.
        timeout: seconds that one process may take.

    Returns:
        A finding for every name.
    """
    findings: dict[str, Finding] = {}
    remaining = list(modules)
    while remaining:
        output, fate = _run_probe(remaining, timeout)
        for line in output.splitlines():
            if line.startswith(PROBE_MARK):
                name, *values = json.loads(line[len(PROBE_MARK) :])
                findings[name] = Finding(*values)
        left = [name for name in remaining if name not in findings]
        if left:
            findings[left[0]] = Finding(error=f"importing it {fate}")
        remaining = left[1:]
    return findings


def _run_probe(modules: Sequence[str], timeout: float) -> tuple[str, str]:
    # By its path: -m and -c would put the current folder first on the module path, and run a random.py that is there.
    command = [sys.executable, str(Path(__file__).resolve()), *modules]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout)
    except subprocess.TimeoutExpired as error:
        output = error.stdout or ""
        text = output.decode("utf-8", errors="replace") if isinstance(output, bytes) else output
        return text, f"took longer than {timeout:g} seconds"
    return done.stdout, f"ended Python with exit code {done.returncode}"


def _probe(modules: Sequence[str]) -> None:
    """The second process: imports each module and prints what it saw as one line of JSON."""
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the folder of this file
    distributions = {requirement.module: requirement.distribution for requirement in (*REQUIREMENTS, TRITON)}
    for name in modules:
        facts: dict[str, Any] = {}
        version = error = ""
        missing = False
        try:
            if name == PLUGIN:
                facts = _import_plugin()
            else:
                if name in FAIRSEQ_KERNELS:
                    importlib.import_module(REQUIREMENTS[0].module)  # torch, whose libraries they need
                module = importlib.import_module(name)
                version = str(getattr(module, "__version__", ""))
                facts = _describe_gpu(module) if name == "torch" else {}
        except Exception as failure:  # whatever the import of a broken package raises is what is reported
            error = f"{type(failure).__name__}: {failure}".splitlines()[0]
            missing = isinstance(failure, ModuleNotFoundError) and failure.name in (name, name.split(".")[0])
        try:
            if not missing:
                version = importlib.metadata.version(distributions.get(name, name))
        except importlib.metadata.PackageNotFoundError:
            pass
        print("\n" + PROBE_MARK + json.dumps([name, version, error, missing, facts]), flush=True)


def _describe_gpu(torch: Any) -> dict[str, Any]:
    if not torch.cuda.is_available():
        return {"cuda_build": torch.version.cuda}
    name, memory = torch.cuda.get_device_name(0), torch.cuda.get_device_properties(0).total_memory
    return {"cuda_build": torch.version.cuda, "gpus": torch.cuda.device_count(), "gpu": name, "gib": memory / 2**30}


def _import_plugin() -> dict[str, Any]:
    installed = importlib.util.find_spec(PLUGIN) is not None
    if not installed:
        sys.path.insert(0, str(PACKAGE_FOLDER.parent))
    plugin = importlib.import_module(PLUGIN)
    fairseq_models = importlib.import_module("fairseq.models")
    ours = [name for name, model in fairseq_models.MODEL_REGISTRY.items() if model.__module__.startswith(PLUGIN + ".")]
    uncompiled = plugin.fairseq_repairs.missing_extensions.find_uncompiled()
    return {"installed": installed, "version": plugin.__version__, "models": sorted(ours), "uncompiled": uncompiled}


def _examine_python(version: str) -> Row:
    needs = f"{OLDEST_PYTHON} to {NEWEST_PYTHON}"
    fits = _compare(version, OLDEST_PYTHON, NEWEST_PYTHON) == 0
    cost = "fairseq does not work with this version of Python"
    fix = f"PYTHON=python{TESTED_PYTHON} bash {_quote(SETUP_SCRIPT)}" if SETUP_SCRIPT.is_file() else "another Python"
    return Row("python", version, needs, TESTED_PYTHON, OK if fits else BROKEN, True, cost, "" if fits else fix)


def _examine_package(requirement: Requirement, finding: Finding) -> Row:
    needs = requirement.oldest if requirement.newest == requirement.oldest else f">= {requirement.oldest}"
    cost, fix = requirement.cost, make_install_command(requirement.install)
    if requirement.needed and SETUP_SCRIPT.is_file():
        fix = f"bash {_quote(SETUP_SCRIPT)}"
    found = finding.version or "-"
    if finding.missing:
        found, state = "-", MISSING
    elif finding.error:
        state, cost = BROKEN, f"{finding.error}; {cost}"
    else:
        order = _compare(finding.version, requirement.oldest, requirement.newest)
        state = OK if order == 0 else WARN
        if order:
            cost = f"{found} is {'older' if order < 0 else 'newer'} than what is needed, so it may fail"
            fix = make_install_command(requirement.install)
            if order < 0 and requirement.newest is None:
                fix += f" --upgrade  (at least {requirement.oldest})"
    return Row(requirement.label, found, needs, requirement.tested, state, requirement.needed, cost, fix)


def make_install_command(install: str) -> str:
    """The command that installs packages into this environment, which may have no pip.

    Args:
        install: as of ``Requirement``.
    """
    python, first = _quote(Path(sys.executable)), ""
    installer = f"{python} -m pip install"
    if importlib.util.find_spec("pip") is None:
        if (Path(sys.prefix) / "conda-meta").is_dir():
            first = f"conda install --prefix {_quote(Path(sys.prefix))} pip && "
        elif _is_made_by_uv() or shutil.which("uv"):
            installer = f"uv pip install --python {python}"
        else:
            first = f"{python} -m ensurepip && "
    return first + " && ".join(f"{installer} {part}" for part in install.split(" && "))


def _is_made_by_uv() -> bool:
    try:
        return re.search(r"^uv\s*=", (Path(sys.prefix) / "pyvenv.cfg").read_text(), flags=re.MULTILINE) is not None
    except (OSError, UnicodeDecodeError):
        return False


def _examine_extensions(plugin: Finding) -> Row:
    uncompiled = plugin.facts.get("uncompiled")
    if not uncompiled:
        return Row("extensions", "compiled" if uncompiled == [] else "-")
    cost = f"{', '.join(uncompiled)} of fairseq are not compiled; Python stands in, slower but with the same batches"
    fix = f"FAIRSEQ_EXTENSIONS=1 bash {_quote(SETUP_SCRIPT)}  (a C++ compiler, three minutes)"
    return Row("extensions", "in Python", state=MISSING, cost=cost, fix=fix if SETUP_SCRIPT.is_file() else "")


def _examine_kernels(findings: Mapping[str, Finding]) -> Row:
    """Which of fairseq's own CUDA kernels are built; nobody needs them where there is Triton or no GPU."""
    label = "fairseq kernels"
    built = [name for name, finding in findings.items() if not finding.missing and not finding.error]
    broken = {name: finding.error for name, finding in findings.items() if finding.error and not finding.missing}
    fix = f"bash {_quote(KERNELS_SCRIPT)}" if KERNELS_SCRIPT.is_file() else ""
    if broken:
        name, error = next(iter(broken.items()))
        cost = f"importing {name} fails with {error}; --conv-backend fairseq_cuda does not work"
        return Row(label, ", ".join(built) or "-", state=BROKEN, cost=cost, fix=fix)
    if built and len(built) < len(findings):
        cost = f"{', '.join(sorted(findings.keys() - {*built}))} is not built; --conv-backend fairseq_cuda needs both"
        return Row(label, ", ".join(built), state=WARN, cost=cost, fix=fix)
    return Row(label, ", ".join(built) or "not built")


def _examine_plugin(finding: Finding) -> Row:
    facts, models = finding.facts, finding.facts.get("models", [])
    row = Row(PLUGIN, f"{facts.get('version', '-')}, {len(models)} models", "registers", needed=True)
    if finding.error:
        cost = f"'import {PLUGIN}' fails with {finding.error}; its models cannot be used"
        return row._replace(found=str(facts.get("version", "-")), state=BROKEN, cost=cost, fix="the rows above first")
    if not models:
        cost = f"'import {PLUGIN}' registers no model with fairseq; --arch muse_... will be unknown"
        return row._replace(state=BROKEN, cost=cost, fix="a complete checkout")
    if not facts.get("installed"):
        cost = f"it is not installed, so only --user-dir {_quote(PACKAGE_FOLDER)} finds it, not 'import {PLUGIN}'"
        fix = f"bash {_quote(SETUP_SCRIPT)}" if SETUP_SCRIPT.is_file() else "pip install it"
        return row._replace(state=WARN, cost=cost, fix=fix)
    return row


def _examine_gpu(torch: Finding) -> Row:
    facts = torch.facts
    if facts.get("gpu"):
        return Row("GPU", f"{facts['gpus']} x {facts['gpu']}, {facts['gib']:.0f} GiB")
    if shutil.which("nvidia-smi") and not facts.get("cuda_build"):
        cost = "there is an NVIDIA driver, but this build of torch is for the CPU only, so training uses the CPU"
        return Row("GPU", "-", state=WARN, cost=cost, fix="uninstall torch, then install a CUDA build of it")
    cost = "training uses the CPU: enough for the quickstart, too slow for the data sets of the papers"
    return Row("GPU", "-", state=MISSING, cost=cost)


def _compare(version: str, oldest: str, newest: Optional[str]) -> int:
    """Returns -1 if ``version`` is below ``oldest``, 1 if above ``newest``, 0 if it fits or cannot be read."""
    numbers = _read_numbers(version)
    if not numbers:
        return 0
    if numbers < _read_numbers(oldest):
        return -1
    limit = _read_numbers(newest) if newest else ()
    return 1 if limit and numbers[: len(limit)] > limit else 0


def _read_numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _quote(path: Path) -> str:
    """Writes a path the way a shell reads it, short when it is below the current folder."""
    try:
        text = str(path.relative_to(os.getcwd()))
    except (ValueError, OSError):
        text = str(path)
    return shlex.quote(text)


if __name__ == "__main__":
    _probe(sys.argv[1:])
