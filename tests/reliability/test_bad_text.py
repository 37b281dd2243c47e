"""One line out for every line in, in order, whatever the lines hold; bytes that are no text are named by their line."""

import io
import logging
import re
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.lines import answer_lines
from support.sentence_checkpoints import make_pair_model, prepare_text, save_model
from support.translation_models import GERMAN

from muse_plugin.files.lines import clean_line, iterate_stream
from muse_plugin.inference.predict import Predictor, load_sentence_model
from muse_plugin.inference.streaming import Line
from muse_plugin.inference.translate import Translator
from muse_plugin.runner import run as exported_program
from muse_plugin_command import cli

# What a line may be made of, besides any character at all.
PIECES = [
    *(b"", b" ", b"\t", b"Wo", b"ist", b"Ann", b"sees"),
    *(b"@@", b"@@ ", b"@", b"Wo@@", b"@@@@ @@", "\u2581".encode()),  # marks of sub-words and of characters
    *(b"<s>", b"</s>", b"<pad>", b"<unk>", b"<mask>", b"<pad> <pad> <pad>", b"madeupword0000", b"[SEP]", b"[UNK]"),
    *(b"\r", b"\x00", b"\x07", b"\x1b[2J", b"\x0b\x0c", b"\x1c\x1d\x1e\x1f", b"\x7f"),
    *(
        text.encode()
        for text in ("\x85", "\u2028", "\u2029", "\u00a0", "\u3000", "\ufeff", "\u00ad", "\u200b", "\u2060")
    ),
    *(text.encode() for text in ("\u05e9\u05dc\u05d5\u05dd", "\u202e\u0645\u0631\u062d\u0628\u0627\u202c", "\u200f")),
    *(
        text.encode()
        for text in ("\U0001f600", "\U0001f469\u200d\U0001f469\u200d\U0001f467", "e\u0301\u0302\u0303", "\ufdfa")
    ),
    *(b"\xff", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80"),  # no UTF-8
    *(b"&lt;s&gt;", b"&amp;", b"<![CDATA[", b'"', b"\\n", b"\\", b"%s{}", b"$(touch x)", b"__import__('os')"),
    *(b"a" * 500, b"- " * 150, "\u65e5".encode() * 200),
]
anything = st.text(max_size=12).map(lambda text: text.encode("utf-8", errors="surrogatepass"))


def is_plain(content):
    """Whether it does not start as a gzip file, which is refused."""
    return not content.startswith(b"\x1f\x8b")


lines_of_bytes = st.lists(
    st.lists(st.sampled_from(PIECES) | anything | st.binary(max_size=6), max_size=6).map(
        lambda parts: b"".join(parts).replace(b"\n", b"")
    ),
    max_size=12,
).filter(lambda lines: is_plain(b"".join(lines[:1])))
some_examples = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def is_text(line):
    try:
        line.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def shown(line):
    """What can be seen of a line."""
    return clean_line(line.removesuffix(b"\r").decode("utf-8", errors="replace"))


# ---- models of random weights ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def translator(checkpoint_folder):
    return Translator.load(checkpoint_folder, cpu=True, beam=2)


@pytest.fixture(scope="module")
def labelling_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels")
    prepare_text(folder, "pos\tWo ist Ann\nneg\tsees\n" * 3, "--format", "label-tab-text")
    save_model(folder, "muse_sentence_classification", "sentence_average")
    return folder


@pytest.fixture(scope="module")
def tagging_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tags")
    prepare_text(folder, "Ann\tN\nsees\tV\n\nWo\tN\n\n" * 2, "--format", "conll", "--characters")
    save_model(folder, "muse_sequence_tagging", "sentence_average", "--character-encoder", "cnn", "--crf")
    return folder


@pytest.fixture(scope="module")
def pair_folder(tmp_path_factory):
    return make_pair_model(tmp_path_factory.mktemp("pairs"))


def load_predictor(folder):
    return Predictor(load_sentence_model(folder), batch_size=8, cpu=True)


@pytest.fixture(scope="module")
def labeller(labelling_folder):
    return load_predictor(labelling_folder)


@pytest.fixture(scope="module")
def tagger(tagging_folder):
    return load_predictor(tagging_folder)


@pytest.fixture(scope="module")
def pair_labeller(pair_folder):
    return load_predictor(pair_folder)


def answer_bytes(answer, content, folder, buffer_size=5):
    """Sends bytes through the loop that translate and predict share; returns the lines that come out."""
    source, target = folder / "in.txt", folder / "out.txt"
    source.write_bytes(content)
    target.unlink(missing_ok=True)
    answer_lines(answer, source, target, buffer_size, dict)
    written = target.read_bytes().decode("utf-8")
    assert written.endswith("\n") or not written
    return written.split("\n")[:-1]


# ---- one line for one line -------------------------------------------------------------------------------------------


@some_examples
@given(lines=lines_of_bytes, ends=st.booleans())
def test_translate_gives_a_line_for_each_line_in_order(translator, tmp_path, caplog, lines, ends):
    caplog.clear()
    known = GERMAN[0].encode()
    lines = [known, *lines, known]
    with caplog.at_level(logging.WARNING):
        out = answer_bytes(translator.translate_lines, b"\n".join(lines) + b"\n" * ends, tmp_path)
    assert len(out) == len(lines)
    assert out[0] == out[-1] != ""
    for line, translation in zip(lines, out, strict=True):
        assert translation == "" or shown(line)
        assert translation == clean_line(translation)
    bad = [number for number, line in enumerate(lines, start=1) if not is_text(line)]
    assert [int(n) for n in re.findall(r"line (\d+) is not valid UTF-8", caplog.text)] == bad


@pytest.fixture(scope="module")
def runner(exported):
    return exported_program.Translator(exported, threads=1)


@some_examples
@given(lines=lines_of_bytes, ends=st.booleans())
def test_an_exported_folder_gives_the_lines_of_translate(runner, translator, tmp_path, lines, ends):
    content = b"\n".join([*lines, b"Wo"]) + b"\n" * ends
    read = list(exported_program.read_lines(io.BytesIO(content)))
    assert read == [text for text, _ in iterate_stream(io.BytesIO(content))]
    out = runner.translate(read, beam=2)
    assert all(line == clean_line(line) for line in out)
    for line, translation in zip(read, out, strict=True):  # one by one: translate's longest output is that of a batch
        assert translation == translator.translate_lines([Line(1, line)])[0]


@some_examples
@given(lines=lines_of_bytes, ends=st.booleans())
def test_predict_gives_a_label_for_each_line_in_order(labeller, tmp_path, caplog, lines, ends):
    caplog.clear()
    lines = [b"Wo ist Ann", *lines, b"Wo ist Ann"]

    def answer(buffer):
        found = labeller.answer([line.text for line in buffer], buffer[0].number)
        return ["" if one.label is None else f"{one.label} {one.scores[0]:.4f}" for one in found]

    with caplog.at_level(logging.WARNING):
        out = answer_bytes(answer, b"\n".join(lines) + b"\n" * ends, tmp_path)
    assert len(out) == len(lines)
    assert out[0] == out[-1] != ""
    assert [bool(answered) for answered in out] == [bool(shown(line)) for line in lines]
    bad = [number for number, line in enumerate(lines, start=1) if not is_text(line)]
    assert [int(n) for n in re.findall(r"line (\d+) is not valid UTF-8", caplog.text)] == bad


@some_examples
@given(lines=lines_of_bytes)
def test_predict_gives_a_tag_for_each_word_of_each_line(tagger, tmp_path, lines):
    lines = [*lines, b"end"]

    def answer(buffer):
        return [" ".join(one.tags) for one in tagger.answer([line.text for line in buffer], buffer[0].number)]

    out = answer_bytes(answer, b"\n".join(lines) + b"\n", tmp_path)
    words = [len(line.removesuffix(b"\r").decode("utf-8", errors="replace").split()) for line in lines]
    assert [len(tags.split(" ")) if tags else 0 for tags in out] == words


@some_examples
@given(pairs=st.lists(st.tuples(*[st.sampled_from(PIECES) | anything] * 2), max_size=8))
def test_predict_gives_a_label_for_each_pair(pair_labeller, tmp_path, pairs):
    def side(raw):
        return b"x" + raw.translate(None, b"\n\t\r")  # a pair without a word or with a further tab is an error, below

    lines = [b"" if one == other == b"" else side(one) + b"\t" + side(other) for one, other in pairs]

    def answer(buffer):
        return [one.label or "" for one in pair_labeller.answer([line.text for line in buffer], buffer[0].number)]

    out = answer_bytes(answer, b"".join(line + b"\n" for line in lines), tmp_path)
    assert [label in ("yes", "no") if line else label == "" for line, label in zip(lines, out, strict=True)] == [
        True
    ] * len(lines)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("a\tb\tc", r"but line 2 has 3: 'a\\tb\\tc'"),
        ("no tab", "but line 2 has 1: 'no tab'"),
        ("a\t\u200b\u00ad", "both texts of a pair must have a word, but in line 2 one is blank"),
    ],
)
def test_a_line_that_is_no_pair_is_named_by_its_number(pair_folder, tmp_path, capsys, line, sentence):
    (tmp_path / "in.txt").write_text(f"a\tb\n{line}\n")
    files = ["--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out.txt")]
    assert cli.main(["predict", "--path", str(pair_folder), *files, "--cpu"]) == 2
    assert re.search(sentence, capsys.readouterr().err)
    assert not (tmp_path / "out.txt").exists()


