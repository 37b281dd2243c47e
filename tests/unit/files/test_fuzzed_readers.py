"""Whatever the bytes of a file, its reader gives an answer or one sentence, and stays small and quick.

Each reader gets valid files with damage, in a process of its own (``support.bounded_reader``). Few are tried by
default, always the same ones; many others with ``-m slow``. What was once found is in ``FOUND``, and tried each time.
"""

import io
import json
import mmap
import os
import re
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.bounded_reader import MEBIBYTE, BoundedReader, RuleError
from support.damage import compress, damaged_bytes, damaged_file, damaged_gzip, damaged_json, damaged_zip
from support.helpers import REPOSITORY, load_program, save_checkpoint
from support.translation_models import ENGLISH, GERMAN

from muse_plugin.checkpoints.safe_loading import load_checkpoint
from muse_plugin.checkpoints.whole_checkpoints import find_damage
from muse_plugin.matching.vector_cache import (
    IDS_NAME,
    META_NAME,
    VECTORS_NAME,
    CacheMeta,
    VectorCache,
    plan_blocks,
    write_meta,
)
from muse_plugin.modules.bert_encoder import BertSizes
from muse_plugin.preparation.corpus_formats import parse_format
from muse_plugin.preparation.labelled_sentences import SentenceReader
from muse_plugin.preparation.vocabulary import list_words, load_dictionary
from muse_plugin.pretrained.bert_weights import read_bert_sizes
from muse_plugin.pretrained.word_vectors import average_character_ngrams, read_word_vectors
from muse_plugin.text.byte_pair_encoding import BytePairEncoding
from muse_plugin.text.sentence_pieces import SentencePieces
from muse_plugin.text.text_pipeline import TextPipeline
from muse_plugin.text.text_settings import FILE_NAME, load_text_settings, make_sentence_settings
from muse_plugin.text.tokenizer import Tokenizer
from muse_plugin.text.word_pieces import WordPieces, choose_rules
from muse_plugin.text.word_pieces import read_vocabulary as read_word_pieces

FIXTURES = REPOSITORY / "tests" / "fixtures"
LINE = "Wo ist der Bahnhof? \u00e4\u2581@@ </s> 2:30"
WORDS = {"a": 0, "the": 1, "of": 2, **{f"word{number}": number for number in range(3, 20_000)}}


corpus = load_program(REPOSITORY / "examples" / "recipe" / "corpus.py")  # which unpacks archives


# ---- readers, which get the path of the damaged file -----------------------------------------------------------------


def read_archive(path):
    unpacked = path.parent / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    corpus.extract(path, unpacked, ["corpus.de", "corpus.en"])


def read_pipeline(path):
    pipeline = TextPipeline.load(path.parent)
    assert "\n" not in pipeline.encode_source(LINE) + pipeline.decode(pipeline.encode_target(LINE))


def read_sentence_settings(path):
    stored, _ = load_text_settings(path.parent)
    tokenizer = Tokenizer.load(stored)
    assert "\n" not in tokenizer.join(" ".join(tokenizer.split(LINE)))


def read_codes(path):
    codes = BytePairEncoding(path.read_bytes().decode("utf-8", errors="replace"), str(path))
    pieces = codes.split(LINE.split())
    assert "".join(pieces).replace("@@", "") == LINE.replace(" ", "").replace("@@", "")


def read_pieces(path):
    pieces = SentencePieces(path.read_bytes(), str(path))
    pieces.split(LINE.split())
    pieces.list_pieces()


def read_vocabulary(path):
    list_words(load_dictionary(path))


def read_vectors(path):
    vectors, found = read_word_vectors(path, WORDS)
    assert torch.isfinite(vectors[found]).all()


def read_ngrams(path):
    average_character_ngrams(path, dict(list(WORDS.items())[:100]))


