"""``--compile-layers``: training through torch.compile. Most tests leave its code generator out."""

import copy
import pickle
import sys

import pytest
import torch
from support.helpers import assert_close
from support.muse_models import build, logits_of, make_batch, make_pair, make_sentence
from torch._dynamo.utils import counters

from muse_plugin.models import muse_layers
from muse_plugin.modules import compiled_layer
from muse_plugin.ops import dynamic_conv as op

# Without dropout: other numbers would be drawn. weight_dropout is the only rate that is not zero in these models.
FLAGS = {"weight_dropout": 0.0}
# Source and target lengths; all with and some without padding on the source side.
WARM_UP = [((7, 5, 3), (4, 6, 2)), ((9, 9), (8, 5))]
FURTHER = [
    ((12, 5, 3, 4), (9, 6, 2, 3)),
    ((6, 6, 6), (6, 6, 6)),
    ((40, 2, 3), (50, 2, 8)),
    ((5, 5), (9, 7)),
    ((3, 2), (2, 9)),
    ((3000, 4, 5), (2500, 4, 5)),  # long enough for the other back end of the convolution
    ((8,) * 8, (3,) * 8),
    ((4, 4, 4, 4), (4, 4, 4, 4)),
    ((2, 2), (2, 2)),
    ((31, 30), (50, 3)),
]


