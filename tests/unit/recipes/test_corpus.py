"""Corpus tools: what is a sentence, which pairs are kept, that files stay aligned and nothing half-written stays."""

import hashlib
import subprocess
import sys
import tarfile
import zipfile

import pytest
from support.helpers import REPOSITORY, assert_refused, run_command

TOOL = REPOSITORY / "examples" / "recipe" / "corpus.py"


def run_tool(*words, cwd):
    return run_command([sys.executable, str(TOOL), *map(str, words)], cwd=cwd)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("<url>http://x</url>", None),
        ("<talkid>1</talkid>", None),
        ("<keywords>a, b</keywords>", None),
        ('<doc docid="1" genre="lectures">', None),
        ("</doc>", None),
        ("<title>A talk</title>", "A talk"),
        ("<description>What it says</description>", "What it says"),
        ("5 < 6 and url is a word", "5 < 6 and url is a word"),
    ],
)
def test_tags_are_stripped_and_lines_that_are_no_sentence_dropped(corpus, line, sentence):
    assert corpus.strip_tags(line) == sentence


@pytest.mark.parametrize(
    ("source", "target", "kept"),
    [
        ("a b c", "d e", True),  # ratio 1.5 exactly
        ("a b c d", "e f", False),
        ("e f", "a b c d", False),
        ("", "a", False),
        ("a", "  ", False),
        ("a b c d e f", "a b c d e f", False),  # too long
    ],
)
def test_pairs_are_kept_by_length_and_ratio(corpus, source, target, kept):
    assert corpus.clean_pair(source, target, longest=5, ratio=1.5) == kept


@pytest.mark.parametrize(
    ("line", "options", "expected"),
    [
        ("It's \"five\" o'clock, isn't it?", {}, "It &apos;s &quot; five &quot; o &apos;clock , isn &apos;t it ?"),
        ("a well-known rule", {}, "a well-known rule"),
        ("a well-known rule", {"aggressive": True}, "a well @-@ known rule"),
        ("Das IST so.", {"lower": True}, "das ist so ."),
        ("“quoted”\x07 text", {"normalize": True}, "&quot; quoted &quot; text"),
        ("soft\u00adhyphen zero\u200bwidth", {"normalize": True}, "soft hyphen zero width"),  # as Moses: a space
    ],
)
def test_tokenisation_is_that_of_moses(corpus, line, options, expected):
    options = {"normalize": False, "aggressive": False, "lower": False, **options}
    assert corpus.tokenize_line(line, "en", **options) == expected


