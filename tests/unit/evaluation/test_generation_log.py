import re

import pytest

from muse_plugin.evaluation.generation_log import check_complete, read_generation_log


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_lines_come_back_in_the_order_of_the_test_set(write_log):
    hypotheses = [f"h {i}" for i in range(12)]
    references = [f"t {i}" for i in range(12)]
    log = read_generation_log(write_log("log", hypotheses, references, [f"s {i}" for i in range(12)]))
    assert log.in_order("H") == log.in_order("D") == hypotheses
    assert log.in_order("T") == references
    assert log.in_order("S") == [f"s {i}" for i in range(12)]
    assert log.is_closed
    assert check_complete(log, None) == check_complete(log, 12) == 12


def test_log_of_old_fairseq_has_no_detokenised_lines(write_log):
    log = read_generation_log(
        write_log("log", ["a"], ["b"], closing="| Generate test with beam=5: BLEU4 = 1", old=True)
    )
    assert log.in_order("D") is None
    assert log.in_order("S") is None
    assert log.is_closed


def test_empty_texts_count_even_without_their_tab(tmp_path):
    log = read_generation_log(write(tmp_path / "log", "S-0\t\nT-0\t\nH-0\t-1.0\t\nS-1\nT-1\nH-1\t-1.0\n"))
    assert log.lines == {"S": {0: "", 1: ""}, "T": {0: "", 1: ""}, "H": {0: "", 1: ""}}


def test_text_may_hold_tabs_and_marks(tmp_path):
    log = read_generation_log(write(tmp_path / "log", "T-0\tH-1\tx\nH-0\t-1.0\ta\tb\n"))
    assert log.lines["T"] == {0: "H-1\tx"}
    assert log.lines["H"] == {0: "a\tb"}


def test_missing_sentences_are_named_with_their_count(write_log, tmp_path):
    path = write_log("log", [str(i) for i in range(30)], ["t"] * 30)
    kept = [line for line in path.read_text().splitlines() if not re.match(r"[THDP]-(3|4|5|6|7|8|9)\t", line)]
    log = read_generation_log(write(path, "\n".join(kept)))
    with pytest.raises(
        ValueError, match=r"the 30 sentences 0 to 29, but .* lacks 7 of them \(ids 3, 4, 5, 6, 7, \.\.\.\)"
    ):
        check_complete(log, None)


def test_one_wild_id_does_not_take_the_memory_of_all_below_it(write_log):
    log = read_generation_log(write_log("log", ["a"], ["t"]))
    log.lines["H"][10**12] = "b"
    with pytest.raises(ValueError, match=r"lacks 999999999999 of them \(ids 1, 2, 3, 4, 5, \.\.\.\)"):
        check_complete(log, None)


def test_sentences_missing_at_the_end_need_their_number(write_log):
    log = read_generation_log(write_log("log", ["a", "b"], ["t", "t"]))
    assert check_complete(log, None) == 2
    with pytest.raises(ValueError, match=r"the 4 sentences 0 to 3, but .* lacks 2 of them \(ids 2, 3\); generate"):
        check_complete(log, 4)
    with pytest.raises(ValueError, match=r"the 1 sentences 0 to 0, but .* has 1 more \(ids 1\); give the references"):
        check_complete(log, 1)


def test_cut_log_says_that_its_end_is_missing(write_log):
    path = write_log("log", [str(i) for i in range(9)], ["t"] * 9, closing=None)
    log = read_generation_log(path)
    assert not log.is_closed
    with pytest.raises(ValueError, match=r"closing line 'Generate \.\.\. with beam=\.\.\.' is missing too"):
        check_complete(log, 10)


@pytest.mark.parametrize(("kept", "missing"), [(1, "[HDP]"), (2, "[DP]"), (3, "P")])
def test_sentence_that_was_cut_within_is_found(write_log, kept, missing):
    path = write_log("log", ["a", "b"], ["t", "t"], closing=None)
    lines = path.read_text().splitlines()
    write(path, "\n".join(lines[: -4 + kept]))
    with pytest.raises(
        ValueError, match=rf"no {missing}- line for 1 of 2 sentences \(ids [01]\).*not written to its end"
    ):
        read_generation_log(path)


def test_two_hypotheses_for_one_sentence_are_refused(tmp_path):
    text = "T-7\tx\nH-7\t-1.0\tone\nH-7\t-2.0\ttwo\n"
    with pytest.raises(ValueError, match="two different ones for sentence 7: 'one' and 'two'; generate with --nbest 1"):
        read_generation_log(write(tmp_path / "log", text))
    same = read_generation_log(write(tmp_path / "log", text.replace("two", "one")))
    assert same.lines["H"] == {7: "one"}


def test_file_without_hypotheses_is_refused(tmp_path):
    with pytest.raises(ValueError, match="has no H- lines"):
        read_generation_log(write(tmp_path / "log", "a plain sentence\nT-0\tx\n"))