@pytest.fixture(scope="module", autouse=True)
def quick_compiler():
    """Everything but the code generator, which takes a minute."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_layer, "COMPILER", "aot_eager")
        yield


@pytest.fixture(scope="module")
def warm():
    """A plain model, and the same one with compiled layers that has seen the kinds of batches."""
    plain, compiled = build(**FLAGS).train(), build(**FLAGS, compile_layers=True).train()
    torch._dynamo.reset()
    counters.clear()
    for lengths in WARM_UP:
        differentiate(compiled, lengths)
    # Two layers a side share code: an encoder layer with padding and without, a decoder layer.
    assert counters["stats"]["unique_graphs"] == 3
    return plain, compiled


@pytest.fixture
def graphs():
    """Counts graphs compiled since the test began."""
    before = counters["stats"]["unique_graphs"]
    return lambda: counters["stats"]["unique_graphs"] - before


def differentiate(net, lengths):
    """Scores of a batch, and gradients by name."""
    _, _, source, target = make_pair(*lengths)
    net.zero_grad()
    logits = logits_of(net, source, target)
    generator = torch.Generator().manual_seed(4)
    (logits.float() * torch.randn(logits.shape, generator=generator)).sum().backward()
    return logits.detach(), {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}


def assert_same(actual, expected, atol=1e-5):
    assert_close(actual[0], expected[0], atol=atol)
    assert actual[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        # Sums over hundreds of positions in another order: the tolerance is that of the largest entry.
        assert_close(actual[1][name], gradient, atol=atol * max(1.0, gradient.abs().max().item()), why=name)


@pytest.mark.parametrize("lengths", WARM_UP + FURTHER[:3] + FURTHER[5:6], ids=str)
def test_scores_and_gradients_equal_those_without_the_flag(warm, lengths):
    plain, compiled = warm
    assert_same(differentiate(compiled, lengths), differentiate(plain, lengths))


def test_no_further_length_compiles_and_no_graph_breaks(warm, graphs):
    for lengths in FURTHER:
        differentiate(warm[1], lengths)
    assert graphs() == 0
    assert not counters["graph_break"]


def test_a_batch_of_one_sentence_or_one_token_compiles_nothing(warm, graphs):
    plain, compiled = warm
    for lengths in (((6,), (4,)), ((4, 3), (1, 1))):
        assert_same(differentiate(compiled, lengths), differentiate(plain, lengths))
    assert graphs() == 0


def test_parameters_and_checkpoints_do_not_know_of_the_flag(warm):
    plain, compiled = warm
    assert list(compiled.state_dict()) == list(plain.state_dict())
    assert [name for name, _ in compiled.named_parameters()] == [name for name, _ in plain.named_parameters()]
    for source, flags in ((compiled, {}), (plain, {"compile_layers": True})):
        other = build(seed=8, **FLAGS, **flags).train()
        other.load_state_dict(source.state_dict())
        assert_same(differentiate(other, WARM_UP[0]), differentiate(source, WARM_UP[0]))


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))], ids=["copy", "pickle"])
def test_a_copy_trains_its_own_parameters_with_the_same_code(warm, graphs, clone):
    compiled = warm[1]
    expected = differentiate(compiled, WARM_UP[0])
    twin = clone(compiled)
    with torch.no_grad():
        for parameter in compiled.parameters():
            parameter.mul_(0.5)
    try:
        assert_same(differentiate(twin, WARM_UP[0]), expected)
    finally:
        with torch.no_grad():
            for parameter in compiled.parameters():
                parameter.mul_(2.0)
    assert graphs() == 0


def test_evaluation_and_decoding_compile_nothing(graphs):
    net = build(**FLAGS, compile_layers=True, encoder_ffn_embed_dim=20, decoder_ffn_embed_dim=20)  # no code yet
    _, _, source, target = make_pair()
    with torch.no_grad():
        logits_of(net.train(), source, target)  # train mode, but nothing to learn
    encoded = net.encoder.eval()(source, None)
    net.decoder(target[:, :3], encoder_out=encoded, incremental_state={})[0].sum().backward()  # a cache in train mode
    logits_of(net.eval(), source, target).sum().backward()
    for fast in (False, True):
        if fast:
            net.make_generation_fast_()
        with torch.no_grad():
            encoded = net.encoder(source, None)
            state = {}
            for length in range(1, 5):
                net.decoder(target[:, :length], encoder_out=encoded, incremental_state=state)
    assert graphs() == 0


@pytest.mark.parametrize("compiler", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_checkpointed_activations_are_recomputed_with_the_same_dropout(monkeypatch, compiler):
    monkeypatch.setattr(compiled_layer, "COMPILER", compiler)
    rates = {f"{kind}dropout": 0.2 for kind in ("branch_", "input_", "weight_", "attention_", "activation_")}
    results = []
    for recompute in (False, True):
        net = build(**rates, compile_layers=True, checkpoint_activations=recompute, encoder_layers=1, decoder_layers=1)
        torch.manual_seed(6)
        results.append(differentiate(net.train(), WARM_UP[0]))
    assert_same(results[1], results[0])
    torch.manual_seed(7)
    assert not torch.equal(differentiate(net, WARM_UP[0])[0], results[1][0])


def test_layerdrop_and_accumulated_gradients_compile_nothing_new(warm, graphs):
    compiled = build(**FLAGS, compile_layers=True, encoder_layerdrop=0.5, decoder_layerdrop=0.5).train()
    compiled.zero_grad()
    for lengths in (*WARM_UP, *FURTHER[:4]):
        _, _, source, target = make_pair(*lengths)
        logits_of(compiled, source, target).sum().backward()
    assert graphs() == 0


def test_autocast_works_and_compiles_once_more(warm, graphs):
    plain, compiled = warm
    with torch.autocast("cpu", torch.bfloat16):
        first, second = (differentiate(net, WARM_UP[0]) for net in (plain, compiled))
        count = graphs()
        differentiate(compiled, FURTHER[0])
    assert count == 2
    assert graphs() == count
    assert second[0].dtype == first[0].dtype == torch.bfloat16
    assert_same(second, first, atol=5e-2)


def test_every_make_of_layer_has_recompilations_of_its_own():
    """A model with other kernel sizes in every layer would exceed torch's limit otherwise."""
    codes = [
        compiled_layer.compile_for(name, "cpu", "eager")._torchdynamo_orig_callable.__code__ for name in ("a", "b")
    ]
    assert codes[0] is not codes[1]
    net = build(compile_layers=True, encoder_kernel_sizes="[[3], [5]]")
    assert net.encoder.layers[0]._compiled_as != net.encoder.layers[1]._compiled_as
    assert net.decoder.layers[0]._compiled_as == net.decoder.layers[1]._compiled_as
    assert build().encoder.layers[0]._compiled_as is None