@pytest.mark.parametrize("workers", [1, 2])
def test_lines_are_tokenised_in_order_also_by_several_processes(tmp_path, workers):
    source = write(tmp_path / "in", "".join(f"Line number {n}, you know.\n" for n in range(2500)))
    done = run_tool(
        "tokenize", source, tmp_path / "out", "--lang", "en", "--lower-case", "--workers", workers, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text() == "".join(f"line number {n} , you know .\n" for n in range(2500))


def test_separators_within_a_line_do_not_end_it(corpus, tmp_path):
    path = write(tmp_path / "text", "one\u2028still one\x85 and\x0c\r\ntwo")
    assert list(corpus.read_lines(path)) == ["one\u2028still one\x85 and\x0c", "two"]


def test_segments_of_xml_and_sgml_files_come_in_order(tmp_path):
    first = write(tmp_path / "a.xml", '<?xml?>\n<doc>\n<seg id="1"> It’s one. </seg>\n<seg id="2">Two</seg>\n</doc>\n')
    second = write(tmp_path / "b.sgm", '<hl><SEG ID="1">Three</SEG></hl>\n'.replace("ID", "id"))
    done = run_tool("segments", first, second, "--output", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text(encoding="utf-8") == "It's one.\nTwo\nThree\n"
    done = run_tool("segments", first, "--output", tmp_path / "out", "--keep-apostrophes", cwd=tmp_path)
    assert (tmp_path / "out").read_text(encoding="utf-8") == "It’s one.\nTwo\n"
    empty = write(tmp_path / "c.xml", "<doc></doc>\n")
    done = run_tool("segments", empty, "--output", tmp_path / "none", cwd=tmp_path)
    assert_refused(done, "c.xml must contain sentences between <seg> tags, but has none.")
    assert not list(tmp_path.glob("none*"))


def test_every_nth_pair_is_chosen(tmp_path):
    source = write(tmp_path / "s", "".join(f"s{n}\n" for n in range(1, 48)))
    target = write(tmp_path / "t", "".join(f"t{n}\n" for n in range(1, 48)))
    names = [tmp_path / name for name in ("cs", "ct", "rs", "rt")]
    words = ["--inputs", source, target, "--chosen", *names[:2], "--rest", *names[2:], "--every", 23]
    assert run_tool("split", *words, cwd=tmp_path).returncode == 0
    assert names[0].read_text() == "s23\ns46\n"
    assert names[1].read_text() == "t23\nt46\n"
    assert len(names[2].read_text().split()) == len(names[3].read_text().split()) == 45
    assert_refused(run_tool("split", *words[:-1], 0, cwd=tmp_path), "--every must be at least 1, but got 0.")


@pytest.mark.parametrize(("left", "right"), [(3, 2), (2, 3), (0, 1)])
def test_misaligned_files_are_refused_and_nothing_is_left(tmp_path, left, right):
    source, target = write(tmp_path / "s", "a b\n" * left), write(tmp_path / "t", "a b\n" * right)
    outputs = ["--outputs", tmp_path / "os", tmp_path / "ot"]
    done = run_tool("clean", "--inputs", source, target, *outputs, "--max", 9, cwd=tmp_path)
    assert_refused(done, f"s has {left} lines and", f"t {right}; download or make the shorter one again.")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s", "t"]


def test_an_empty_line_and_bad_utf8_are_named_by_their_number(tmp_path):
    good, empty = write(tmp_path / "good", "a\nb\nc\n"), write(tmp_path / "empty", "a\n \nc\n")
    assert_refused(run_tool("check", good, empty, cwd=tmp_path), "empty, line 2: must hold a sentence, but is empty")
    bad = write(tmp_path / "bad", b"a\nb\xff\n")
    done = run_tool("strip-tags", bad, tmp_path / "out", cwd=tmp_path)
    assert_refused(done, "bad, line 2: must be UTF-8, but is not")
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("kind", ["tgz", "zip"])
def test_members_are_extracted_flat_and_decompressed(tmp_path, kind):
    import gzip

    inner = write(tmp_path / "deep" / "corpus.en", "hello\n")
    packed = write(tmp_path / "deep" / "corpus.de.gz", gzip.compress(b"hallo\n"))
    archive = tmp_path / f"a.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as out:
            out.write(inner, "x/../../corpus.en")
            out.write(packed, "x/corpus.de.gz")
    else:
        with tarfile.open(archive, "w:gz") as out:
            out.add(inner, "x/../../corpus.en")
            out.add(packed, "x/corpus.de.gz")
    done = run_tool("extract", archive, tmp_path / "to", "corpus.en", "corpus.de", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {p.name: p.read_text() for p in (tmp_path / "to").iterdir()} == {
        "corpus.en": "hello\n",
        "corpus.de": "hallo\n",
    }
    done = run_tool("extract", archive, tmp_path / "to", "other", cwd=tmp_path)
    assert_refused(done, "must contain other, but does not")


def test_tatoeba_is_split_by_english_sentence(tmp_path):
    lines = [f"Sentence {n}!\tSatz {n}a\n" for n in range(2000)] + [f"sentence {n}.\tSatz {n}b\n" for n in range(2000)]
    source = write(tmp_path / "deu.txt", "".join(lines))
    assert run_tool("split-tatoeba", source, tmp_path / "out", "--share", "0.1", cwd=tmp_path).returncode == 0

    def keys(name):
        english = (tmp_path / "out" / f"{name}.en").read_text().splitlines()
        assert len(english) == len((tmp_path / "out" / f"{name}.de").read_text().splitlines())
        return [line.lower().strip(".!") for line in english]

    train, valid, test = keys("train"), keys("valid"), keys("test")
    assert not set(train) & set(valid)
    assert not set(train) & set(test)
    assert not set(valid) & set(test)
    assert len(train) == 2 * len(set(train))  # all translations
    assert len(test) == len(set(test))  # one reference
    assert 140 < len(test) < 260
    assert 140 < len(valid) < 260
    source = write(tmp_path / "same.txt", "".join(f"Sentence {n}!\tSatz {n // 4}\n" for n in range(2000)))
    done = run_tool("split-tatoeba", source, tmp_path / "same", "--share", "0.1", cwd=tmp_path)
    german = {name: (tmp_path / "same" / f"{name}.de").read_text().splitlines() for name in ("train", "valid", "test")}
    assert not set(german["train"]) & {*german["valid"], *german["test"]}
    assert not set(german["valid"]) & set(german["test"])
    assert f"{2000 - sum(map(len, german.values()))} dropped: their German sentence is in another set" in done.stdout
    broken = write(tmp_path / "broken.txt", "one\teins\ntwo\n")
    done = run_tool("split-tatoeba", broken, tmp_path / "none", cwd=tmp_path)
    assert_refused(done, "broken.txt, line 2: must be English, tab, German, but is 'two'.")


def test_prepared_files_are_compared_with_the_published_ones(tmp_path):
    same, other = write(tmp_path / "text" / "valid.de", "a\n"), write(tmp_path / "text" / "test.de", "b\n")
    sums = f"{hashlib.sha256(same.read_bytes()).hexdigest()} text/valid.de\n{'0' * 64} text/{other.name}\n"
    done = run_tool("compare", write(tmp_path / "sums", sums), tmp_path, cwd=tmp_path)
    assert done.returncode == 0
    assert (
        done.stdout == "text/valid.de: identical to the published file\ntext/test.de: DIFFERS from the published file\n"
    )


def test_where_a_file_differs_from_the_published_one_is_said(corpus, tmp_path):
    lines = [f"line {n}\n".encode() for n in range(60)]
    published = corpus.checksum_blocks(b"".join(lines))
    assert len(published) == 3 * 6
    changed = [*lines[:30], b"other\n", *lines[31:]]
    assert corpus.describe_difference(b"".join(changed), published) == " in 1 of 3 blocks of 25 lines: lines 26-50"
    shifted = corpus.describe_difference(b"".join([*lines[:3], *lines[4:]]), published)
    assert shifted == " in 3 of 3 blocks of 25 lines: lines 1-25, 26-50, 51-75"
    assert corpus.describe_difference(b"".join(changed)) == ""


def test_the_tool_says_what_it_can_do(tmp_path):
    done = subprocess.run(
        [sys.executable, str(TOOL), "--help"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert "split-tatoeba" in done.stdout