def read_bert_folder(path):
    read_bert_sizes(path.parent)
    rules, _ = choose_rules(path.parent)
    WordPieces(read_word_pieces(path.parent / "vocab.txt"), rules).split(LINE)


def read_cache(path):
    cache = VectorCache(path.parent)
    rows = plan_blocks(256, cache.width, 1).corpus
    assert sum(len(block) for _, block in cache.blocks(rows)) == len(cache)
    names = cache.names(range(len(cache)))
    assert cache.find(names).keys() == set(names)


def labelled_text_reader(form: str, check_tags: bool = False, **flags):
    """What ``prepare-text`` reads of one split."""

    def read(path):
        tokenizer = Tokenizer(make_sentence_settings("en", "none", "none"))
        corpus_format = parse_format(form, **flags)
        for sentence in SentenceReader(corpus_format, tokenizer, check_tags=check_tags).read(path, "--train"):
            assert all(sentence.sides)

    return read


# ---- valid files -----------------------------------------------------------------------------------------------------


class Reader(NamedTuple):
    """A reader and what it is tried with.

    Attributes:
        read: takes the path of a file, which is damaged; files next to it are not.
        make: writes a valid folder, and returns for each file the contents that it may get instead.
        few: examples in the default suite; as many more with ``-m slow`` as ``MANY`` says.
    """

    read: Callable[[Path], object]
    make: Callable[[Path], dict[str, st.SearchStrategy]]
    few: int = 60


PICKLE = [
    *(b"]" * 10_000, b"]\x94" * 10_000, b"(" * 10_000, b"}" * 10_000, b"\x85" * 10_000, b"0", b"R", b"b", b"Q", b"."),
    *(b"cbuiltins\nlist\n", b"cbuiltins\nint\n", b"ctorch\nTensor\n", b"cnumpy\ndtype\n", b"\x8a\xff" + b"9" * 255),
    *(
        b"cos\n\x1b[2J\n",
        b"X\xff\xff\xff\x7f",
        b"B\xff\xff\xff\x7f",
        b"J\xff\xff\xff\x7f",
        b"h\0",
        b"j\xff\xff\xff\xff",
    ),
]


LARGEST_PICKLE = 120_000  # bytes


def make_checkpoints(folder):
    new, old = folder / "new.pt", folder / "old.pt"
    save_checkpoint(new, {"weight": torch.arange(20.0), "bias": torch.ones(3, dtype=torch.float16)})
    save_before_1_6 = partial(torch.save, _use_new_zipfile_serialization=False)
    save_before_1_6({**load_checkpoint(new), "model": {"weight": torch.arange(20.0)}, "last_optimizer_state": {}}, old)
    # It names the parameter by where it was in memory, but the same examples are to be tried each time.
    old.write_bytes(re.sub(rb"X.\0\0\0\d{9,}", b"X\x01\x00\x00\x001", old.read_bytes(), flags=re.DOTALL))
    content = new.read_bytes()
    return {
        "new.pt": st.one_of(damaged_zip(content, "data.pkl", PICKLE, LARGEST_PICKLE), damaged_zip(content, "data/0")),
        "old.pt": damaged_bytes(old.read_bytes(), PICKLE, LARGEST_PICKLE),
    }


def make_archives(folder):
    text = b"Wo ist der Bahnhof?\n" * 20
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (("in/corpus.de", text), ("in/corpus.en.gz", compress(text))):
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in (("in/corpus.de", text), ("in/corpus.en.gz", compress(text))):
            member = tarfile.TarInfo(name)
            member.size, member.pax_headers = len(content), {"comment": "ä"}
            archive.addfile(member, io.BytesIO(content))
    (folder / "a.tar").write_bytes(buffer.getvalue())
    (folder / "a.tgz").write_bytes(compress(buffer.getvalue()))
    types = [
        b"ustar  \0",
        b"ustar\00000",
        b"x",
        b"g",
        b"L",
        b"S",
        b"1",
        b"20 path=../x\n",
        b"77777777777\0",
        b"\x80" * 12,
    ]
    return {
        "a.zip": st.one_of(
            damaged_zip((folder / "a.zip").read_bytes(), "corpus.en.gz"),
            damaged_bytes((folder / "a.zip").read_bytes(), [b"PK\1\2", b"PK\5\6", b"PK\6\6", b"PK\6\7"]),
        ),
        "a.tar": damaged_bytes(buffer.getvalue(), types),
        "a.tgz": damaged_gzip((folder / "a.tgz").read_bytes(), types),
    }


