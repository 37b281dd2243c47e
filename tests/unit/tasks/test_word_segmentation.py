"""Segmentations of words and lines: the same as those of subword-nmt, with the same probabilities."""

import base64
import io
import itertools
import math
import time
from collections import Counter
from types import SimpleNamespace

import pytest
from fairseq.data import Dictionary
from hypothesis import given, settings
from hypothesis import strategies as st
from subword_nmt import apply_bpe
from support.bpe_dropout_data import learn_codes, read_pairs
from support.helpers import REPOSITORY, run_python

from muse_plugin.tasks.bpe_dropout import word_segmentation
from muse_plugin.tasks.bpe_dropout.word_segmentation import LineSegmenter, PieceMerger, PieceSampler, make_segmenter
from muse_plugin.text.byte_pair_encoding import BytePairEncoding
from muse_plugin.text.sentence_pieces import SentencePieces, learn_pieces

UNKNOWN, END = 3, 2
# "an" is a merge that can be made at several places of a word, "aa" one whose places overlap.
CODES = "#version: 0.2\na n\na a\nan an\nan a</w>\nb an\nb anan\naa a\na a</w>\n"


@pytest.fixture(scope="module")
def sentences():
    return [text for pair in read_pairs() for text in pair]


@pytest.fixture(scope="module")
def codes(sentences):
    return learn_codes(sentences, 500)


def make_dictionary(pieces):
    dictionary = Dictionary()
    for piece in pieces:
        dictionary.add_symbol(piece)
    return dictionary


def all_pieces(alphabet, codes):
    """Every symbol that a segmentation can hold."""
    symbols = [*alphabet, *(line.replace(" ", "") for line in codes.splitlines()[1:])]
    ends = [symbol.removesuffix("</w>") for symbol in symbols]
    return [*dict.fromkeys([*ends, *(symbol + "@@" for symbol in symbols if not symbol.endswith("</w>"))])]


def segmenter(codes, dictionary, dropout):
    return LineSegmenter(codes, dictionary.indices, UNKNOWN, END, dropout)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text("anb\u4eca", max_size=500) | st.sampled_from(["an</s>", "b<unk>", "</s>", "n" * 200 + "<pad>"]))
)
def test_without_dropout_words_are_cut_as_those_of_prepared_data(words):
    codes = CODES + "< /\n</ s\n</s ></w>\n< u\n<u n\n<un k\n<unk ></w>\n"
    pieces = BytePairEncoding(codes).split(filter(None, words))
    dictionary = make_dictionary(pieces)
    ids = segmenter(codes, dictionary, 0)(" ".join(words), "key")
    assert ids == [*map(dictionary.index, pieces), END]


def exact_distribution(word, codes, vocabulary, dropout, monkeypatch):
    """Probability of each segmentation by subword-nmt, whose coin tosses are all tried in turn."""
    bpe = apply_bpe.BPE(io.StringIO(codes), vocab=vocabulary)
    outcomes = Counter()
    tosses = []

    def toss():
        if len(taken) == len(tosses):
            tosses.append(0)
        taken.append(tosses[len(taken)])
        return taken[-1]

    monkeypatch.setattr(apply_bpe.random, "random", toss)
    while True:
        taken = []  # 1 keeps a pair, 0 leaves it out
        pieces = bpe.segment(word, dropout)
        outcomes[pieces] += (1 - dropout) ** sum(taken) * dropout ** (len(taken) - sum(taken))
        while tosses and tosses[-1] == 1:
            tosses.pop()
        if not tosses:
            monkeypatch.undo()
            assert sum(outcomes.values()) == pytest.approx(1)
            return outcomes
        tosses[-1] = 1


def check_frequencies(segment, dictionary, word, expected, draws=20_000):
    names = dictionary.symbols
    counts = Counter(" ".join(names[i] for i in segment(word, f"{word} {n}")[:-1]) for n in range(draws))
    assert set(counts) <= set(expected)
    for pieces, probability in expected.items():
        spread = (draws * probability * (1 - probability)) ** 0.5
        assert abs(counts[pieces] - draws * probability) <= 5 * spread + 1, (pieces, probability)


@pytest.mark.parametrize("word", ["banana", "aaaaa", "banaan", "an", "b", "nbn"])
def test_segmentations_are_as_probable_as_with_subword_nmt(word, monkeypatch):
    pieces = all_pieces("abn", CODES)
    dictionary = make_dictionary(pieces)
    expected = exact_distribution(word, CODES, set(pieces), 0.3, monkeypatch)
    check_frequencies(segmenter(CODES, dictionary, 0.3), dictionary, word, expected)


