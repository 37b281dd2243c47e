"""The gate between a word's own vector and what attention brings, against Eqs. 10-12, word by word."""

import pytest
import torch
from support.helpers import assert_close
from support.layers import fill_layer

from muse_plugin.modules.fusion_gate import FusionGate


def make_gate(norms, dropout=0.0):
    torch.manual_seed(5)
    gate = FusionGate(6, dropout, norms).double()
    fill_layer(gate)
    return gate


def normalise(norm, vector):
    """A layer norm, written out."""
    centred = vector - vector.sum() / len(vector)
    deviation = (centred.square().sum() / len(vector) + norm.eps).sqrt()
    return centred / deviation * norm.weight + norm.bias


def by_hand(gate, source, context):
    own = torch.stack([sum(source[i] * gate.source_proj.weight[o, i] for i in range(6)) for o in range(6)])
    other = torch.stack([sum(context[i] * gate.context_proj.weight[o, i] for i in range(6)) for o in range(6)])
    if gate.source_norm is not None:
        own, other = normalise(gate.source_norm, own), normalise(gate.context_norm, other)
    out = []
    for channel in range(6):
        share = 1 / (1 + torch.exp(-(own[channel] + other[channel] + gate.bias[channel])))
        out.append(share * own[channel] + (1 - share) * other[channel])
    return torch.stack(out)


@torch.no_grad()
@pytest.mark.parametrize("norms", [True, False])
def test_every_word_is_mixed_as_the_equations_say(norms):
    gate = make_gate(norms)
    source, context = torch.randn(2, 2, 3, 6, dtype=torch.float64)
    out = gate(source, context)
    for row in range(2):
        for at in range(3):
            assert_close(out[row, at], by_hand(gate, source[row, at], context[row, at]), atol=1e-12)


@torch.no_grad()
def test_the_projections_are_mixed_and_not_what_was_projected():
    gate = make_gate(norms=False)
    source, context = torch.randn(2, 1, 1, 6, dtype=torch.float64)
    gate.bias.fill_(1e3)  # open
    assert_close(gate(source, context), gate.source_proj(source), atol=1e-12)
    gate.bias.fill_(-1e3)
    assert_close(gate(source, context), gate.context_proj(context), atol=1e-12)


@torch.no_grad()
def test_dropout_acts_within_the_sigmoid_and_in_training_only():
    gate, plain = make_gate(norms=False, dropout=0.5), make_gate(norms=False)
    source, context = torch.randn(2, 40, 5, 6, dtype=torch.float64)
    assert_close(gate.eval()(source, context), plain(source, context), atol=0, rtol=0)
    out = gate.train()(source, context)
    own, other = gate.source_proj(source), gate.context_proj(context)
    total = own + other + gate.bias
    mixtures = [share * own + (1 - share) * other for share in (torch.tensor(0.5), torch.sigmoid(2 * total))]
    dropped, grown = (torch.isclose(out, mixture, atol=1e-9) for mixture in mixtures)
    assert (dropped | grown).all()  # a dropped sum leaves half of each
    assert 0.4 < dropped.double().mean() < 0.6


@pytest.mark.parametrize(("norms", "count"), [(False, 2 * 36 + 6), (True, 2 * 36 + 6 + 24)])
def test_it_has_two_matrices_one_bias_and_two_norms(norms, count):
    assert sum(p.numel() for p in FusionGate(6, norms=norms).parameters()) == count


def test_gradients_are_right():
    gate = make_gate(norms=True)
    inputs = [torch.randn(1, 2, 6, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    assert torch.autograd.gradcheck(gate, inputs)