def make_pipelines(folder):
    files = {}
    for version in (1, 2):
        shutil.copytree(FIXTURES / f"text_pipeline_version_{version}", folder / str(version))
    for subwords in ("bpe", "sentencepiece", "none"):
        pipeline = TextPipeline.learn("de", "en", GERMAN, ENGLISH, 40, subwords=subwords)
        pipeline.save(folder / subwords)
    for path in sorted(folder.glob(f"*/{FILE_NAME}")):
        files[f"{path.parent.name}/{FILE_NAME}"] = damaged_json(path.read_bytes())
    return files


def make_sentence_settings_files(folder):
    files = {}
    for version in (1, 2, 3):
        shutil.copytree(FIXTURES / f"text_version_{version}", folder / str(version))
        files[f"{version}/text.json"] = damaged_json((folder / str(version) / "text.json").read_bytes())
    vocabulary = (folder / "2" / "vocab.txt").read_bytes()
    files["2/vocab.txt"] = damaged_bytes(vocabulary, [b"[UNK]", b"[UNK]\n", b"<s>\n", b"##\n", b"\n\n"])
    return files


BERT = BertSizes(30, 8, 1, 2, 12, 16)


def make_bert_folder(folder):
    """A folder as transformers writes it, as far as its small files go."""
    contents = {
        "config.json": {**BERT._asdict(), "model_type": "bert"},
        "tokenizer_config.json": {"do_lower_case": True, "strip_accents": None},
        "tokenizer.json": {"normalizer": {"type": "BertNormalizer", "lowercase": True, "strip_accents": False}},
    }
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content))
    shutil.copyfile(FIXTURES / "text_version_2" / "vocab.txt", folder / "vocab.txt")
    (folder / "model.safetensors").write_bytes(bytes(1 << 16))  # only its size is read
    vocabulary = damaged_bytes((folder / "vocab.txt").read_bytes(), [b"[UNK]", b"<s>\n", b"##\n", b"\n\n"])
    return {"vocab.txt": vocabulary, **{name: damaged_json((folder / name).read_bytes()) for name in contents}}


def single(name: str, content: bytes, *odd: bytes):
    """Makes a folder with one file."""

    def make(folder):
        (folder / name).write_bytes(content)
        if content.startswith(b"\x1f\x8b"):
            return {name: damaged_gzip(content, odd)}
        return {name: damaged_bytes(content, odd)}

    return make


def make_codes(folder):
    codes = (FIXTURES / "text_version_3" / "bpe.codes").read_bytes()
    odd = [b"@@ @@\n", b"</w> </w>\n", b"e </w>\n", b"#version: 0.1\n", b"a  b\n", b"\r\n", b"a\xa0b c\n", b"\n\n"]
    return single("bpe.codes", codes, *odd)(folder)