@pytest.mark.parametrize("removed", [["an@@"], ["anan@@", "ana"], ["aa@@", "an@@"]])
def test_merges_are_undone_whose_result_the_dictionary_lacks(removed, monkeypatch):
    pieces = [piece for piece in all_pieces("abn", CODES) if piece not in removed]
    dictionary = make_dictionary(pieces)
    expected = exact_distribution("banana", CODES, set(pieces), 0.3, monkeypatch)
    assert not any(piece in outcome.split() for outcome in expected for piece in removed)
    check_frequencies(segmenter(CODES, dictionary, 0.3), dictionary, "banana", expected)


def test_segmentations_with_unknown_symbols_are_drawn_again(monkeypatch):
    pieces = [piece for piece in all_pieces("abn", CODES) if piece != "n@@"]
    dictionary = make_dictionary(pieces)
    expected = exact_distribution("banana", CODES, set(pieces), 0.3, monkeypatch)
    known = {outcome: share for outcome, share in expected.items() if "n@@" not in outcome.split()}
    assert 0.1 < sum(known.values()) < 0.9
    expected = {outcome: share / sum(known.values()) for outcome, share in known.items()}
    check_frequencies(segmenter(CODES, dictionary, 0.3), dictionary, "banana", expected)


def test_a_word_without_known_random_segmentation_is_segmented_plainly():
    plain = apply_bpe.BPE(io.StringIO(CODES)).segment("banana").split()
    dictionary = make_dictionary(plain)
    segment = segmenter(CODES, dictionary, 0.9)
    expected = [*map(dictionary.index, plain), END]
    assert UNKNOWN not in expected
    assert all(segment("banana", str(n)) == expected for n in range(100))


def test_a_word_with_an_unknown_character_keeps_it_and_still_varies():
    dictionary = make_dictionary(all_pieces("abn", CODES))
    segment = segmenter(CODES, dictionary, 0.5)
    lines = [segment("bananaxana", str(n)) for n in range(50)]
    assert all(line.count(UNKNOWN) == 1 for line in lines)
    assert len({tuple(line) for line in lines}) > 10


def test_without_dropout_lines_are_those_of_apply_bpe(sentences, codes):
    bpe = apply_bpe.BPE(io.StringIO(codes))
    segmented = [bpe.process_line(text) for text in sentences]
    dictionary = make_dictionary(itertools.chain.from_iterable(line.split() for line in segmented))
    segment = segmenter(codes, dictionary, 0.0)
    for text, line in zip(sentences, segmented, strict=True):
        expected = dictionary.encode_line(line, add_if_not_exist=False).tolist()
        assert segment(text, "any") == expected == segment(f" {text} \r\n", "other")


@pytest.mark.parametrize("text", ["a\tb\u3000an", "\u3000", "an \u2028 an", "a\xa0", "anan\x85an b"])
def test_odd_white_space_is_treated_as_by_apply_bpe_and_fairseq(text):
    line = apply_bpe.BPE(io.StringIO(CODES)).process_line(text)
    dictionary = make_dictionary(line.split())
    expected = dictionary.encode_line(line, add_if_not_exist=False).tolist()
    assert segmenter(CODES, dictionary, 0.0)(text, "any") == expected


def test_the_more_dropout_the_more_tokens(sentences, codes):
    dictionary = make_dictionary(all_pieces(sorted(set("".join(sentences))), codes))
    means = []
    for dropout in (0.0, 0.1, 0.5, 0.9999):
        segment = segmenter(codes, dictionary, dropout)
        lengths = [len(segment(text, f"{number}")) - 1 for number, text in enumerate(sentences)]
        means.append(sum(lengths) / len(lengths))
    characters = sum(len(text.replace(" ", "")) for text in sentences) / len(sentences)
    assert means == sorted(means)
    assert means[1] > 1.1 * means[0]
    assert means[3] == pytest.approx(characters, rel=0.01)


def test_merges_are_left_out_with_the_given_probability():
    codes = "#version: 0.2\na b</w>\n"
    dictionary = make_dictionary(["ab", "a@@", "b"])
    segment = segmenter(codes, dictionary, 0.1)
    whole = sum(len(segment("ab", str(n))) == 2 for n in range(20_000)) / 20_000
    assert abs(whole - 0.9) < 5 * (0.9 * 0.1 / 20_000) ** 0.5


