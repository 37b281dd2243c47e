"""What stands in for fairseq's extensions: equal to slow, obvious loops, and to the compiled code if it is there."""

import functools
import importlib
import math
from collections import Counter

import numpy as np
import pytest
import torch
from fairseq.scoring import bleu
from hypothesis import given, settings
from hypothesis import strategies as st

from muse_plugin.fairseq_repairs import missing_extensions
from muse_plugin.fairseq_stand_ins.data import data_utils_fast, token_block_utils_fast

LIMITS = {"max_sentences": st.sampled_from([-1, 1, 2, 3, 8, 20]), "multiple": st.sampled_from([1, 2, 3, 8])}


@functools.cache
def load_compiled(name):
    """The compiled extension; None where fairseq was installed without it."""
    return importlib.import_module(f"fairseq.{name}") if missing_extensions.is_compiled(name) else None


# ---- batches ---------------------------------------------------------------------------------------------------------


def fits(sizes, max_tokens, max_sentences):
    is_short = max_tokens < 1 or max(sizes) * len(sizes) <= max_tokens
    return is_short and (max_sentences < 1 or len(sizes) <= max_sentences)


def batch_slowly(sizes, max_tokens, max_sentences, multiple):
    """Sentence by sentence: a batch and what is over beyond its last whole multiple; sizes of the batches."""
    batches, batch, over = [], [], []
    for size in sizes:
        over.append(size)
        if not fits(batch + over, max_tokens, max_sentences):
            batches.append(batch)
            batch = []
            if not fits(over, max_tokens, 0):
                batches.append(over[:-1])
                over = [size]
            batch, over = over, []
        elif len(batch + over) < multiple or len(batch + over) % multiple == 0:
            batch, over = batch + over, []
    return [len(part) for part in (*batches, batch, over) if part]


@settings(deadline=None, max_examples=400)
@given(sizes=st.lists(st.integers(0, 30), max_size=60), room=st.sampled_from([0, 1, 2, 5, 20]), ordered=..., **LIMITS)
def test_batches_are_those_of_the_rule_and_of_the_compiled_code(sizes, room, ordered: bool, max_sentences, multiple):
    sizes = sorted(sizes) if ordered else sizes
    max_tokens = max([1, *sizes]) * room or -1
    indices, lengths = np.arange(len(sizes))[::-1], np.array(sizes, dtype=np.int64)
    given = (max_tokens, max_sentences, multiple)
    batches = data_utils_fast.batch_by_size_vec(indices, lengths, *given)
    assert [len(batch) for batch in batches] == batch_slowly(sizes, *given)
    assert [index for batch in batches for index in batch] == indices.tolist()
    by_function = data_utils_fast.batch_by_size_fn(indices, lambda index: sizes[len(sizes) - 1 - index], *given)
    assert list(map(list, by_function)) == list(map(list, batches))
    compiled = load_compiled("data.data_utils_fast")
    if compiled is not None:
        expected = compiled.batch_by_size_vec(indices, lengths, *given)
        assert list(map(list, batches)) == list(map(list, expected))


def test_a_sentence_longer_than_a_batch_is_refused():
    with pytest.raises(AssertionError, match="a sentence has 7 tokens, but max_tokens is 5"):
        data_utils_fast.batch_by_size_vec(np.arange(2), np.array([3, 7]), 5, -1, 1)


@settings(deadline=None, max_examples=200)
@given(
    sizes=st.lists(st.integers(1, 9), max_size=30),
    shapes=st.lists(st.tuples(st.integers(1, 6), st.integers(3, 9)), min_size=1, max_size=4),
)
def test_batches_of_fixed_shapes_fit_into_a_shape_and_are_those_of_the_compiled_code(sizes, shapes):
    shapes = np.array(sorted([*shapes, (1, 9)]), dtype=np.int64)
    indices = np.arange(len(sizes))
    batches = data_utils_fast.batch_fixed_shapes_fast(indices, lambda index: sizes[index], shapes)
    assert [index for batch in batches for index in batch] == indices.tolist()
    for batch in batches:
        # What opens a batch after another is not measured, as in the compiled code.
        longest = max([0, *(sizes[index] for index in batch if index != batch[0] or index == 0)])
        assert any(len(batch) <= rows and longest <= columns for rows, columns in shapes)
    compiled = load_compiled("data.data_utils_fast")
    if compiled is not None:
        assert batches == compiled.batch_fixed_shapes_fast(indices, lambda index: sizes[index], shapes)


# ---- blocks ----------------------------------------------------------------------------------------------------------


def cut_slowly(sizes, mode, block_size, separator):
    """Sentence by sentence: (first token, one after the last) of each block."""
    if mode == "none":
        return [(start, min(start + block_size, sum(sizes))) for start in range(0, sum(sizes), block_size)]
    blocks, block, place = [], 0, 0  # tokens of the open block, tokens before it

    def close():
        nonlocal block, place
        if block > (mode == "complete_doc"):
            blocks.append((place, place + block))
        block, place = 0, place + block

    for size in sizes:
        if mode == "complete_doc" and size == separator:
            close()
            place += size
            continue
        if block and block + size > block_size:
            close()
        block += size
        if mode == "eos":
            blocks.append((place, place + size))
            block, place = 0, place + size
    close()
    return blocks


