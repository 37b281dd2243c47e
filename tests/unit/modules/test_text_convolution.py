"""Filters over words against a loop."""

import re

import pytest
import torch
from support.helpers import assert_close
from support.layers import pad_rows

from muse_plugin.modules.text_convolution import TextConvolution

LENGTHS = (6, 1, 2)


def make_batch(longer=0, filling=9.0):
    rows = [torch.randn(n, 5, generator=torch.Generator().manual_seed(n)) for n in LENGTHS]
    return rows, *pad_rows(rows, filling, longer)


def by_hand(encoder, row):
    """Each filter at each word: it begins (W - 1) // 2 words before; outside the sentence there are zeros."""
    states = []
    for t in range(len(row)):
        parts = []
        for conv in encoder.convs:
            total = conv.bias.clone()
            for tap in range(conv.weight.shape[2]):
                at = t + tap - (conv.weight.shape[2] - 1) // 2
                if 0 <= at < len(row):
                    total = total + conv.weight[:, :, tap] @ row[at]
            parts.append(total.clamp(min=0))
        states.append(torch.cat(parts))
    return torch.stack(states)


@pytest.mark.parametrize("widths", [[3], [1, 2, 3, 4, 5], [4, 4], [9]])
def test_every_sentence_equals_a_loop_over_its_words(widths):
    encoder = TextConvolution(5, widths, 4)
    assert encoder.output_size == 4 * len(widths)
    for longer, filling in ((0, 9.0), (5, -1e4)):
        rows, batch, lengths, mask = make_batch(longer, filling)
        out = encoder(batch, lengths, mask)
        assert out.shape == (3, 6 + longer, encoder.output_size)
        for i, row in enumerate(rows):
            assert_close(out[i, : len(row)], by_hand(encoder, row))
            assert_close(encoder(row[None], torch.tensor([len(row)]))[0], by_hand(encoder, row))


@pytest.mark.parametrize(("widths", "filters"), [([], 4), ([3, 0], 4), ([3], 0)])
def test_raises_error_without_widths_or_filters(widths, filters):
    sentence = "there must be widths of at least 1 word, and at least 1 filter, but got "
    sentence += f"widths={widths} and filters={filters}."
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        TextConvolution(5, widths, filters)
