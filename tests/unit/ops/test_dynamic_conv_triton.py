"""The Triton kernels: in Triton's interpreter on the CPU, and through its compiler for a GPU that need not be there.

``test_dynamic_conv.py`` has what holds for every back end; ``tests/gpu`` runs the same cases on a GPU.
"""

import importlib.util
import os

import pytest
import torch
from support.dynamic_conv_cases import Case, check, differentiate
from support.helpers import REPOSITORY, assert_close, run_python

from muse_plugin.ops import dynamic_conv as op
from muse_plugin.ops.dynamic_conv import dynamic_conv


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [
        *((sizes, torch.float32) for sizes in ([1], [3], [3, 15], [2, 4], [31])),
        *(([3, 15], dtype) for dtype in (torch.float16, torch.bfloat16)),
    ],
)
@pytest.mark.parametrize("causal", [True, False])
def test_values_and_gradients_are_as_exact_as_those_of_the_reference(triton_on_cpu, sizes, causal, dtype):
    case = Case(sizes, causal, batch=2, heads=1, dtype=dtype, gate=len(sizes) > 1, mask=True)
    check(case, "triton")


@pytest.mark.parametrize(
    "case",
    [
        Case([3, 15], length=40, history=3, channels=7),  # several blocks of queries, the last one not full
        Case([5], batch=1, heads=3, length=33, channels=130, mask=True, dropout=0.3),  # channels in three parts
        Case([3, 5, 7, 9, 11, 13], causal=False, heads=1, gate=True, dropout=0.2),  # numbers beyond 64 bits, packed
        Case([7, 2], normalize=False, gate=True, mask=True, dropout=0.3),
        Case([4], batch=5, heads=2, length=1, history=9),  # a step of decoding
        Case([15], batch=1, heads=2, length=3, history=4),  # history shorter than the kernel
        Case([225], batch=1, heads=1, length=5),  # the widest window
    ],
    ids=lambda case: f"{case.sizes}-{case.length}",
)
def test_blocks_channels_history_and_dropout(triton_on_cpu, case):
    check(case, "triton")


def test_sizes_may_look_in_different_directions(triton_on_cpu):
    values, taps = torch.randn(1, 2, 9, 4), torch.randn(1, 2, 9, 8)
    options = {"padding_left": [0, 4], "kernel_sizes": [3, 5], "normalize": True}
    expected = dynamic_conv(values, taps, backend="reference", **options)
    assert_close(dynamic_conv(values, taps, backend="triton", **options), expected, atol=1e-6)


def test_values_and_taps_may_differ_in_dtype(triton_on_cpu):
    values, taps = torch.randn(1, 2, 6, 4).half(), torch.randn(1, 2, 6, 3)
    out = dynamic_conv(values, taps, padding_left=1, normalize=True, backend="triton")
    expected = dynamic_conv(values.float(), taps, padding_left=1, normalize=True, backend="reference")
    assert out.dtype == torch.float16
    assert_close(out.float(), expected, atol=2e-3)


def test_the_result_lies_in_memory_as_the_layers_have_it(triton_on_cpu):
    values, taps = torch.randn(2, 3, 6, 4, requires_grad=True), torch.randn(2, 3, 6, 3)
    out = dynamic_conv(values, taps, padding_left=1, backend="triton")
    assert out.permute(2, 0, 1, 3).is_contiguous()
    out.sum().backward()


def test_equal_inputs_give_equal_bits(triton_on_cpu):
    case = Case([3, 5], length=40, gate=True, mask=True, dropout=0.1)
    inputs = case.make()
    for first, second in zip(differentiate(case, "triton", inputs), differentiate(case, "triton", inputs), strict=True):
        assert_close(first, second, atol=0, rtol=0)


@pytest.mark.parametrize(
    ("sizes", "numbers"), [([226], "226 and 226"), ([150, 120], "269 and 270"), ([200] * 21, "200 and 4200")]
)
def test_triton_refuses_what_it_has_no_kernel_for(triton_on_cpu, sizes, numbers):
    case = Case(sizes, length=1)
    lefts = [0] * (len(sizes) - 1) + [sizes[-1] - 1] if len(sizes) == 2 else case.padding_left
    values, taps, *_ = case.make()
    sentence = (
        r"^the back end triton takes windows of up to 225 positions and 4095 taps in all, but got "
        rf"{numbers}; use backend='band'\.$"
    )
    with pytest.raises(NotImplementedError, match=sentence):
        dynamic_conv(values, taps, padding_left=lefts, kernel_sizes=sizes, backend="triton")