LONG_LINES = {
    "one word": "a" * 100_000,
    "single letters": "a " * 50_000,
    "sub-word marks": "@@ " * 33_000,
    "emoji": "\U0001f600" * 100_000,
    "right to left": "\u05e9\u05dc\u05d5\u05dd " * 20_000,
    "punctuation": ".-" * 50_000,
    "entities": "&lt; " * 20_000,
    "spaces": "\u00a0" * 100_000,
    "combining accents": "e" + "\u0301" * 99_999,
    "nothing to be seen": "\u200b" * 100_000,
    "control characters": "\x00\x1b\x07" * 33_000,
    "only padding": "<pad> " * 16_000,
    "only unknown words": "zzz " * 25_000,
}


# Every word gets a tag, however many there are; others are read up to the longest text of the model.
FEW_WORDS = ("one word", "emoji", "spaces", "combining accents", "nothing to be seen")


def test_lines_of_100_000_characters_through_an_exported_folder(runner):
    out = runner.translate(["Wo", *LONG_LINES.values(), "", "Wo"], beam=1)
    assert (out[0] == out[-1], out[-2], len(out)) == (True, "", len(LONG_LINES) + 3)


@pytest.mark.parametrize("name", ["checkpoint_folder", "labelling_folder", "tagging_folder"])
def test_lines_of_100_000_characters_through_the_commands(request, tmp_path, capsys, name):
    folder = request.getfixturevalue(name)
    chosen = FEW_WORDS if name == "tagging_folder" else LONG_LINES
    lines = ["Wo", *(LONG_LINES[name] for name in chosen), "", "Wo"]
    (tmp_path / "in.txt").write_bytes(b"\xff\n" + "".join(f"{line}\n" for line in lines).encode())
    files = ["--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out.txt")]
    command = ["translate", "--beam", "1"] if name == "checkpoint_folder" else ["predict"]
    assert cli.main([*command, "--path", str(folder), *files, "--cpu"]) == 0
    out = (tmp_path / "out.txt").read_bytes().decode("utf-8").split("\n")
    assert len(out) == len(lines) + 2
    assert (out[-2] == out[1], out[-3], out[-1]) == (True, "", "")