@settings(deadline=None, max_examples=400)
@given(
    sizes=st.lists(st.integers(0, 8), min_size=1, max_size=20),
    mode=st.sampled_from(["none", "complete", "complete_doc", "eos"]),
    block_size=st.integers(1, 15),
    separator=st.integers(0, 2),
)
def test_blocks_are_those_of_the_rule_and_of_the_compiled_code(sizes, mode, block_size, separator):
    lengths = np.array(sizes, dtype=np.int64)
    blocks = token_block_utils_fast._get_slice_indices_fast(lengths, mode, block_size, separator)
    expected = cut_slowly(sizes, mode, block_size, separator)
    assert list(map(tuple, blocks)) == expected
    assert blocks.shape == (len(expected), 2)
    places = token_block_utils_fast._get_block_to_dataset_index_fast(lengths, blocks)
    tokens = [(sentence, place) for sentence, size in enumerate(sizes) for place in range(size)]
    for (start, end), (first, offset, last) in zip(blocks, places, strict=True):
        # A block may begin with empty sentences before that of its first token.
        assert sum(sizes[:first]) + offset == start
        if end > start:
            assert all(size == 0 for size in sizes[first : tokens[start][0]])
            assert last == tokens[end - 1][0] or sum(sizes[:last]) == end - 1
    compiled = load_compiled("data.token_block_utils_fast")
    if compiled is not None and len(expected) > 0:
        assert np.array_equal(compiled._get_slice_indices_fast(lengths, mode, block_size, separator), blocks)
        assert np.array_equal(compiled._get_block_to_dataset_index_fast(lengths, blocks), places)


def test_an_unknown_way_to_cut_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="break_mode must be none, complete, complete_doc or eos, but got 'line'"):
        token_block_utils_fast._get_slice_indices_fast(np.array([3]), "line", 5, 1)


# ---- BLEU ------------------------------------------------------------------------------------------------------------

PAD, EOS, UNK = 1, 2, 3


class CountingScorer(bleu.Scorer):
    """fairseq's scorer with counts by Python, whatever is installed."""

    __init__, reset, add = missing_extensions._begin, missing_extensions._reset, missing_extensions._add


def count_slowly(pairs, one_init):
    """The ten numbers that fairseq keeps, from (reference, translation) without padding and ends."""
    numbers = Counter({f"{kind}{n}": int(one_init) for kind in ("match", "count") for n in (2, 3, 4)})
    for reference, translation in pairs:
        numbers["reflen"] += len(reference)
        numbers["predlen"] += len(translation)
        for n in range(1, 5):
            free = [tuple(reference[i : i + n]) for i in range(len(reference) - n + 1)]
            for i in range(len(translation) - n + 1):
                numbers[f"count{n}"] += 1
                ngram = tuple(translation[i : i + n])
                if UNK not in ngram and ngram in free:
                    free.remove(ngram)
                    numbers[f"match{n}"] += 1
    return numbers


WORDS = st.lists(st.integers(3, 7), min_size=1, max_size=12)


@settings(deadline=None, max_examples=200)
@given(pairs=st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=4), one_init=...)
def test_bleu_counts_ngrams_as_the_compiled_code_does(pairs, one_init: bool):
    config = bleu.BleuConfig(pad=PAD, eos=EOS, unk=UNK)
    scorers = [CountingScorer(config)]
    if load_compiled("libbleu") is not None:
        scorers.append(bleu.Scorer(config))
    for scorer in scorers:
        scorer.reset(one_init=one_init)
        for reference, translation in pairs:
            scorer.add(torch.IntTensor([PAD, *reference, EOS]), torch.IntTensor([*translation, EOS, PAD]))
        expected = count_slowly(pairs, one_init)
        assert {name: getattr(scorer.stat, name) for name, _ in scorer.stat._fields_} == {
            name: expected[name] for name, _ in scorer.stat._fields_
        }


def test_bleu_of_a_known_pair_and_of_wrong_types():
    scorer = CountingScorer(bleu.BleuConfig(pad=PAD, eos=EOS, unk=UNK))
    scorer.add(torch.IntTensor([4, 5, 6, 7, 8, EOS]), torch.IntTensor([4, 5, 6, 7, 9, EOS]))
    expected = 100 * math.exp((math.log(4 / 5) + math.log(3 / 4) + math.log(2 / 3) + math.log(1 / 2)) / 4)
    assert scorer.score() == pytest.approx(expected)
    assert scorer.result_string().startswith(f"BLEU4 = {expected:.2f}, 80.0/75.0/66.7/50.0 (BP=1.000, ratio=1.000")
    with pytest.raises(TypeError, match=r"pred must be a torch\.IntTensor, but got Tensor"):
        scorer.add(torch.IntTensor([4]), torch.LongTensor([4]))