def test_triton_without_triton_names_what_to_install(monkeypatch):
    monkeypatch.setattr(op, "_HAS_TRITON", False)
    sentence = (
        r"^the back end triton needs Triton, which is not installed; run pip install triton \(Linux only\), "
        r"or use backend='auto'\.$"
    )
    with pytest.raises(ImportError, match=sentence):
        dynamic_conv(torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 2, 1), padding_left=0, backend="triton")


def run_without_interpreter(code, tmp_path):
    if importlib.util.find_spec("triton") is None:
        pytest.skip('needs Triton: pip install -e ".[triton]"')
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path / "cache")
    result = run_python(code, str(REPOSITORY), cwd=tmp_path, env=environment)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_triton_on_the_cpu_without_its_interpreter_names_the_ways_out(tmp_path):
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from muse_plugin.ops.dynamic_conv import dynamic_conv
try:
    dynamic_conv(torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 2, 1), padding_left=0, backend="triton")
except RuntimeError as error:
    print(error)
"""
    assert run_without_interpreter(code, tmp_path) == (
        "the back end triton needs a GPU, but got tensors on cpu; use backend='auto', or set TRITON_INTERPRET=1 before "
        "the program starts to try the kernels on the CPU.\n"
    )


def test_kernels_compile_for_a_gpu_without_spilling(tmp_path):
    """The interpreter forgives what the compiler does not; ptxas tells how many registers did not suffice."""
    output = run_without_interpreter(COMPILE, tmp_path)
    lines = [line.split() for line in output.splitlines()]
    assert len(lines) == 3 * 2
    for kernel, dtype, shared, spilled in lines:
        assert int(shared) <= 99 * 1024, f"{kernel} with {dtype} needs {shared} bytes of shared memory"
        assert int(spilled) == 0, f"{kernel} with {dtype} spills {spilled} bytes"


COMPILE = """
import sys
sys.path.insert(0, sys.argv[1])
import pathlib, re, subprocess, tempfile
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from muse_plugin.ops import dynamic_conv_triton as kernels

NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
TOOL = pathlib.Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


def compile_kernel(kernel, dtype, sizes, lefts):
    values, taps = torch.empty(2, 4, 40, 96, dtype=dtype), torch.empty(2, 4, 40, sum(sizes), dtype=dtype)
    some = torch.ones(1)
    own = kernels.Kernels(taps, sizes, lefts, some, True, some, 1.25)
    plan = kernels._plan(values, own, some)
    plan.update(AHEAD=own.look_ahead, NEEDS_VALUES=True, NEEDS_TAPS=True)
    if dtype == torch.float32:
        plan["PRECISION"] = "tf32x3"
    float32, bytes_ = ("gate", "log_sums", "grad_gates"), ("padding", "keep")
    signature, constants, hints = {}, {}, {}
    for parameter in kernel.params:
        name, place = parameter.name, (parameter.num,)
        if parameter.is_constexpr:
            signature[name], constants[place] = "constexpr", plan[name]
        elif name in ("stride_vd", "stride_tk", "stride_od", "stride_gd", "stride_dvd", "stride_dtk"):
            signature[name], constants[place] = "constexpr", 1
        elif name.startswith("stride_"):
            signature[name] = "i32"
            if not name.startswith(("stride_t", "stride_dt", "stride_p")):
                hints[place] = [["tt.divisibility", 16]]
        elif name in ("num_heads", "length", "positions", "channels"):
            signature[name] = "i32"
        else:
            signature[name] = "*" + ("fp32" if name in float32 else "u8" if name in bytes_ else NAMES[dtype])
            hints[place] = [["tt.divisibility", 16]]
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=hints)
    done = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": plan["num_warps"]})
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(done.asm["cubin"])
        file.flush()
        usage = subprocess.run([TOOL, "--dump-resource-usage", file.name], capture_output=True, text=True).stdout
    return done.metadata.shared, re.search(r"STACK:(\\d+)", usage)[1]


sizes, lefts = (3, 15), (1, 7)
for dtype in NAMES:
    for kernel in (kernels._dynamic_conv_fwd_kernel, kernels._dynamic_conv_bwd_kernel):
        print(kernel.__name__, NAMES[dtype], *compile_kernel(kernel, dtype, sizes, lefts))
"""
