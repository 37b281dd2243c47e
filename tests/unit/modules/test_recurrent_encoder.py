"""The bidirectional GRU against PyTorch's on each sentence alone, and against the recurrence written out."""

import pytest
import torch
from support.helpers import assert_close
from support.layers import pad_rows
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from muse_plugin.modules.recurrent_encoder import BiGRU, run_unpadded

LENGTHS = (5, 1, 7, 3)


def make_batch(longer=0, filling=9.0):
    rows = [torch.randn(n, 6, generator=torch.Generator().manual_seed(n)) for n in LENGTHS]
    return rows, *pad_rows(rows, filling, longer)[:2]


def run_direction(gru, row, suffix):
    """h_t from the printed equations, one word after the other."""
    w, u = (getattr(gru, f"weight_{kind}_l0{suffix}") for kind in ("ih", "hh"))
    b, c = (getattr(gru, f"bias_{kind}_l0{suffix}") for kind in ("ih", "hh"))
    state, states = torch.zeros(u.shape[1]), []
    for x in row if not suffix else row.flip(0):
        (xr, xz, xn), (hr, hz, hn) = (w @ x + b).chunk(3), (u @ state + c).chunk(3)
        reset, update = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
        state = (1 - update) * torch.tanh(xn + reset * hn) + update * state
        states.append(state)
    return torch.stack(states if not suffix else states[::-1])


def test_one_layer_equals_the_recurrence_in_both_directions():
    rows, batch, lengths = make_batch()
    encoder = BiGRU(6, 4)
    out = encoder(batch, lengths)
    assert out.shape == (4, 7, 8)
    assert encoder.output_size == 8
    for i, row in enumerate(rows):
        expected = torch.cat([run_direction(encoder.gru, row, suffix) for suffix in ("", "_reverse")], dim=1)
        assert_close(out[i, : len(row)], expected)


@pytest.mark.parametrize("layers", [1, 2])
def test_padding_is_never_read_and_comes_out_as_zeros(layers):
    encoder = BiGRU(6, 4, layers).eval()
    for longer, filling in ((0, 9.0), (6, -1e4)):
        rows, batch, lengths = make_batch(longer, filling)
        out = encoder(batch, lengths)
        assert out.shape == (4, 7 + longer, 8)
        for i, row in enumerate(rows):
            assert_close(out[i, : len(row)], encoder(row[None], torch.tensor([len(row)]))[0])
            assert (out[i, len(row) :] == 0).all()


def test_dropout_acts_between_layers_in_training_only():
    _, batch, lengths = make_batch()
    one, two = BiGRU(6, 4, 1, dropout=0.5), BiGRU(6, 4, 2, dropout=0.5)
    assert torch.equal(one(batch, lengths), one(batch, lengths))
    assert not torch.equal(two(batch, lengths), two(batch, lengths))
    two.eval()
    assert torch.equal(two(batch, lengths), two(batch, lengths))


def test_a_sentence_of_no_words_counts_as_one():
    network = nn.GRU(6, 4, batch_first=True)
    out = run_unpadded(network, torch.randn(2, 3, 6), torch.tensor([0, 3]))
    assert out.shape == (2, 3, 4)
    assert out.isfinite().all()
    assert (out[0, 1:] == 0).all()


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
@pytest.mark.parametrize(("layers", "bidirectional"), [(1, True), (3, True), (2, False)])
def test_states_and_gradients_are_those_of_packed_sequences(kind, layers, bidirectional):
    _, batch, lengths = make_batch(longer=2)
    network = kind(6, 4, layers, batch_first=True, bidirectional=bidirectional)
    weights = torch.randn(4, 9, 8 if bidirectional else 4)
    x, y = batch.clone().requires_grad_(), batch.clone().requires_grad_()

    out = run_unpadded(network, x, lengths)
    (out * weights).sum().backward()
    gradients = [parameter.grad.clone() for parameter in network.parameters()]
    network.zero_grad()

    packed = pack_padded_sequence(y, lengths, batch_first=True, enforce_sorted=False)
    expected = pad_packed_sequence(network(packed)[0], batch_first=True, total_length=9)[0]
    (expected * weights).sum().backward()
    assert_close(out, expected)
    assert_close(x.grad, y.grad)
    for gradient, parameter in zip(gradients, network.parameters(), strict=True):
        assert_close(gradient, parameter.grad)


def test_what_stands_at_padding_reaches_no_gradient():
    _, batch, lengths = make_batch(longer=2, filling=float("nan"))
    encoder = BiGRU(6, 4, 2)
    out = encoder(batch, lengths)
    out.sum().backward()
    assert out.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in encoder.parameters())
