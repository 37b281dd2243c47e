"""The steps of ``muse-plugin prepare-text``, from files of examples to a filled folder."""

import argparse
import dataclasses
import functools
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Optional

import torch
from fairseq.data import Dictionary
from torch import Tensor

from muse_plugin.files.atomic_files import open_atomically
from muse_plugin.files.lines import iterate_lines
from muse_plugin.preparation.corpus_formats import CorpusFormat
from muse_plugin.preparation.label_dictionary import build_label_dictionary, check_header, check_known, check_several
from muse_plugin.preparation.labelled_sentences import SentenceReader
from muse_plugin.preparation.split_files import SplitFiles, count_tokens, iterate_tokens, list_files
from muse_plugin.preparation.summary import describe_coverage, describe_labels, describe_numbers, describe_splits
from muse_plugin.preparation.vocabulary import (
    binarise,
    build_dictionary,
    build_piece_dictionary,
    list_words,
    load_dictionary,
    measure_share,
)
from muse_plugin.preparation.word2vec import choose_settings, train_word_vectors
from muse_plugin.pretrained.word_vectors import (
    measure_likeness,
    read_word_vectors,
    warn_of_likeness,
    write_word_vectors,
)
from muse_plugin.text.data_record import DataRecord
from muse_plugin.text.lowered_words import find_character
from muse_plugin.text.sentence_pieces import SPACE_MARK
from muse_plugin.text.text_settings import save_texts
from muse_plugin.text.tokenizer import Tokenizer
from muse_plugin.text.word_pieces import VOCABULARY_NAME, parse_vocabulary

_UNKNOWN_WORD = Dictionary().unk_word


class _Vectors(NamedTuple):
    """Vectors that words may get.

    Attributes:
        rows: the row of each word that has one, be it in the vocabulary or not.
        table: shape (rows, width).
    """

    rows: dict[str, int]
    table: Tensor


