"""An attention that no other file knows: one class, put into layers, and everything about attention works on it."""

import math

import pytest
import torch
from support.helpers import assert_close

from muse_plugin.analysis.analyze_model import analyze, combine
from muse_plugin.analysis.analyzed_model import Batches, load_model
from muse_plugin.analysis.attention_sites import find_sites
from muse_plugin.modules.attends import (
    AttentionWeights,
    HeadSource,
    find_attention,
    find_head_sources,
    record_attention,
    record_heads,
)
from muse_plugin.modules.branch import Branch, Projection, merge_heads, split_heads


class EqualAttention(Branch):
    """Every word looks at all words alike."""

    attends_to = "self"

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.output_size = embed_dim
        self.projections = (Projection("value", embed_dim),)

    def forward(self, projected, context):
        value = split_heads(projected["value"], self.num_heads)
        return merge_heads(self.weigh_attention(projected, context).weights @ value)

    def weigh_attention(self, projected, context):
        batch, keys, _ = projected["value"].shape
        mask = context.key_padding_mask
        real = torch.ones(batch, keys) if mask is None else (~mask).float()
        weights = (real / real.sum(1, keepdim=True))[:, None, None].expand(-1, self.num_heads, context.length, -1)
        return AttentionWeights(weights, mask)

    def find_heads(self):
        return HeadSource(self, False, self.num_heads, self.output_size // self.num_heads)


class QuietAttention(Branch):
    """A branch with heads that does not say what it looks at."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.output_size = embed_dim

    def forward(self, projected, context):
        return projected["value"]


def load(shop, kind):
    """A translation model whose encoder has other attention."""
    analyzed = load_model(shop.muse, "valid", cpu=True)
    for layer in analyzed.model.encoder.layers:
        layer.branches["self_attention"] = kind(16, 2)
    return analyzed


@torch.no_grad()
def test_weights_and_heads_are_recorded(shop):
    analyzed = load(shop, EqualAttention)
    modules, sources = find_attention(analyzed.model.encoder), find_head_sources(analyzed.model.encoder)
    assert [type(module) for module in modules] == [EqualAttention] * 2
    values = []
    for module in modules:
        module.register_forward_pre_hook(lambda module, args: values.append(split_heads(args[0]["value"], 2)))
    (inputs,) = Batches(analyzed, [3])
    with record_attention(modules) as weights, record_heads(sources) as heads:
        analyzed.model(**inputs)
    length = inputs["src_tokens"].shape[1]
    for number in range(2):
        assert_close(weights[number], torch.full((1, 2, length, length), 1 / length), atol=1e-6)
        assert_close(split_heads(heads[number], 2), weights[number] @ values[number], atol=1e-6)


def test_a_model_with_it_is_analysed(shop):
    analyzed = load(shop, EqualAttention)
    found = analyze(analyzed, ["attention"], 12, 3)
    rows = [row for row in found.rows["heads"] if row.side == "encoder"]
    assert [(row.layer, row.head) for row in rows] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert all(row.normalized_entropy == pytest.approx(1, abs=1e-5) for row in rows)
    shown = [row for row in found.rows["maps"] if row.side == "encoder"]
    assert {round(row.weight, 6) for row in shown} == {round(1 / math.sqrt(len(shown) / 4), 6)}
    results, missing = combine([found], ["attention"])
    assert "attention_map_encoder" in [result.name for result in results]
    assert not missing


def test_what_does_not_say_that_it_attends_is_left_out_not_guessed(shop):
    analyzed = load(shop, QuietAttention)
    assert find_attention(analyzed.model.encoder) == []
    assert find_head_sources(analyzed.model.encoder) == []
    found = analyze(analyzed, ["attention"], 3, 3)
    assert {row.side for row in found.rows["heads"]} == {"decoder", "cross"}


def test_an_unknown_side_is_refused(shop):
    analyzed = load(shop, EqualAttention)
    analyzed.model.encoder.layers[1].branches["self_attention"].attends_to = "sideways"
    with pytest.raises(ValueError, match=r"must be one of self, cross, forward, backward, but EqualAttention has 'sid"):
        find_sites(analyzed.model)
