"""DiSAN's attention with a weight per pair of words and channel, against its equations, number by number."""

import pytest
import torch
from support.helpers import assert_close
from support.layers import fill_layer, pad_random_rows
from torch import nn

from muse_plugin.modules import directional_attention
from muse_plugin.modules.directional_attention import DirectionalAttention

LENGTHS = (7, 1, 4, 2)
WIDTH = 5
DIRECTIONS = ("forward", "backward")


def make(direction="forward", input_size=3, bound=5.0, weights_at_once=1 << 24, **settings):
    torch.manual_seed(7)
    module = DirectionalAttention(input_size, WIDTH, direction, **settings).double()
    module.bound, module.weights_at_once = bound, weights_at_once
    fill_layer(module, std=1.5)  # logits come near the bound
    return module.eval()


def make_batch(filling=3.0, longer=0):
    return pad_random_rows(LENGTHS, 3, filling, longer)


def by_hand(module, row):
    """One sentence: loops over queries, channels and keys."""
    states = row @ module.input_proj.weight.T + module.input_proj.bias
    states = torch.where(states > 0, states, torch.exp(states) - 1)
    first = states @ module.key_proj.weight.T
    second = states @ module.query_proj.weight.T
    out = []
    for j in range(len(row)):
        attended = torch.zeros(WIDTH).double()
        for k in range(WIDTH):
            total = 0.0
            for i in range(len(row)):
                if i < j if module.direction == "forward" else i > j:
                    inner = (first[i, k] + second[j, k] + module.query_proj.bias[k]) / module.bound
                    weight = torch.exp(module.bound * torch.tanh(inner))
                    attended[k] += weight * states[i, k]
                    total = total + weight
            if total != 0:
                attended[k] /= total
        gate = module.state_gate(states[j]) + module.context_gate(attended) + module.gate_bias
        gate = 1 / (1 + torch.exp(-gate))
        out.append(gate * states[j] + (1 - gate) * attended)
    return torch.stack(out)


@torch.no_grad()
# One block, a block per query, blocks of three.
@pytest.mark.parametrize(("weights", "bound"), [(1 << 24, 5.0), (1, 1.0), (4 * 7 * WIDTH * 3, 5.0)])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_it_is_what_the_equations_say_in_any_blocks(direction, bound, weights):
    module = make(direction, bound=bound, weights_at_once=weights)
    x, lengths, mask = make_batch()
    out = module(x, lengths, mask)
    assert (out[mask] == 0).all()
    for i, n in enumerate(LENGTHS):
        assert_close(out[i, :n], by_hand(module, x[i, :n]), atol=1e-11)
        assert_close(module(x[i : i + 1, :n], lengths[i : i + 1])[0], by_hand(module, x[i, :n]), atol=1e-11)


@torch.no_grad()
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_padding_changes_no_real_word(direction):
    module = make(direction)
    x, lengths, mask = make_batch()
    before = module(x, lengths, mask)
    for longer, filling in ((0, -9.0), (5, 3.0)):
        y, _, wider = make_batch(filling, longer)
        after = module(y, lengths, wider)
        for i, n in enumerate(LENGTHS):
            assert_close(after[i, :n], before[i, :n], atol=1e-11)
        assert (after[wider] == 0).all()


@torch.no_grad()
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_word_sees_one_side_alone(direction):
    module = make(direction)
    x = torch.randn(1, 6, 3).double()
    before = module(x, torch.tensor([6]))
    for at in range(6):
        changed = x.clone()
        changed[0, at] += 1
        same = (module(changed, torch.tensor([6])) == before).all(-1)[0].tolist()
        assert same == [other < at if direction == "forward" else other > at for other in range(6)]