# ---- a line without end ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "lines", "cut"),
    [
        (b"a" * 16 + b"\nb\n", ["a" * 16, "b"], []),
        (b"a" * 17 + b"\nb\n", ["a" * 16, "b"], [1]),
        (b"x\n" + b"a" * 170 + b"\n\nb", ["x", "a" * 16, "", "b"], [2]),
        (b"b\n" + b"a" * 40, ["b", "a" * 16], [2]),
        ("ä".encode() * 20 + b"\nb", ["ä" * 8, "b"], [1]),
        (b"a" + "ä".encode() * 20 + b"\nb", ["a" + "ä" * 7, "b"], [1]),  # not half a character
    ],
    ids=["longest", "too_long", "far_too_long", "last", "two_bytes", "half_a_character"],
)
def test_of_a_line_beyond_the_limit_the_beginning_is_read(monkeypatch, caplog, content, lines, cut):
    monkeypatch.setattr("muse_plugin.files.lines.LONGEST_LINE", 16)
    with caplog.at_level(logging.WARNING):
        assert list(iterate_stream(io.BytesIO(content))) == [(line, True) for line in lines]
    assert [int(n) for n in re.findall(r"line (\d+) is longer than 16 bytes; only its", caplog.text)] == cut


def test_bad_bytes_of_a_cut_line_are_still_reported(monkeypatch):
    monkeypatch.setattr("muse_plugin.files.lines.LONGEST_LINE", 16)
    content = b"a\xff" + "ä".encode() * 20 + b"\nb\n"
    assert list(iterate_stream(io.BytesIO(content))) == [("a\ufffd" + "ä" * 7, False), ("b", True)]


