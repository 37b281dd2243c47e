"""What makes fairseq's CUDA kernels: edits of made-up sources, and the script with a compiler that does nothing."""

import os
import shlex
import sys

import pytest
from support.helpers import REPOSITORY, load_program, run_command

SCRIPT = REPOSITORY / "scripts" / "build_lightconv.sh"
tool = load_program(REPOSITORY / "scripts" / "edit_fairseq_kernels.py")


@pytest.fixture
def source(tmp_path):
    """A clone of fairseq, as far as the edits look at it; what generates sources makes a file."""
    for layer in tool.LAYERS:
        folder = tmp_path / "fairseq source" / "fairseq" / "modules" / f"{layer}_layer"
        folder.mkdir(parents=True)
        (folder / f"{layer}_cuda_kernel.cu").write_text(
            f'#include "../cuda_utils.cu"\n#include "{layer}_cuda.cuh"\n#include "{layer}_cuda_forward.cu"\n'
        )
        (folder / "cuda_function_gen.py").write_text(
            "calls = 'input.data<scalar_t>(), weight.data<scalar_t>()'\nopen('generated.cu', 'w').write(calls)\n"
        )
        (folder / f"{layer}_cuda.cpp").write_text("AT_ASSERTM(x.type().is_cuda(), #x)\n")
    return tmp_path / "fairseq source"


def read_all(modules):
    return {str(path.relative_to(modules)): path.read_text() for path in modules.rglob("*") if path.is_file()}


def test_edits_are_made_once_in_every_file(source):
    modules = source / "fairseq" / "modules"
    assert len(tool.edit(modules)) == 6
    edited = read_all(modules)
    for layer in tool.LAYERS:
        kernel, generator, binding = (edited[change.file] for change in tool.list_edits(layer))
        assert kernel == (
            f'#include "{layer}_cuda.cuh"\n#include "../cuda_utils.cu"\n#include "{layer}_cuda_forward.cu"\n'
        )
        assert generator.startswith("calls = 'input.data_ptr<scalar_t>(), weight.data_ptr<scalar_t>()'\n")
        assert binding == "AT_ASSERTM(x.is_cuda(), #x)\n"
    assert tool.edit(modules) == []
    assert read_all(modules) == edited


@pytest.mark.parametrize("damage", ["missing", "other"])
def test_other_sources_are_refused_and_nothing_is_edited(source, damage, monkeypatch, capsys):
    modules = source / "fairseq" / "modules"
    last = modules / "lightconv_layer" / "lightconv_cuda.cpp"
    if damage == "missing":
        last.unlink()
        sentence = f"error: the sources of fairseq must have lightconv_layer/{last.name} in fairseq/modules, but "
    else:
        last.write_text("something else\n")
        sentence = f"error: {last} must contain 'x.type().is_cuda()', but it has neither this nor what replaces "
    before = read_all(modules)
    monkeypatch.setattr(sys, "argv", ["edit_fairseq_kernels.py", str(modules)])
    assert tool.main() == 1
    assert capsys.readouterr().err.startswith(sentence)
    assert read_all(modules) == before


# ---- the script -----------------------------------------------------------------------------------------------------

# Answers what the script asks of torch, and keeps what would be built.
PYTHON = """#!/bin/sh
case "$*" in
  *torch.version.cuda*) echo "${{FAKE_CUDA-13.0}}" ;;
  *get_device_capability*) echo "${{FAKE_GPU-}}" ;;
  *is_available*) exit 1 ;;
  *"-m pip wheel"*)
    pwd >>{log}; cat *.cu *.cpp >>{log}
    [ -z "${{FAKE_FAULT-}}" ] || {{ echo "$FAKE_FAULT"; exit 1; }}
    while [ "$1" != -w ]; do shift; done
    mkdir -p "$2"; : >"$2/$(basename "$PWD")-1.whl"
    ;;
  *"-m pip install"*.whl) for wheel; do :; done; cat "$wheel" ;;
  *"-c import torch, "*) ;;
  *) exec {python} "$@" ;;
esac
"""
NVCC = """#!/bin/sh
[ "$1" = --dryrun ] && { echo '#$ _SPACE_= ' >&2; echo "#$ TOP=$(cd "$(dirname "$0")/.." && pwd)" >&2; exit; }
echo "Cuda compilation tools, release ${FAKE_NVCC-13.0}, V13.0.88"
"""