@torch.no_grad()
@pytest.mark.parametrize(("direction", "blind"), [("forward", 0), ("backward", -1)])
def test_a_word_does_not_attend_to_itself(direction, blind):
    """The word with nothing on its side is its own state, times the gate."""
    module = make(direction)
    for n in (1, 4):
        x = torch.randn(1, n, 3).double()
        state = nn.functional.elu(module.input_proj(x[0, blind]))
        gate = torch.sigmoid(module.state_gate(state) + module.context_gate.bias + module.gate_bias)
        assert_close(module(x, torch.tensor([n]))[0, blind], gate * state, atol=1e-12)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_blocks_have_the_gradients_of_the_whole(direction):
    gradients = []
    for weights in (1 << 24, 1, 4 * 7 * WIDTH * 2):
        module = make(direction, weights_at_once=weights)
        x, lengths, mask = make_batch()
        x.requires_grad_()
        module(x, lengths, mask).square().sum().backward()
        assert (x.grad[mask] == 0).all()
        assert all(p.grad.isfinite().all() and p.grad.any() for p in module.parameters())
        gradients.append([x.grad, *(p.grad for p in module.parameters())])
    for other in gradients[1:]:
        for first, second in zip(gradients[0], other, strict=True):
            assert_close(second, first, atol=1e-10)


@pytest.mark.parametrize("weights", [1 << 24, 1])
def test_gradients_are_right(weights):
    module = make(weights_at_once=weights)
    x = torch.randn(1, 4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: module(x, torch.tensor([4])), x)


def test_memory_for_the_gradient_grows_with_the_length_not_with_its_square():
    """What autograd keeps: with blocks, no tensor as large as all weights, and less than they are in total."""
    kept = {}
    for weights in (1 << 24, 1 << 8):
        sizes = {}

        def pack(tensor, sizes=sizes):
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        module = make(weights_at_once=weights)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            out = module(torch.randn(1, 64, 3).double(), torch.tensor([64]))
        kept[weights] = sum(sizes.values())
        assert out.requires_grad
    all_weights = 64 * 64 * WIDTH * 8
    assert kept[1 << 24] > 2 * all_weights
    assert kept[1 << 8] < all_weights


@torch.no_grad()
def test_dropout_acts_on_what_is_projected_and_in_training_only():
    x, lengths, mask = make_batch()
    module = make(dropout=0.5)
    assert_close(module(x, lengths, mask), make()(x, lengths, mask), atol=0, rtol=0)
    inputs = {}
    for name in ("key_proj", "query_proj", "state_gate", "context_gate"):
        getattr(module, name).register_forward_pre_hook(lambda _, x, name=name: inputs.update({name: x[0]}))
    module.train()(x, lengths, mask)
    states = nn.functional.elu(module.input_proj(x))
    for name in ("key_proj", "query_proj", "state_gate"):
        kept = inputs[name] != 0
        assert_close(inputs[name][kept], 2 * states[kept], atol=1e-12)
        assert 0.3 < kept.double().mean() < 0.7
    assert (inputs["context_gate"] == 0).double().mean() > 0.3


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.usefixtures("on_device")
def test_half_precision_stays_what_it_is_and_finite(dtype):
    module = make().to(dtype)
    out = module(torch.randn(1, 900, 3).to(dtype), torch.tensor([900]))
    assert out.dtype == dtype
    assert out.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [1.0, 8.0])
def test_gradients_are_finite_in_half_precision(dtype, size):
    module = make().to(dtype)
    x = (size * torch.randn(1, 40, 3, generator=torch.Generator().manual_seed(2))).to(dtype).requires_grad_()
    (16.0 * module(x, torch.tensor([40])).float()).sum().backward()
    assert x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in module.parameters())


def test_a_direction_has_the_published_number_of_parameters():
    """Half of what 2,345,403 leaves for the encoder: five matrices and five biases, of which the gate has three."""
    module = DirectionalAttention(300, 300, "forward")
    assert sum(p.numel() for p in module.parameters()) == 5 * 300**2 + 5 * 300
    assert directional_attention.DIRECTIONS == DIRECTIONS


def test_raises_error_for_an_unknown_direction():
    with pytest.raises(ValueError, match=r"^a direction must be one of forward, backward, but got 'both'\.$"):
        DirectionalAttention(3, WIDTH, "both")


def test_the_widest_bound_stays_finite():
    module = make("forward", bound=40.0).float()
    torch.nn.init.constant_(module.query_proj.bias, -1e4)
    x = torch.randn(2, 5, module.input_proj.in_features)
    assert torch.isfinite(module(x, torch.zeros(2, 5, dtype=torch.bool))).all()