@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=60).filter(is_plain) | lines_of_bytes.map(b"\n".join))
def test_a_limit_on_lines_changes_neither_their_number_nor_the_short_ones(content):
    whole = list(iterate_stream(io.BytesIO(content)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("muse_plugin.files.lines.LONGEST_LINE", 8)
        limited = list(iterate_stream(io.BytesIO(content)))
    assert len(limited) == len(whole)
    for cut, raw, line in zip(limited, content.split(b"\n"), whole, strict=False):
        assert cut == line if len(raw) < 8 else line[0].startswith(cut[0].rstrip("\ufffd")), (cut, line)


# ---- bad bytes where they are an error -------------------------------------------------------------------------------

BAD = {
    "label-tab-text": b"pos\tgood\nneg\tb\xffd\n",
    "label-space-text": b"pos good\nneg b\xffd\n",
    "tsv:text=2,label=1": b"pos\tgood\nneg\tb\xffd\n",
    "conll": b"good\tA\nb\xffd\tN\n",
}


@pytest.mark.parametrize("form", BAD)
def test_prepare_text_names_the_line_of_bad_bytes(tmp_path, capsys, form):
    (tmp_path / "a.txt").write_bytes(BAD[form])
    words = ["--train", str(tmp_path / "a.txt"), "--output", str(tmp_path / "data"), "--format", form]
    assert cli.main(["prepare-text", *words, "--valid", str(tmp_path / "a.txt")]) == 2
    assert re.search(r"UTF-8 text file, but line 2 of .*a\.txt has the byte 0xff at position", capsys.readouterr().err)
    assert not (tmp_path / "data").exists()


def test_evaluate_names_the_line_of_bad_bytes(tmp_path, capsys):
    (tmp_path / "good.txt").write_bytes(b"a b c d\nb c d e\n")
    (tmp_path / "bad.txt").write_bytes(b"a b c d\nb \xc3 d e\n")
    files = ["--hypotheses", str(tmp_path / "bad.txt"), "--references", str(tmp_path / "good.txt")]
    assert cli.main(["evaluate", *files]) == 2
    assert re.search(r"line 2 of .*bad\.txt has the byte 0xc3 at position 3", capsys.readouterr().err)


def test_text_from_standard_input_goes_the_same_way(tagging_folder, monkeypatch, capfdbinary):
    class Input:
        buffer = io.BytesIO(b"Ann \xff\n\nWo\r\nx")

    monkeypatch.setattr(sys, "stdin", Input)
    assert cli.main(["predict", "--path", str(tagging_folder), "--cpu"]) == 0
    out = capfdbinary.readouterr().out.split(b"\n")
    assert [len(line.split()) for line in out] == [2, 0, 1, 1, 0]