@pytest.fixture
def build(tmp_path, source):
    """Runs the script in an environment with a fake Python and a fake nvcc; returns the process."""
    log = tmp_path / "built"
    python = PYTHON.format(log=shlex.quote(str(log)), python=shlex.quote(sys.executable))
    for name, text in {"environment/bin/python": python, "toolkit/bin/nvcc": NVCC}.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def run(*arguments, path=f"{tmp_path / 'toolkit' / 'bin'}:{os.environ['PATH']}", **settings):
        names = ("CUDA_HOME", "TORCH_CUDA_ARCH_LIST", "FAIRSEQ_SOURCE")
        env = {name: value for name, value in os.environ.items() if name not in names}
        defaults = {"FAIRSEQ_SOURCE": str(source), "TORCH_CUDA_ARCH_LIST": "8.0;9.0", "PATH": path}
        env |= {"VIRTUAL_ENV": str(tmp_path / "environment"), "TMPDIR": str(tmp_path), **defaults, **settings}
        done = run_command(["bash", str(SCRIPT), *arguments], cwd=tmp_path, env=env)
        assert not [*tmp_path.glob("tmp.*")], "the script leaves its folder behind"
        done.built = log.read_text() if log.exists() else ""
        return done

    return run


def test_both_layers_are_edited_generated_and_built(build, source):
    before = read_all(source)
    done = build()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("Both are built and can be imported. There is no GPU here, so they ")
    assert done.built.count("data_ptr<scalar_t>") == 4
    assert [line.rsplit("/", 1)[1] for line in done.built.splitlines() if line.startswith("/")] == [
        "dynamicconv_layer",
        "lightconv_layer",
    ]
    assert read_all(source) == before


def test_wheels_are_left_to_be_carried(build, tmp_path):
    done = build(WHEELS=str(tmp_path / "carried here"))
    assert done.returncode == 0, done.stderr
    carried = sorted(path.name for path in (tmp_path / "carried here").iterdir())
    assert carried == ["dynamicconv_layer-1.whl", "lightconv_layer-1.whl"]
    (tmp_path / "file").touch()
    done = build(WHEELS=str(tmp_path / "file"))
    assert done.returncode == 1
    assert "error: WHEELS must be a folder that can be made, but is " in done.stderr


def test_without_a_clone_the_sources_are_fetched(build, source):
    git = ["git", "-C", str(source), "-c", "user.name=x", "-c", "user.email=x@x"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        assert run_command([*git, *command], cwd=source).returncode == 0
    done = build(FAIRSEQ_SOURCE="", FAIRSEQ_REPOSITORY=str(source), FAIRSEQ_COMMIT="HEAD")
    assert done.returncode == 0, done.stderr
    assert done.built.count("data_ptr<scalar_t>") == 4
    done = build(FAIRSEQ_SOURCE="", FAIRSEQ_REPOSITORY=str(source / "none"))
    assert f"error: fairseq could not be fetched from {source / 'none'}; set FAIRSEQ_SOURCE to a clone of it." in (
        done.stderr
    )


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"FAKE_CUDA": "none"}, "the kernels need a CUDA build of PyTorch, but that of "),
        (
            {"path": "/usr/bin:/bin"},
            "NVIDIA's compiler nvcc is on no path; install a CUDA toolkit 13.0, or: pip ",
        ),
        (
            {"CUDA_HOME": "/nowhere"},
            "CUDA_HOME must be a CUDA toolkit, but /nowhere/bin/nvcc does not exist; ",
        ),
        ({"FAKE_NVCC": "12.4"}, "nvcc must have the major version of PyTorch's CUDA, but "),
        ({"CXX": "no-such-compiler"}, "a C++ compiler is needed, but no-such-compiler cannot be found; install one "),
        (
            {"TORCH_CUDA_ARCH_LIST": ""},
            "there is no GPU on this machine to build for; name the kinds, such as ",
        ),
        (
            {"FAIRSEQ_SOURCE": "/nowhere"},
            "FAIRSEQ_SOURCE must be a clone of fairseq, but /nowhere has no folder ",
        ),
        ({"FAKE_FAULT": "x.cu(3): error: what"}, "dynamicconv_cuda could not be built; its first errors are above."),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_missing_is_said_in_one_sentence(build, settings, sentence):
    done = build(**settings)
    assert done.returncode == 1
    *before, last = done.stderr.splitlines()
    assert last.startswith(f"build_lightconv: error: {sentence}")
    assert before == (["x.cu(3): error: what"] if "FAKE_FAULT" in settings else [])


def test_the_kind_of_the_gpu_is_found(build):
    done = build(TORCH_CUDA_ARCH_LIST="", FAKE_GPU="8.6")
    assert done.returncode == 0, done.stderr
    assert "building lightconv_cuda for GPUs of kind 8.6 with CUDA 13.0 ..." in done.stdout


def test_arguments_are_refused(build):
    assert build("--fast").returncode == 2