@pytest.mark.parametrize("backend", ["band", "taps", op._CHOSEN_LATER, "triton"])
@pytest.mark.parametrize("full", [False, True], ids=["plain", "gate, padding and dropout"])
def test_the_operators_equal_the_reference(backend, full):
    """Triton's kernels run in its interpreter; how they do on a GPU is for tests/gpu."""
    if backend == "triton":
        pytest.importorskip("triton")
    keep = torch.rand(3, 2, 120, 8) < 0.7

    def compute(*arguments):
        return op._run(backend, *pack(*arguments))

    compiled = torch.compile(compute, dynamic=True, fullgraph=True, backend="aot_eager")
    for length in (9, 20) if backend == "triton" else (9, 120):
        values, taps = torch.randn(3, 2, length, 4), torch.randn(3, 2, length, 8)
        leaves = [x.requires_grad_() for x in (values, taps, torch.rand(2))]
        rest = (keep[:, :, :length].contiguous(), torch.rand(3, length) < 0.3) if full else (None, None)
        arguments = (*leaves[:2], leaves[2] if full else None, *rest)
        weights = torch.randn(3, 2, length, 4)
        results = []
        for function in (compiled, lambda *a: op._run("reference", *pack(*a))):
            out = function(*arguments)
            gradients = torch.autograd.grad((out * weights).sum(), leaves[: 3 if full else 2])
            results.append((out, *gradients))
        for actual, expected in zip(*results, strict=True):
            assert_close(actual, expected, atol=3e-5)


def pack(values, taps, gate, keep, padding):
    return values, op._Kernels(taps, (3, 5), (1, 4), gate, True, keep, 1 / 0.7), padding


def test_training_raises_error_without_a_c_compiler(monkeypatch):
    monkeypatch.setattr(compiled_layer, "COMPILER", "inductor")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    net = build(compile_layers=True, encoder_ffn_embed_dim=28).train()
    _, _, source, target = make_pair()
    sentence = (
        r"^--compile-layers: torch.compile needs a C\+\+ compiler, but 'g\+\+' cannot be found; install one \(on "
        r"Debian: apt install g\+\+\), name yours in the environment variable CXX, or train without it\.$"
    )
    with pytest.raises(RuntimeError, match=sentence):
        logits_of(net, source, target)
    logits_of(net.eval(), source, target)  # what needs no compiler still works
    monkeypatch.setenv("CXX", "/no/such/compiler")
    with pytest.raises(RuntimeError, match=r"needs a C\+\+ compiler, but '/no/such/compiler' cannot be found"):
        compiled_layer.check_compiler("cpu")


def test_training_raises_error_on_a_gpu_without_triton(monkeypatch):
    monkeypatch.setattr(compiled_layer.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match=r"^torch.compile needs Triton on a GPU, but it cannot be found; run pip"):
        compiled_layer.check_compiler("cuda")


def test_flags_that_do_not_go_together_are_refused(monkeypatch):
    with pytest.raises(
        ValueError, match=r"^--compile-layers keeps .* but got --offload-activations; drop one of them\.$"
    ):
        build(compile_layers=True, checkpoint_activations=True, offload_activations=True)
    monkeypatch.setattr(muse_layers, "fsdp_wrap", lambda layer, **_: torch.nn.Sequential(layer))
    with pytest.raises(NotImplementedError, match="but got --ddp-backend fully_sharded; use another --ddp-backend"):
        build(compile_layers=True)


@pytest.mark.slow
def test_the_real_compiler_gives_the_same_scores_and_gradients(monkeypatch, graphs):
    monkeypatch.setattr(compiled_layer, "COMPILER", "inductor")
    plain, compiled = build(**FLAGS).train(), build(**FLAGS, compile_layers=True).train()
    for lengths in [*WARM_UP, *FURTHER, ((60, 2, 3), (50, 2, 8))]:
        assert_same(differentiate(compiled, lengths), differentiate(plain, lengths))
    # It makes separate code for sums of up to 4096 terms, and of more.
    assert graphs() <= 8
    count = graphs()
    for rows in range(2, 12):
        source = make_batch([make_sentence(5 + rows + i) for i in range(rows)], left=True)
        logits_of(compiled, source, make_batch([make_sentence(4 + i) for i in range(rows)])).sum().backward()
    assert graphs() == count
