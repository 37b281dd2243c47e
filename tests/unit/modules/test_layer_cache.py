"""The history of a layer: growth in blocks, picking rows, sentences shared by rows."""

import pytest
import torch
from support.helpers import assert_close

from muse_plugin.modules.layer_cache import BLOCK, LayerCache, group_rows


@pytest.mark.parametrize("needs_grad", [False, True])
def test_history_is_everything_appended_also_beyond_a_block(needs_grad):
    cache, parts = LayerCache(), []
    for number in range(BLOCK + 7):
        new = torch.randn(3, 1 + number % 2, 4, requires_grad=needs_grad)
        parts.append(new)
        seen = cache.extend("value", new)
        assert_close(seen, torch.cat(parts, dim=1), atol=0, rtol=0)
    assert cache.lengths == {"value": sum(part.shape[1] for part in parts)}


def test_appending_one_position_copies_no_history():
    cache = LayerCache()
    first = cache.extend("value", torch.randn(3, 2, 4))
    second = cache.extend("value", torch.randn(3, 1, 4))
    assert second.data_ptr() == first.data_ptr()


def test_gradients_reach_every_step_of_a_differentiated_history():
    cache = LayerCache()
    parts = [torch.randn(2, 1, 3, requires_grad=True) for _ in range(3)]
    total = sum((cache.extend("value", part) ** 2).sum() for part in parts)
    for number, grad in enumerate(torch.autograd.grad(total, parts)):
        assert_close(grad, 2 * (3 - number) * parts[number])


@pytest.mark.parametrize("rows", [[2, 0, 1, 1], [0, 0, 0, 0], [3], [1, 2], [0, 1, 2, 3, 3, 3]], ids=str)
@torch.no_grad()
def test_picked_rows_keep_their_history_and_go_on(rows):
    cache, order = LayerCache(), torch.tensor(rows)
    past = torch.randn(4, 5, 6)
    cache.extend("value", past)
    for _ in range(3):  # the spare buffer is used in turns
        cache.reorder(order, None)
        past = past[order]
        new = torch.randn(len(rows), 1, 6)
        seen = cache.extend("value", new)
        past = torch.cat([past, new], dim=1)
        assert_close(seen, past, atol=0, rtol=0)
        order = torch.arange(len(rows)).flip(0)


def test_sentences_are_only_picked_when_some_are_gone():
    cache = LayerCache()
    key, value = torch.randn(3, 5, 4), torch.randn(3, 5, 4)
    cache.encoder_key_value = key, value
    cache.reorder(torch.tensor([1, 0, 3, 3, 4, 5]), None)
    assert cache.encoder_key_value[0] is key
    cache.reorder(torch.tensor([0, 1, 4, 5]), torch.tensor([0, 2]))
    assert_close(cache.encoder_key_value[0], key[[0, 2]], atol=0, rtol=0)
    assert_close(cache.encoder_key_value[1], value[[0, 2]], atol=0, rtol=0)


@pytest.mark.parametrize(
    ("rows", "sentences", "per_sentence", "expected"),
    [
        ([0, 0, 1, 1, 2, 2], 3, 1, (None, 2)),  # the beam opens
        ([1, 0, 3, 3, 4, 4], 3, 2, (None, 2)),  # a step within each beam
        ([0, 2, 4], 3, 2, (None, 1)),  # the beam closes
        ([0, 1, 5, 4], 3, 2, ([0, 2], 2)),  # a sentence is finished
        ([2, 2, 2, 2], 3, 2, ([1], 4)),
        ([2, 0, 1], 3, 1, ([2, 0, 1], 1)),  # another order
        ([0, 0, 1], 3, 1, ([0, 0, 1], 1)),  # groups of different sizes: every row for itself
        ([], 3, 1, ([], 1)),
    ],
)
def test_rows_are_grouped_by_sentence(rows, sentences, per_sentence, expected):
    left, size = group_rows(torch.tensor(rows, dtype=torch.long), sentences, per_sentence)
    assert (None if left is None else left.tolist(), size) == expected
