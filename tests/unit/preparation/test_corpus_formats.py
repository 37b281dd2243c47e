"""Each format is cut as its line says, and a line that is not of it is named."""

import csv
from pathlib import Path

import pytest

from muse_plugin.preparation import corpus_formats
from muse_plugin.preparation.corpus_formats import Example, choose_format, parse_format


def read(path, spec, **flags):
    return list(parse_format(spec, **flags).read(path, "--train"))


def test_label_and_text_are_cut_at_the_first_separator(write):
    tabs = write("tabs", "pos\tso good\tindeed\r\n \tno label\n\nneg\t\n")
    assert read(tabs, "label-tab-text") == [
        Example((1,), ("pos",), ("so good\tindeed",)),
        Example((2,), ("",), ("no label",)),
        Example((3,), ("",), ("",)),
        Example((4,), ("neg",), ("",)),
    ]
    spaces = write("spaces", "3 so good\n1 bad\n")
    assert [example.labels + example.texts for example in read(spaces, "label-space-text")] == [
        ("3", "so good"),
        ("1", "bad"),
    ]
    assert [example.lines for example in read(spaces, "label-space-text", header=True)] == [(2,)]


@pytest.mark.parametrize(("spec", "name"), [("label-tab-text", "tab"), ("label-space-text", "space")])
def test_a_line_without_the_separator_is_named(write, spec, name):
    path = write("a", "1\tx\n0\n".replace("\t", "\t" if name == "tab" else " "))
    with pytest.raises(
        ValueError, match=f"a label, a {name} and a text, but line 2 of .*a has no {name}: '0'; correct"
    ):
        read(path, spec)


def test_columns_are_found_by_number_and_by_name(write):
    path = write("a", "id\tsentence2\tsentence1\tgold\n7\tb b\ta a\tyes\n")
    by_name = read(path, "tsv:text=sentence1,pair=sentence2,label=gold")
    assert by_name == [Example((2,), ("yes",), ("a a", "b b"))]
    assert read(path, "tsv:text=3,pair=2,label=4", header=True) == by_name
    assert read(path, "tsv:text=3,label=gold") == [Example((2,), ("yes",), ("a a",))]
    assert len(read(path, "tsv:text=3,pair=2,label=4")) == 2
    assert parse_format("tsv:text=1,pair=2,label=3").sides == 2


def test_quotes_are_characters_like_any_other(write):
    assert read(write("a", '"x\ty"\t1\n'), "tsv:text=1,label=3") == [Example((1,), ("1",), ('"x',))]


def test_commas_separate_what_is_not_quoted(write):
    path = write("a", '"text","label","id"\r\n"so good, ""indeed""",pos,1\r\n\r\n"two\nlines",neg,2\r\nplain, x ,3\r\n')
    expected = [
        Example((2,), ("pos",), ('so good, "indeed"',)),
        Example((3,), ("",), ("",)),
        Example((4,), ("neg",), ("two\nlines",)),
        Example((6,), ("x",), ("plain",)),
    ]
    assert read(path, "csv") == expected
    assert read(path, "csv:text=1,label=2", header=True) == expected
    pairs = read(path, "csv:text=text,pair=id,label=label")
    assert pairs[0] == Example((2,), ("pos",), ('so good, "indeed"', "1"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('text,label\n"a"b,c\n', r"must be quoted as csv is, but the row that begins in line 2 of .*a is not \('"),
        (
            'text,label\na,b\n"a,c\nd\n',
            r"the row that begins in line 3 of .*a is not \(unexpected end of data\); correct",
        ),
        ('"text,label\n', r"begins in line 1 of .*a is not"),
        ("text;label\n", r"a has 0 columns named 'text' between commas; it has 'text;label'\."),
        ("text,label\nalone\n", r"at least 2 columns separated by commas, but line 2 of .*a has 1; correct"),
    ],
)
def test_rows_that_are_no_csv_are_named(write, text, message):
    with pytest.raises(ValueError, match=message):
        read(write("a", text), "csv")


def test_a_quote_without_end_does_not_fill_the_memory(write, monkeypatch):
    monkeypatch.setattr(corpus_formats, "LONGEST_LINE", 1000)
    limit = csv.field_size_limit()
    message = r"row that begins in line 2 of .*a is not \(it has more than 1,000 characters\)"
    try:
        for row in ('"' + "word\n" * 1000, '"a\nb",' * 1000):
            path = write("a", f"text,label\n{row}")
            with pytest.raises(ValueError, match=message):
                read(path, "csv")
        assert len(read(write("a", "text,label\n" + '"two\nlines",x\n' * 1000), "csv")) == 1000
    finally:
        csv.field_size_limit(limit)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.csv", "csv"), ("a.CSV.gz", "csv"), ("a.tsv", "label-tab-text"), ("csv", "label-tab-text")],
)
def test_the_ending_chooses_where_nothing_else_does(name, expected):
    assert choose_format(Path(name)) == expected


