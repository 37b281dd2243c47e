"""Batches of sentences of similar length."""

from hypothesis import given
from hypothesis import strategies as st

from muse_plugin.inference.length_batches import make_batches


@given(
    st.lists(st.integers(0, 30)), st.one_of(st.none(), st.integers(1, 100)), st.one_of(st.none(), st.integers(1, 10))
)
def test_every_sentence_is_in_one_batch_within_the_limits(lengths, max_tokens, max_sentences):
    numbered = dict(enumerate(lengths))
    batches = make_batches(numbered, max_tokens, max_sentences)
    assert [number for batch in batches for number in batch] == sorted(numbered, key=lambda n: (lengths[n], n))
    for i, batch in enumerate(batches):
        assert batch
        longest = lengths[batch[-1]]
        assert max_sentences is None or len(batch) <= max_sentences
        assert max_tokens is None or len(batch) == 1 or longest * len(batch) <= max_tokens
        if i:  # the batch before could not have taken this one's first
            before, first = batches[i - 1], lengths[batch[0]]
            too_many = max_sentences is not None and len(before) == max_sentences
            assert too_many or (max_tokens is not None and first * (len(before) + 1) > max_tokens)


def test_no_sentences_make_no_batches_and_one_too_long_is_alone():
    assert make_batches({}, 10, 2) == []
    assert make_batches({"a": 50, "b": 3, "c": 3, "d": 3}, 10, 2) == [["b", "c"], ["d"], ["a"]]