def make_pieces(folder):
    return {
        name: content
        for subwords in ("unigram", "bpe")
        for name, content in single(
            f"{subwords}.model",
            TextPipeline.learn("de", "en", GERMAN, ENGLISH, 40, subwords=f"sentencepiece:{subwords}").source.content,
            *(b"\n\xff\xff\xff\xff\x0f", b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02", b"\x12\0", b"\x1a\0"),
        )(folder).items()
    }


def make_vectors(folder):
    rows = b"the 0.1 -2.5 3e-2\na 1 2 3\nof 4 5 6\nNew York 1 2 3\n"
    return {
        name: content
        for single_file in (
            single("rows.txt", rows, b"1 " * 50_000, b" ", b"word7 1 2 3\n", b" 1" * 30_000),
            single("header.vec", b"4 3\n" + rows, b"3 100000\n", b"1 2 3\n"),
            single("rows.txt.gz", compress(rows), b"1 " * 50_000),
        )
        for name, content in single_file(folder).items()
    }


def make_cache(folder):
    ids = "first\nsecond\nthird ä\n".encode()
    meta = CacheMeta("f" * 64, "t" * 64, True, 3, 4, "float32", 5, done=3, id_bytes=len(ids), whole=True)
    write_meta(meta, folder)
    (folder / IDS_NAME).write_bytes(ids)
    (folder / VECTORS_NAME).write_bytes(struct.pack("<12f", *range(12)))
    return {
        META_NAME: damaged_json((folder / META_NAME).read_bytes()),
        IDS_NAME: damaged_bytes(ids),
        VECTORS_NAME: damaged_bytes((folder / VECTORS_NAME).read_bytes()),
    }


CONLL = b"-DOCSTART- O\n\n#text\nJan NNP B-PER\nde NN I-PER\nwas VB O\n\nRom\tNNP\tB-LOC\n"
CONLLU = (
    b"# text = x\n1-2\tIm\t_\t_\t_\n1\tIn\tin\tADP\tI\n2\tdem\tder\tDET\tD\n2.1\t_\t_\t_\t_\n\n1\tRom\tRom\tPROPN\tN\n"
)
CSV = b'text,label,more\n"a ""b"", c\nd",1,x\ne,2,y\n'
MARKS = [
    b'"',
    b'""',
    b"\t",
    b",",
    b"\r",
    b"\n\n",
    b'"a\n' * 1000,
    b"-DOCSTART-",
    b"<s>",
    b"madeupword0001",
    b"I-\n",
    b"B-",
]

READERS = {
    "checkpoint": Reader(load_checkpoint, make_checkpoints, 150),
    "damage of a checkpoint": Reader(find_damage, make_checkpoints),
    "archive": Reader(read_archive, make_archives, 100),
    "text pipeline": Reader(read_pipeline, make_pipelines, 150),
    "text settings of sentence models": Reader(read_sentence_settings, make_sentence_settings_files, 150),
    "folder of a BERT": Reader(read_bert_folder, make_bert_folder),
    "dictionary": Reader(read_vocabulary, single("dict.txt", b"the 40\na 30\n<unk> 2 #fairseq:overwrite\nof 3\n")),
    "BPE codes": Reader(read_codes, make_codes),
    "SentencePiece model": Reader(read_pieces, make_pieces),
    "word vectors": Reader(read_vectors, make_vectors, 100),
    "vectors of n-grams": Reader(read_ngrams, single("v.txt", b"1gram-a 1 2\n2gram-#BEGIN#a 3 4\n3gram-abc 5 6\n"), 30),
    "cache of vectors": Reader(read_cache, make_cache, 150),
    "label-tab-text": Reader(labelled_text_reader("label-tab-text"), single("a.tsv", b"1\ta b\n0\tc\td\n", *MARKS)),
    "tsv": Reader(
        labelled_text_reader("tsv:text=no,label=2,pair=b"), single("a.tsv", b"no\tl\tb\nx\t1\ty\nz\t2\tu v\n", *MARKS)
    ),
    "csv": Reader(labelled_text_reader("csv"), single("a.csv", CSV, *MARKS), 100),
    "csv in gzip": Reader(labelled_text_reader("csv:text=1,label=2"), single("a.csv.gz", compress(CSV), *MARKS), 30),
    "conll": Reader(labelled_text_reader("conll", check_tags=True), single("a.conll", CONLL, *MARKS)),
    "conllu": Reader(labelled_text_reader("conll", conllu=True), single("a.conllu", CONLLU, *MARKS)),
}

TEXT = '"source": {}, "target": {}'


def settings_of(texts: str, file: str = "none/text_pipeline.json") -> tuple[str, bytes]:
    return file, f'{{"format_version": 4, "texts": {{{texts}}}}}'.encode()


def version_1(**changes) -> tuple[str, bytes]:
    path = FIXTURES / "text_pipeline_version_1" / FILE_NAME
    return f"1/{FILE_NAME}", json.dumps({**json.loads(path.read_bytes()), **changes}).encode()


def text_version_1(**changes) -> tuple[str, bytes]:
    path = FIXTURES / "text_version_1" / "text.json"
    return "1/text.json", json.dumps({**json.loads(path.read_bytes()), **changes}).encode()


def cache_of(**changes) -> tuple[str, bytes]:
    meta = CacheMeta("f" * 64, "t" * 64, True, 3, 4, "float32", 5, done=3, id_bytes=21, whole=True)
    return META_NAME, json.dumps({"format_version": 1, **asdict(meta), **changes}).encode()


# What was found: the file, and its content.
def zip_with_undecodable_name() -> bytes:
    """An archive that says the name of its part is UTF-8, which it is not."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl\xe9", b"\x80\x02}.")
    return buffer.getvalue().replace("\xe9".encode(), b"\x80\x80")


FOUND: dict[str, list[tuple[str, bytes]]] = {
    "checkpoint": [
        ("old.pt", b"\x80\x02X\xff\xff\xff\xff"),  # a text of 4 GiB
        ("old.pt", b"\x80\x02cos\x1b\nsystem\n."),
        ("old.pt", b"\x80\x02cx" + b"a" * 100_000 + b"\nb\n."),  # torch looks at it for minutes
        ("new.pt", zip_with_undecodable_name()),
    ],
    "damage of a checkpoint": [("old.pt", b"\x80\x02X\xff\xff\xff\xff")],
    "text pipeline": [
        settings_of(TEXT + ', "\\u001b[2J": {}'),
        version_1(bpe_codes="a\xa0b"),
        version_1(bpe_codes="a" * 300),
        version_1(bpe_codes="\ud800"),
        version_1(bpe_codes_sha256="a\0b"),
    ],
    "text settings of sentence models": [
        text_version_1(**{"a\nb": 1}),
        text_version_1(splits={"x" * 2000: {}}),
        text_version_1(splits={str(number): {} for number in range(1000)}),
    ],
    "folder of a BERT": [
        ("config.json", json.dumps({**BERT._asdict(), "num_hidden_layers": "x" * 2000}).encode()),
        ("config.json", json.dumps({"model_type": "x" * 2000}).encode()),
        ("tokenizer_config.json", json.dumps({"do_lower_case": "x" * 2000}).encode()),
        ("vocab.txt", (b"x" * 2000 + b"\n") * 2),
    ],
    "dictionary": [("dict.txt", b"\0"), ("dict.txt", b"x" * 2000)],
    "word vectors": [("rows.txt", b"a" + b" 1" * 50_000), ("header.vec", b"1 50000\na" + b" 1" * 50_000)],
    "vectors of n-grams": [("v.txt", b"1gram-a 1 " + b"9" * 4000)],
    "cache of vectors": [
        cache_of(**{"\x1b[2J": 1}),
        cache_of(id_bytes=-(10**4000)),
    ],
    "label-tab-text": [("a.tsv", b"x " * 2000 + b"\ta"), ("a.tsv", b"<s>" + "\u200b".encode() * 2000 + b"\ta")],
    "conll": [("a.conll", b"a X" + b"x" * 2000), ("a.conll", b"a B-" + b"x" * 2000 + b"\nb I-y")],
}

# ---- tests -----------------------------------------------------------------------------------------------------------

FEW = settings(
    deadline=None,  # the limit on time is that of the reader
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
MANY = 20  # times as many with -m slow


@pytest.fixture(scope="session")
def valid_folders(tmp_path_factory):
    """Makes the valid files of a reader when they are first asked for."""
    made: dict[str, tuple[Path, dict[str, st.SearchStrategy]]] = {}

    def make(name):
        if name not in made:
            folder = tmp_path_factory.mktemp("valid")
            made[name] = folder, READERS[name].make(folder)
        return made[name]

    return make


def try_damage(name: str, valid: Path, files: dict[str, st.SearchStrategy], folder: Path, tries: settings) -> None:
    """Reads damaged files, each between valid ones.

    Args:
        name: of the reader.
        valid: the folder of valid files.
        files: what may be in place of each.
        folder: where the files are damaged; it must not exist.
        tries: how many.
    """
    shutil.copytree(valid, folder)
    reader = BoundedReader(READERS[name].read, valid / next(iter(files)))

    @tries
    @given(damaged_file(files))
    def read(damaged):
        file, content = damaged
        (folder / file).write_bytes(content)
        try:
            reader(folder / file)
        finally:
            shutil.copyfile(valid / file, folder / file)

    for found in FOUND.get(name, []):
        read = example(found)(read)
    try:
        read()
    finally:
        reader.close()


@pytest.mark.parametrize("name", READERS)
def test_every_valid_file_is_read(valid_folders, name):
    folder, files = valid_folders(name)
    for file in files:
        READERS[name].read(folder / file)


@pytest.mark.parametrize("name", READERS)
def test_any_bytes_are_read_or_refused_in_one_sentence(tmp_path, valid_folders, name):
    try_damage(name, *valid_folders(name), tmp_path / "damaged", settings(FEW, max_examples=READERS[name].few))


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_many_other_bytes_are_read_or_refused_in_one_sentence(tmp_path, valid_folders, name):
    tries = settings(FEW, max_examples=MANY * READERS[name].few, derandomize=False, print_blob=True)
    try_damage(name, *valid_folders(name), tmp_path / "damaged", tries)


# ---- the limits themselves -------------------------------------------------------------------------------------------


@pytest.fixture
def bounded(tmp_path) -> Iterator[Callable[[str], str]]:
    """Reads a file whose content is what is to be done."""

    def read(path):
        what = path.read_text()
        if what == "memory":
            pages = mmap.mmap(-1, 40 * MEBIBYTE)  # new ones: malloc may have as many left from the parent
            pages[:: mmap.PAGESIZE] = bytes(len(pages) // mmap.PAGESIZE)
        elif what == "addresses":
            bytearray(1 << 40)
        elif what == "time":
            while True:
                pass
        elif what == "end":
            os._exit(0)
        elif what == "fault":
            raise KeyError(what)
        elif what:
            raise ValueError(what.replace("PATH", str(path)))

    path, valid = tmp_path / "a", tmp_path / "valid"
    valid.write_text("")
    reader = BoundedReader(read, valid, memory=30 * MEBIBYTE, seconds=0.5)

    def call(what: str) -> str:
        path.write_text(what)
        return reader(path)

    yield call
    reader.close()


@pytest.mark.parametrize(
    ("what", "fault"),
    [
        ("memory", r"took \d\d MiB"),
        ("addresses", "MemoryError"),
        ("time", r"took 0\.5 s"),
        ("end", "ended with code 0"),
        ("fault", "KeyError: 'fault'"),
        ("PATH is\nwrong", "on one line"),
        ("\x1b PATH", "on one line"),
        ("it is wrong", "does not name the file"),
        ("PATH " + "x" * 2000, r"has 2,?\d+ characters"),
    ],
)
def test_a_reader_that_breaks_a_rule_is_noticed_and_the_next_file_is_read(bounded, what, fault):
    with pytest.raises(RuleError, match=fault):
        bounded(what)
    assert bounded("") == ""
    assert bounded("PATH is wrong.").endswith("a is wrong.")
