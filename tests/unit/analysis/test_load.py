"""One pass over batches: what is added up does not depend on how sentences are put together, nor on padding."""

import pytest
import torch
from support import muse_models, sentence_models
from support.helpers import assert_close

from muse_plugin.analysis.attention_sites import find_sites
from muse_plugin.analysis.convolutions import find_kernel_sites
from muse_plugin.analysis.directions import DirectionObserver, find_directions
from muse_plugin.analysis.load import AttentionObserver, KernelObserver, MapObserver, read_corpus

ATOL = 2e-5  # float32, other sizes of batches


def pair_batch(sources, targets, left=True, longer=0):
    source = muse_models.make_batch(sources, left, longer)
    return {
        "src_tokens": source,
        "src_lengths": muse_models.lengths_of(source),
        "prev_output_tokens": muse_models.make_batch(targets, longer=longer),
    }


def observe(model, batches):
    attention, kernel = AttentionObserver(find_sites(model)), KernelObserver(find_kernel_sites(model))
    read_corpus(model, batches, [attention, kernel], muse_models.PAD)
    return attention, kernel


def assert_same(first, second):
    for one, other in zip(first[0].statistics, second[0].statistics, strict=True):
        whole, same = one.overall(), other.overall()
        assert whole.sentences == same.sentences
        for name in ("entropy", "normalized_entropy", "largest"):
            assert_close(getattr(whole, name), getattr(same, name), atol=ATOL, why=name)
        assert [part[:3] for part in one.by_length()] == [part[:3] for part in other.by_length()]
        if one.offsets is not None:
            assert_close(one.offsets.mean_distance(), other.offsets.mean_distance(), atol=ATOL)
            assert_close(one.offsets.shares(), other.offsets.shares(), atol=ATOL)
    for one, other in zip(first[1].means, second[1].means, strict=True):
        assert one.words == other.words
        for kernel, same in zip(one.means(), other.means(), strict=True):
            assert_close(kernel, same, atol=ATOL)


@pytest.mark.parametrize("variant", ["muse", "multi_scale", "everything_limited", "fairseq"])
def test_padding_of_translations_never_counts(variant):
    model = muse_models.build("transformer").eval() if variant == "fairseq" else muse_models.built(variant)
    sources, targets, *_ = muse_models.make_pair()
    alone = [pair_batch([source], [target]) for source, target in zip(sources, targets, strict=True)]
    first = observe(model, alone)
    assert all(statistics.overall().sentences == 3 for statistics in first[0].statistics)
    words = {"encoder": sum(map(len, sources)), "decoder": sum(map(len, targets))}
    for site, statistics in zip(first[0].sites, first[0].statistics, strict=True):
        if site.side in words:
            assert statistics.offsets.queries.tolist() == [words[site.side]] * site.heads
    assert_same(first, observe(model, [pair_batch(sources, targets)]))
    assert_same(first, observe(model, [pair_batch(sources, targets, left=False, longer=2)]))


@pytest.mark.parametrize(
    "variant", ["multi_scale_transformer", "sentence_muse", "transformer_with_windows", "distance_attention_network"]
)
def test_padding_of_sentences_never_counts(variant):
    model = sentence_models.built(variant)
    sentences = sentence_models.make_sentences(6, 1, 4)
    alone = [sentence_models.make_input([sentence]) for sentence in sentences]
    together = [sentence_models.make_input(sentences, longer=2)]
    first, second = observe(model, alone), observe(model, together)
    extra = 3 if model.cls is not None else 0  # a classification token is in each
    assert max(first[0].statistics[0].offsets.queries.tolist()) == 11 + extra - (3 if variant.startswith("dist") else 0)
    assert_same(first, second)
    sites = find_directions(model)
    assert len(sites) == (2 if variant.startswith("dist") else 0)
    directions = DirectionObserver(sites), DirectionObserver(sites)
    for observer, batches in zip(directions, (alone, together), strict=True):
        read_corpus(model, batches, [observer], sentence_models.PAD)
    for key, sums in directions[0].sums.items():
        assert_close(sums.mean_weights(), directions[1].sums[key].mean_weights(), atol=ATOL)


def test_maps_are_those_of_the_first_text_of_a_pair():
    model = sentence_models.build("sentence_transformer", sentence_models.make_task(pairs=True), pooling="max").eval()
    first, second = sentence_models.make_sentences(4, 6)
    inputs = {**sentence_models.make_input([first]), **sentence_models.make_input([second], prefix="pair")}
    observers = [MapObserver(find_sites(model)) for _ in range(2)]
    read_corpus(model, [inputs], observers[:1], sentence_models.PAD)
    with torch.no_grad(), observers[1].watch():
        model.represent(**sentence_models.make_input([first]))
    for number in (0, 1):
        assert observers[0].maps[number].shape == (4, 4, 4)
        assert_close(observers[0].maps[number], observers[1].maps[number], atol=1e-6)


def test_reading_leaves_nothing_in_the_model_and_needs_no_gradients():
    model = muse_models.build("muse")
    sources, targets, *_ = muse_models.make_pair()
    observe(model, [pair_batch(sources, targets)])
    assert not model.training
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
