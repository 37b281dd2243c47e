import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muse_plugin.evaluation.bleu import format_bleu, make_tokenized_bleu, protect_spaces, split_compounds

# Few words, so that n-grams repeat; white space that Python and Perl see differently; case; a hyphen.
WORDS = ["a", "b", "c", "B", "Ä", "a\u00a0b", "a\u2003", "x\x85y", "u-v", "&amp;"]
SEPARATORS = [" ", "  ", "\t", " \x0b", "\r", "\x0c"]
LINES = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(SEPARATORS)), max_size=9).map(
    lambda parts: "".join(word + separator for word, separator in parts)
)
PAIRS = st.lists(st.tuples(LINES, LINES), min_size=1, max_size=6)


def score(hypotheses, references, lowercase=False):
    metric = make_tokenized_bleu(protect_spaces(references), lowercase)
    statistics = metric._extract_corpus_statistics(protect_spaces(hypotheses), None)
    return metric._aggregate_and_compute(statistics)


@settings(max_examples=100, deadline=None)
@given(pairs=PAIRS)
def test_line_is_that_of_multi_bleu_on_random_text(slow_multi_bleu, pairs):
    hypotheses, references = map(list, zip(*pairs, strict=True))
    assert format_bleu(score(hypotheses, references)) == slow_multi_bleu(hypotheses, references)


@settings(max_examples=50, deadline=None)
@given(pairs=PAIRS)
def test_lowercase_is_the_score_of_lower_cased_text(slow_multi_bleu, pairs):
    hypotheses, references = map(list, zip(*pairs, strict=True))
    lowered = slow_multi_bleu([line.lower() for line in hypotheses], [line.lower() for line in references])
    assert format_bleu(score(hypotheses, references, lowercase=True)) == lowered


def test_a_hand_computed_score():
    # Matches: 5 of 6 words, 3 of 5 pairs, 2 of 4 triples, 1 of 3 quadruples. In the second, a word counts once only.
    bleu = score(["the cat sat on a mat"], ["the cat sat on the mat"])
    assert format_bleu(bleu) == "BLEU = 53.73, 83.3/60.0/50.0/33.3 (BP=1.000, ratio=1.000, hyp_len=6, ref_len=6)"
    assert score(["the the the the"], ["the cat"]).precisions[0] == 25.0


def test_zero_precision_gives_zero_without_smoothing():
    bleu = score(["a b c x e f g"], ["a b c d e f g"])
    assert bleu.precisions[3] == 0.0
    assert bleu.score == 0.0
    assert format_bleu(bleu).startswith("BLEU = 0.00, 85.7/66.7/40.0/0.0 ")


@pytest.mark.parametrize(
    ("hypotheses", "references"),
    [
        ([""], ["a b c d"]),
        (["", "a b c d"], ["x", "a b c d"]),
        (["", ""], ["", ""]),
        (["a"], [""]),
        (["a b c"], ["a b c"]),  # no 4-gram at all
    ],
)
def test_empty_and_short_lines(slow_multi_bleu, hypotheses, references):
    assert format_bleu(score(hypotheses, references)) == slow_multi_bleu(hypotheses, references)


def test_no_words_at_all_are_a_score_of_zero():
    bleu = score(["", ""], ["a", "b c"])
    assert format_bleu(bleu) == "BLEU = 0.00, 0.0/0.0/0.0/0.0 (BP=0.000, ratio=0.000, hyp_len=0, ref_len=3)"


def test_every_space_outside_ascii_is_protected():
    spaces = [chr(i) for i in range(sys.maxunicode + 1) if chr(i).isspace() and chr(i) not in " \t\n\r\f\v"]
    assert len(spaces) > 20
    for space in spaces:
        (line,) = protect_spaces([f"a{space}b c{space}"])
        assert len(line.split()) == 2, ascii(space)
        assert len(line) == 6
    assert len(set(protect_spaces(spaces))) == len(spaces)


def split_by_hand(line):
    """The regular expression as a loop over characters."""
    result, i = "", 0
    while i < len(line):
        inner = line[i : i + 3]
        if len(inner) == 3 and inner[1] == "-" and not set(inner[::2]) & set(" \t\r\f\v"):
            result += f"{inner[0]} ##AT##-##AT## {inner[2]}"
            i += 3
        else:
            result += line[i]
            i += 1
    return result


@settings(max_examples=200, deadline=None)
@given(line=st.text(alphabet="a-b \tÄ\u00a0", max_size=12))
def test_compounds_are_split_from_left_to_right(line):
    assert split_compounds([line]) == [split_by_hand(line)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rich-text format", "rich ##AT##-##AT## text format"),
        ("a-b-c", "a ##AT##-##AT## b-c"),
        ("aa-bb-cc", "aa ##AT##-##AT## bb ##AT##-##AT## cc"),
        ("x--y", "x ##AT##-##AT## -y"),
        ("- a -b c-", "- a -b c-"),
    ],
)
def test_compounds_as_perl_splits_them(line, expected):
    assert split_compounds([line]) == [expected]
