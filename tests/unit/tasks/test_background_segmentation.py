"""Epochs segmented in the background: what they hold, and what becomes of the processes."""

import gc
import io
import itertools
import multiprocessing
import os
import pickle
import signal
import tempfile
import time

import numpy as np
import pytest
from fairseq.data import Dictionary
from subword_nmt.apply_bpe import BPE
from support.bpe_dropout_data import learn_codes, read_pairs

from muse_plugin.tasks.bpe_dropout import background
from muse_plugin.tasks.bpe_dropout.background import BackgroundSegmenter, EpochSegmentation, Side
from muse_plugin.tasks.bpe_dropout.training_text import read_text
from muse_plugin.tasks.bpe_dropout.word_segmentation import LineSegmenter

PAIRS = read_pairs()[:120]


@pytest.fixture
def corpus(tmp_path):
    """Codes, and the two texts as they were written."""
    codes = learn_codes([text for pair in PAIRS for text in pair], 200)
    for column, lang in enumerate(("de", "en")):
        (tmp_path / f"text.{lang}").write_text("".join(pair[column] + "\n" for pair in PAIRS), encoding="utf-8")
    return tmp_path, codes


def make_sides(corpus, num_shares=1, dropout=0.2, extra_symbols=0):
    folder, codes = corpus
    bpe, dictionary = BPE(io.StringIO(codes)), Dictionary()
    for pair in PAIRS:
        for piece in " ".join(map(bpe.process_line, pair)).split():
            dictionary.add_symbol(piece)
    for number in range(extra_symbols):
        dictionary.add_symbol(f"extra{number}")
    return tuple(
        Side(name, read_text(folder / f"text.{lang}", num_shares), codes, dictionary.indices, 3, 2, dropout)
        for name, lang in (("source", "de"), ("target", "en"))
    )


def equal(one, other):
    return all(
        np.array_equal(a.ids, b.ids) and np.array_equal(a.lengths, b.lengths) and a[2:] == b[2:]
        for a, b in zip(one, other, strict=True)
    )


def segment(corpus, epoch=1, seed=1, **settings):
    return EpochSegmentation(make_sides(corpus, **settings), seed, epoch).wait()


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_result_is_that_of_the_lines_one_by_one(corpus):
    sides = make_sides(corpus, num_shares=3)
    texts = EpochSegmentation(sides, seed=4, epoch=2).wait()
    for column, (side, text) in enumerate(zip(sides, texts, strict=True)):
        line_segmenter = LineSegmenter(side.codes, side.indices, 3, 2, side.dropout)
        expected = [line_segmenter(pair[column], f"4 2 {side.name} {n}") for n, pair in enumerate(PAIRS)]
        assert text.lengths.tolist() == [len(line) for line in expected]
        assert text.ids.tolist() == [*itertools.chain.from_iterable(expected)]
        assert (text.ids.dtype, text.lengths.dtype) == (np.uint16, np.int32)


def test_the_number_of_processes_changes_nothing(corpus):
    one = segment(corpus, num_shares=1)
    assert all(equal(one, segment(corpus, num_shares=n)) for n in (2, 5))


def test_epochs_seeds_and_sides_differ(corpus):
    folder, _ = corpus
    (folder / "text.en").write_bytes((folder / "text.de").read_bytes())
    first, second = segment(corpus, epoch=1), segment(corpus, epoch=2)
    assert not equal(first, second)
    assert not equal(first, segment(corpus, epoch=1, seed=2))
    assert not np.array_equal(first[0].ids, first[1].ids)


def test_more_than_65536_symbols_take_four_bytes(corpus):
    small, large = segment(corpus), segment(corpus, extra_symbols=70_000)
    assert (small[0].ids.dtype, large[0].ids.dtype) == (np.uint16, np.int32)
    assert equal(small, large)


def test_lines_are_written_in_pieces(corpus, monkeypatch):
    program = background.PROGRAM.read_text(encoding="utf-8")
    assert "_LINES_PER_WRITE = 1000" in program
    copy = corpus[0] / "copy.py"
    copy.write_text(program.replace("_LINES_PER_WRITE = 1000", "_LINES_PER_WRITE = 7"), encoding="utf-8")
    whole = segment(corpus)
    monkeypatch.setattr(background, "PROGRAM", copy)
    assert equal(whole, segment(corpus))