@dataclasses.dataclass
class Preparation:
    """One run: the steps in their order, and the lines of the report that they add.

    Attributes:
        args: the flags of the command, checked.
        corpus_format: how its files are written.
        tokenizer: how text becomes words.
        record: of the data set; its splits and vocabulary are filled in at the end.
        earlier: the record of the data set whose dictionaries are used, if there is one.
        folder: an empty folder to fill.
        report: its lines so far.
    """

    args: argparse.Namespace
    corpus_format: CorpusFormat
    tokenizer: Tokenizer
    record: DataRecord
    earlier: Optional[DataRecord]
    folder: Path
    report: list[str] = dataclasses.field(default_factory=list)

    def run(self) -> list[str]:
        """Fills the folder.

        Returns:
            The lines of the report.

        Raises:
            ValueError: if a line of a file is not as it must be.
            FileNotFoundError: if an earlier dictionary is missing.
        """
        text_folder = self.folder / "text"
        text_folder.mkdir()
        splits = self._write_text(text_folder)
        # Labels first: what is wrong with them is found before the long steps.
        self._write_labels(splits)
        given, vectors = self._load_given_dictionary(), None
        if self.args.word_vectors:
            vectors = self._read_vectors(splits, given)
        elif self.args.word2vec:
            vectors = self._train_vectors(splits[0])
        words = self._write_inputs(splits, given or self._count_words(splits, vectors.rows if vectors else {}))
        if self.args.characters:
            self._write_characters(splits)
        if vectors:
            self._write_vectors(words, splits, vectors)
        shutil.rmtree(text_folder)
        self._save_settings(words, splits)
        return self.report

    def _write_text(self, folder: Path) -> list[SplitFiles]:
        sides = range(2 if self.record.pair else 1)
        keys = (*(f"input{i}" for i in sides), "label", *(f"characters{i}" for i in sides if self.args.characters))
        flags = (self.args.numbers, self.args.tags == "bio", self.args.bad_tags == "repair", self.args.empty == "skip")
        reader = SentenceReader(self.corpus_format, self.tokenizer, *flags)
        splits = []
        for name, path, flag in list_files(self.args):
            split = SplitFiles(folder, name, path, keys)
            split.write(reader.read(path, flag))
            splits.append(split)
        if self.args.valid_from_train:
            splits.insert(1, splits[0].move_part("valid", self.args.valid_from_train, self.args.seed))
        if all(split.name != "valid" for split in splits):
            self.report.append("no sentences for validation: give --valid, or --valid-from-train 0.1")
        if reader.skipped:
            self.report.append(f"skipped {reader.skipped:,} examples with an empty text")
        if reader.repaired:
            self.report.append(f"repaired {reader.repaired:,} tags that continued nothing: I-X became B-X")
        return splits

    def _write_labels(self, splits: list[SplitFiles]) -> None:
        folder = self.folder / "label"
        folder.mkdir()
        if self.record.numbers:
            for split in splits:
                shutil.copyfile(split.path("label"), folder / f"{split.name}.label")
            values = [float(tokens[0]) for tokens in iterate_tokens(splits[0].path("label"))]
            self.report.append(describe_numbers(values))
            return
        counts = count_tokens([splits[0].path("label")])
        if self.earlier:
            dictionary, where = load_dictionary(self.args.dict_from / "label" / "dict.txt"), str(self.args.dict_from)
        else:
            dictionary, where = build_label_dictionary(counts), "the training split"
        known = dictionary.symbols[dictionary.nspecial :]
        check_header(counts, splits[0].first_lines, splits[0].source)
        for split in splits:
            check_known(split.first_lines, known, split.source, where)
        check_several(known, splits[0].source)
        dictionary.save(str(folder / "dict.txt"))
        for split in splits:
            binarise(split.path("label"), dictionary, folder / split.name)
        self.report.append(describe_labels({label: counts[label] for label in known}, self.record.tags))

    def _write_inputs(self, splits: list[SplitFiles], dictionary: Dictionary) -> Dictionary:
        self._binarise("input", dictionary, splits)
        unknown_ids = {dictionary.unk(), dictionary.index(self.tokenizer.settings.unknown_piece or dictionary.unk_word)}
        unknown = {
            split.name: measure_share(split.counts.words, lambda word: dictionary.index(word) in unknown_ids)
            for split in splits
        }
        counts = {split.name: split.counts for split in splits}
        self.report += describe_splits(counts, unknown, self.record.pair)
        self.report.append(f"vocabulary: {len(list_words(dictionary)):,} words, {len(dictionary):,} rows")
        return dictionary

    def _load_given_dictionary(self) -> Optional[Dictionary]:
        if self.earlier:
            return load_dictionary(self.args.dict_from / "input0" / "dict.txt")
        if self.args.bert_dir:
            return build_piece_dictionary(parse_vocabulary(self.tokenizer.content, str(self.args.bert_dir)))
        if self.args.dictionary:
            return load_dictionary(self.args.dictionary, "--dictionary")
        return None

    def _count_words(self, splits: list[SplitFiles], kept: Collection[str]) -> Dictionary:
        counted = splits if self.args.vocabulary_from == "all" else splits[:1]
        total: Counter[str] = sum((split.counts.words for split in counted), Counter())
        return build_dictionary(total, self.args.threshold, self.args.max_words, kept)

    def _write_characters(self, splits: list[SplitFiles]) -> None:
        if self.earlier:
            dictionary = load_dictionary(self.args.dict_from / "characters0" / "dict.txt")
        else:
            counts = count_tokens(splits[0].inputs("characters"))
            counts.setdefault(SPACE_MARK, 1)  # between words, which other splits may have where this one has no two
            dictionary = build_dictionary(counts)
        find = None
        if self.tokenizer.settings.lower_case:
            find = functools.partial(find_character, find=dictionary.index, unknown=dictionary.unk())
        self._binarise("characters", dictionary, splits, find)
        self.report.append(f"characters: {len(list_words(dictionary)):,}, {len(dictionary):,} rows")

    def _binarise(
        self,
        kind: str,
        dictionary: Dictionary,
        splits: list[SplitFiles],
        find: Optional[Callable[[str], int]] = None,
    ) -> None:
        for i in range(2 if self.record.pair else 1):
            key = f"{kind}{i}"
            (self.folder / key).mkdir()
            dictionary.save(str(self.folder / key / "dict.txt"))
            for split in splits:
                binarise(split.path(key), dictionary, self.folder / key / split.name, find)

    def _read_vectors(self, splits: list[SplitFiles], given: Optional[Dictionary]) -> _Vectors:
        """Vectors of the file, of all words of the texts and of the dictionary, if one is given."""
        everything = dict.fromkeys(list_words(given) if given else ())
        for split in splits:
            everything.update(dict.fromkeys(split.counts.words))
        everything.pop(_UNKNOWN_WORD, None)  # in a text it stands for any word
        rows = {word: row for row, word in enumerate(everything)}
        vectors, found = read_word_vectors(self.args.word_vectors, rows)
        return _Vectors({word: row for word, row in rows.items() if found[row]}, vectors)

    def _train_vectors(self, train: SplitFiles) -> _Vectors:
        """Vectors learned from the training text."""

        def iterate_texts() -> Iterator[list[str]]:
            for path in train.inputs():
                yield from iterate_tokens(path)
            for path in self.args.word2vec_text or ():
                for _, line in iterate_lines(path, "--word2vec-text"):
                    yield self.tokenizer.split(line)

        settings = choose_settings(self.args)
        model = train_word_vectors(iterate_texts, self.args.word2vec, settings)
        count, running, epochs = len(model.wv), model.corpus_total_words, settings["epochs"]
        self.report.append(f"word2vec: {count:,} words, learned from {running:,} words in {epochs} epochs")
        return _Vectors(model.wv.key_to_index, torch.from_numpy(model.wv.vectors.copy()))

    def _write_vectors(self, dictionary: Dictionary, splits: list[SplitFiles], vectors: _Vectors) -> None:
        vocabulary = list_words(dictionary)
        kept = [word for word in vocabulary if word in vectors.rows]
        if not kept:
            raise ValueError(self._explain_none(vocabulary))
        table = vectors.table[[vectors.rows[word] for word in kept]]
        with open_atomically(self.folder / "word_vectors.txt") as file:
            write_word_vectors(file, kept, table)
        seen = {split.name: measure_share(split.counts.words, {*kept}.__contains__) for split in splits}
        there = {split.name: measure_share(split.counts.words, vectors.rows.__contains__) for split in splits}
        self.report += describe_coverage(seen, there, len(kept), len(vocabulary), vectors.table.shape[1])
        cosine = measure_likeness(table)
        self.report.append(f"  mean cosine of two random words: {cosine:.3f}")
        warn_of_likeness(cosine, str(self.args.word_vectors or "--word2vec"))

    def _explain_none(self, vocabulary: list[str]) -> str:
        if self.args.word_vectors:
            return (
                f"--word-vectors must have vectors for words of the vocabulary, but {self.args.word_vectors} has none "
                f"of {len(vocabulary)}, such as {vocabulary[0]!r}; choose another file, or give --lower-case if its "
                "words are lower-cased."
            )
        return (
            f"--word2vec must learn vectors for words of the vocabulary, but none of {len(vocabulary)}, such as "
            f"{vocabulary[0]!r}, is frequent enough in the text; lower --word2vec-min-count."
        )

    def _save_settings(self, words: Dictionary, splits: list[SplitFiles]) -> None:
        source = VOCABULARY_NAME if self.args.bert_dir else self.args.vocabulary_from
        if self.args.dictionary:
            source = self.args.dictionary.name
        vocabulary: dict[str, Any] = {
            "threshold": self.earlier.vocabulary["threshold"] if self.earlier else self.args.threshold,
            "size": len(words),
            "from": "earlier" if self.earlier else source,
        }
        described = {
            split.name: {
                "sentences": split.counts.sentences,
                "words": split.counts.running,
                "file": split.source.name,
            }
            for split in splits
        }
        record = dataclasses.replace(self.record, splits=described, vocabulary=vocabulary)
        # With its subwords: new text is cut with them, wherever the model that they are from is by then.
        save_texts(self.folder, {"text": (self.tokenizer.settings, self.tokenizer.content)}, record)
