"""Sentences of many clients are translated together, each once, and nothing that was taken is lost."""

import threading
import time

import pytest
from support.http import TIMEOUT

from muse_plugin.serve.batcher import Batcher, QueueFullError


class Slow:
    """Translates when it is allowed to."""

    def __init__(self):
        self.begun, self.may_go, self.batches = threading.Event(), threading.Event(), []

    def __call__(self, sentences):
        self.begun.set()
        assert self.may_go.wait(TIMEOUT)
        self.batches.append(sentences)
        if "bad" in sentences:
            raise ZeroDivisionError
        return [sentence.upper() for sentence in sentences]


@pytest.fixture
def slow():
    return Slow()


@pytest.fixture
def batcher(slow):
    made = Batcher(slow, most_at_once=4, most_waiting=6)
    yield made
    slow.may_go.set()
    made.close()


def begin(batcher, slow):
    """Lets the first batch begin."""
    futures = batcher.submit(["first"])
    assert slow.begun.wait(TIMEOUT)
    return futures


def results(futures):
    return [future.result(TIMEOUT) for future in futures]


def test_what_waits_is_translated_together_in_the_order_in_which_it_came(batcher, slow):
    futures = begin(batcher, slow)
    for sentences in (["a", "b"], ["c"], ["d", "e"]):
        futures += batcher.submit(sentences)
    slow.may_go.set()
    assert results(futures) == ["FIRST", "A", "B", "C", "D", "E"]
    assert slow.batches == [["first"], ["a", "b", "c", "d"], ["e"]]


def test_sentences_that_come_within_a_moment_make_one_batch(slow):
    slow.may_go.set()
    batcher = Batcher(slow, most_at_once=64, most_waiting=64)
    futures = [batcher.submit([str(i)])[0] for i in range(20)]
    assert results(futures) == [str(i) for i in range(20)]
    assert len(slow.batches) <= 2
    batcher.close()


def test_too_many_are_refused_all_together(batcher, slow):
    futures = begin(batcher, slow)
    futures += batcher.submit(list("abcde"))
    with pytest.raises(QueueFullError):
        batcher.submit(list("xy"))
    assert len(batcher) == 5
    futures += batcher.submit("z")
    slow.may_go.set()
    assert results(futures) == ["FIRST", *"ABCDEZ"]


def test_what_is_cancelled_while_it_waits_is_not_translated(batcher, slow):
    (first,) = begin(batcher, slow)
    futures = batcher.submit(list("abc"))
    assert futures[1].cancel()
    assert not first.cancel()
    slow.may_go.set()
    assert results([first, futures[0], futures[2]]) == ["FIRST", "A", "C"]
    assert slow.batches == [["first"], ["a", "c"]]


def test_a_sentence_that_fails_spoils_no_other(batcher, slow):
    futures = begin(batcher, slow) + batcher.submit(["a", "bad", "b"])
    slow.may_go.set()
    assert results([futures[0], futures[1], futures[3]]) == ["FIRST", "A", "B"]
    with pytest.raises(ZeroDivisionError):
        futures[2].result(TIMEOUT)


def test_the_end_waits_for_what_was_taken(slow):
    batcher = Batcher(slow, most_at_once=2, most_waiting=9)
    futures = begin(batcher, slow) + batcher.submit(list("abc"))
    ending = threading.Thread(target=batcher.close)
    ending.start()
    time.sleep(0.01)
    with pytest.raises(QueueFullError):
        batcher.submit("z")
    slow.may_go.set()
    ending.join(TIMEOUT)
    assert [future.result(0) for future in futures] == ["FIRST", *"ABC"]