def test_a_line_depends_on_its_key_alone(sentences, codes, monkeypatch):
    dictionary = make_dictionary(all_pieces(sorted(set("".join(sentences))), codes))
    segment = segmenter(codes, dictionary, 0.2)
    lines = [segment(text, str(n)) for n, text in enumerate(sentences)]
    monkeypatch.setattr(word_segmentation, "_KNOWN_WORDS", 7)  # forgets all the time
    again = segmenter(codes, dictionary, 0.2)
    backwards = [again(text, str(n)) for n, text in reversed([*enumerate(sentences)])]
    assert lines == backwards[::-1]
    assert again._segment_plainly.cache_info().currsize == 7
    assert (
        sum(segment(text, f"x{n}") != line for n, (text, line) in enumerate(zip(sentences, lines, strict=True))) > 500
    )


def test_a_very_long_word_takes_seconds_at_most(sentences, codes):
    word = "".join("".join(sentences).split())[:6000]
    pieces = all_pieces(sorted(set(word)), codes)
    dictionary = make_dictionary([*pieces, *(f"{piece}@@" for piece in pieces)])  # of ends of words within the long one
    started = time.process_time()
    line = segmenter(codes, dictionary, 0.1)(word, "key")
    assert time.process_time() - started < 20
    assert "".join(dictionary[i].removesuffix("@@") for i in line[:-1]) == word


def test_the_program_imports_neither_torch_nor_fairseq(tmp_path):
    code = (
        "import sys, runpy\n"
        "runpy.run_path(sys.argv[1], run_name='word_segmentation')\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & set(sys.argv[2:])))"
    )
    path = REPOSITORY / "muse_plugin" / "tasks" / "bpe_dropout" / "word_segmentation.py"
    packages = ("torch", "fairseq", "numpy", "muse_plugin", "subword_nmt")
    done = run_python(code, str(path), *packages, cwd=tmp_path)
    assert done.stdout.strip() == "['subword_nmt']", done.stderr


def test_segmentations_of_pieces_have_the_probabilities_of_the_model():
    scores = {"a": -2.0, "b": -2.5, "ab": -1.5, "ba": -3.0, "aba": -2.2}
    model = SimpleNamespace(scores=scores, list_words=str.split)
    indices = {piece: i for i, piece in enumerate(scores)}
    smoothing = 0.7
    segment = PieceSampler(model, indices, 9, 8, smoothing)
    wanted = {}
    for cuts in ("a b a", "ab a", "a ba", "aba"):
        pieces = cuts.split()
        wanted[tuple(indices[piece] for piece in pieces)] = math.exp(smoothing * sum(map(scores.get, pieces)))
    counts = Counter(tuple(segment("aba", str(i))[:-1]) for i in range(20_000))
    assert set(counts) == set(wanted)
    for pieces, weight in wanted.items():
        assert counts[pieces] / 20_000 == pytest.approx(weight / sum(wanted.values()), abs=0.015)
    assert segment("xa a", "1") == [9, 0, 0, 8]  # x is no piece


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_unknown_neighbours_are_one_symbol_with_and_without_dropout(sentences, kind):
    pytest.importorskip("sentencepiece")
    content = learn_pieces(sentences, 80, kind)
    indices = {piece: i for i, piece in enumerate(SentencePieces(content).list_pieces())}
    side = {"codes": base64.b64encode(content).decode(), "indices": indices}
    for dropout in (0.0, 0.1):
        segment = make_segmenter({**side, "unknown": -1, "end": -2, "dropout": dropout})
        assert segment(f"e {chr(0x436) * 30} e{chr(0x436)}{chr(0x6F22)}e", "1").count(-1) == 2


def test_a_bpe_model_of_sentencepiece_that_leaves_out_nothing_cuts_as_the_library(sentences):
    processor = pytest.importorskip("sentencepiece").SentencePieceProcessor(
        model_proto=learn_pieces(sentences, 300, "bpe")
    )
    pieces = [processor.EncodeAsPieces(text) for text in sentences]
    indices = {piece: number for number, piece in enumerate(dict.fromkeys(itertools.chain.from_iterable(pieces)))}
    codes = base64.b64encode(processor.serialized_model_proto()).decode()
    segment = make_segmenter({"codes": codes, "indices": indices, "unknown": -1, "end": -2, "dropout": 1e-12})
    assert isinstance(segment, PieceMerger)
    for text, cut in zip(sentences, pieces, strict=True):
        assert segment(text, "any") == [*map(indices.get, cut), -2]