def test_missing_columns_are_named(write):
    path = write("a", "text\tlabel\nfine\tyes\nshort\n")
    with pytest.raises(ValueError, match=r"at least 2 columns separated by tabs, but line 3 of .*a has 1; correct"):
        read(path, "tsv:text=text,label=label")
    with pytest.raises(ValueError, match=r"a has 0 columns named 'gold' between tabs; it has 'text', 'label'"):
        read(path, "tsv:text=text,label=gold")
    with pytest.raises(ValueError, match=r"a has 2 columns named 'x'"):
        read(write("a", "x\tx\ty\n"), "tsv:text=x,label=y")


def test_tagged_sentences_end_at_blank_lines(write):
    path = write(
        "a",
        "-DOCSTART- -X- O O\n\nEU NNP I-NP B-ORG\nrejects VB I-VP O\n \t\n\ufeff\n#note\n# NN I-NP O\n\nlast X O B-PER",
    )
    assert read(path, "conll") == [
        Example((3, 4), ("B-ORG", "O"), words=("EU", "rejects")),
        Example((8,), ("O",), words=("#",)),
        Example((10,), ("B-PER",), words=("last",)),
    ]
    assert [example.labels for example in read(path, "conll:1,2")] == [("NNP", "VB"), ("NN",), ("X",)]


def test_only_plain_spaces_separate_the_columns_of_a_line_without_tabs(write):
    (example,) = read(write("a", " 10\u00a0000   B-X \nne\u3000w O\n"), "conll")
    assert (example.words, example.labels) == (("10\u00a0000", "ne\u3000w"), ("B-X", "O"))


def test_a_tab_is_the_only_separator_of_a_line_that_has_one(write):
    assert read(write("a", "New York\tB-LOC\n#tag\tO\n"), "conll")[0].words == ("New York", "#tag")


def test_conllu_skips_comments_ranges_and_empty_nodes(write):
    path = write(
        "a",
        "# text = don't\n1-2\tdon't\t_\t_\n1\tdo\tdo\tAUX\n2\tn't\tnot\tPART\n2.1\tgo\tgo\tVERB\n3\t#\t#\tSYM\n\n",
    )
    expected = Example((3, 4, 6), ("AUX", "PART", "SYM"), words=("do", "n't", "#"))
    assert read(path, "conll", conllu=True) == [expected]
    assert read(path, "conll:3,4", conllu=True)[0].words == ("do", "not", "#")
    with pytest.raises(ValueError, match=r"with --conllu the first column must number the words, but line 1 .*'EU'"):
        read(write("b", "EU\tO\n"), "conll", conllu=True)


def test_bad_lines_of_tagged_words_are_named(write):
    with pytest.raises(ValueError, match=r"at least 2 columns, among them a word and its tag, but line 2 .* 1: 'b'"):
        read(write("a", "a O\nb\n"), "conll")
    with pytest.raises(ValueError, match=r"at least 4 columns, .* but line 1 of .*a has 2"):
        read(write("a", "a O\n"), "conll:1,4")
    with pytest.raises(ValueError, match=r"each line must have a word, but in line 2 of .*a column 1 is empty"):
        read(write("a", "a\tO\n\tO\n"), "conll")


@pytest.mark.parametrize(
    ("spec", "flags", "message"),
    [
        ("csv:text=1", {}, "csv needs a column for text and one for label, but --format csv:text=1 lacks label="),
        ("csv;text=1,label=2", {}, "--format must be one of label-tab-text, .*, but got 'csv;text=1,label=2'"),
        ("tsv", {}, "--format must be one of .*, but got 'tsv'"),
        ("tsv:text=1", {}, "--format tsv:text=1 lacks label="),
        ("tsv:text=1,label=1", {}, "--format tsv:text=1,label=1 gives one twice"),
        ("tsv:text=0,label=1", {}, "but got 'text=0' in --format"),
        ("tsv:text=1,label=2,label=3", {}, "but got 'label=3' in --format"),
        ("tsv:text=1,lable=2", {}, "but got 'lable=2' in --format"),
        ("conll:2", {}, "two numbers from 1 on as in conll:2,4, but got --format conll:2;"),
        ("conll:2,2", {}, "but got --format conll:2,2;"),
        ("label-tab-text", {"conllu": True}, "--conllu needs --format conll, but got --format label-tab-text"),
        ("conll", {"header": True}, "--header needs a format with one example a line, but got --format conll"),
    ],
)
def test_wrong_formats_are_refused(spec, flags, message):
    with pytest.raises(ValueError, match=message):
        parse_format(spec, **flags)