def test_the_next_epoch_is_made_meanwhile_and_any_epoch_can_be_had(corpus, caplog):
    caplog.set_level("INFO")
    segmenter = BackgroundSegmenter(make_sides(corpus), seed=1)
    first = segmenter.take(1)
    assert segmenter.running.epoch == 2
    assert "could not be made ahead" in caplog.text
    assert "epoch 1, source: BPE-dropout 0.2, 1" in caplog.text
    assert "0.000% unknown" in caplog.text
    caplog.clear()
    second = segmenter.take(2)
    assert "epoch 2: waited" in caplog.text
    assert "ahead" not in caplog.text
    ended = segmenter.running.process_ids
    again = segmenter.take(1)  # not what was made ahead
    assert not any(map(is_alive, ended))
    assert equal(first, again)
    assert not equal(first, second)
    assert equal(second, BackgroundSegmenter(make_sides(corpus), seed=1).take(2))


def make_long(corpus):
    """Half a minute of work."""
    for lang in ("de", "en"):
        path = corpus[0] / f"text.{lang}"
        path.write_bytes(path.read_bytes() * 3000)


def test_no_process_and_no_file_is_left(corpus, tmp_path, monkeypatch):
    make_long(corpus)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    segmenter = BackgroundSegmenter(make_sides(corpus, num_shares=2), seed=1)
    segmenter.running = EpochSegmentation(segmenter.sides, seed=1, epoch=2)
    pids = segmenter.running.process_ids
    assert len(pids) == 2
    assert all(map(is_alive, pids))
    assert not list(scratch.iterdir())
    started = time.monotonic()
    del segmenter
    gc.collect()
    assert not any(map(is_alive, pids))
    assert time.monotonic() - started < 5


def test_a_process_stops_when_the_training_is_gone(corpus):
    make_long(corpus)
    receive, send = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=start_and_wait, args=(make_sides(corpus), send))
    child.start()
    pid = receive.recv()
    assert is_alive(pid)
    child.kill()  # as the kernel does when memory is short: nothing can be tidied up
    child.join()
    assert wait_for(lambda: not is_alive(pid) or is_zombie(pid))


def is_zombie(pid):  # nobody may be there to ask for its exit code
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "Z"


def start_and_wait(sides, send):
    segmentation = EpochSegmentation(sides, seed=1, epoch=1)
    send.send(segmentation.process_ids[0])
    time.sleep(60)


def use_in_a_fork(segmenter):
    segmenter.running.stop()
    del segmenter
    gc.collect()


def test_a_fork_such_as_a_loader_process_does_not_end_the_processes(corpus):
    segmenter = BackgroundSegmenter(make_sides(corpus), seed=1)
    segmenter.take(1)
    child = multiprocessing.get_context("fork").Process(target=use_in_a_fork, args=(segmenter,))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert equal(segmenter.take(2), segment(corpus, epoch=2))


def test_a_copy_for_another_process_has_no_processes_but_works(corpus):
    segmenter = BackgroundSegmenter(make_sides(corpus), seed=1)
    segmenter.take(1)
    copy = pickle.loads(pickle.dumps(segmenter))
    assert copy.running is None
    assert equal(copy.take(2), segmenter.take(2))


def test_a_killed_process_is_reported(corpus):
    segmentation = EpochSegmentation(make_sides(corpus, num_shares=2), seed=1, epoch=3)
    pids = segmentation.process_ids
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"for epoch 3 failed: a process ended with signal 9 and said ''; check mem"):
        segmentation.wait()
    assert not any(map(is_alive, pids))


def test_a_failing_process_is_reported_with_its_last_words(corpus, monkeypatch):
    program = corpus[0] / "broken.py"
    program.write_text("raise SystemExit('words one\\nno space left')")
    monkeypatch.setattr(background, "PROGRAM", program)
    with pytest.raises(RuntimeError, match=r"ended with exit code 1 and said 'no space left'"):
        segment(corpus)


def test_a_text_cut_short_unnoticed_is_reported_by_the_process(corpus):
    sides = make_sides(corpus)
    path = sides[1].text.path
    path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:-5]), encoding="utf-8")
    with pytest.raises(RuntimeError, match=r"text\.en must stay as it is while training runs"):
        EpochSegmentation(sides, seed=1, epoch=1)
    object.__setattr__(sides[1].text, "size", path.stat().st_size)
    object.__setattr__(sides[1].text, "changed", path.stat().st_mtime_ns)
    with pytest.raises(RuntimeError, match=r"said 'ValueError: \S+text\.en ends before line 116'"):
        EpochSegmentation(sides, seed=1, epoch=1).wait()


def test_a_result_cut_short_is_refused(corpus, monkeypatch):
    program = background.PROGRAM.read_text(encoding="utf-8")
    copy = corpus[0] / "copy.py"
    copy.write_text(program.replace("    lengths.tofile(output)\n", "    lengths[5:].tofile(output)\n"))
    monkeypatch.setattr(background, "PROGRAM", copy)
    with pytest.raises(RuntimeError, match=r"must write \d+ bytes, but wrote \d+; check the space"):
        segment(corpus)
