"""``muse-plugin prepare-translation``: parallel text in, the folder that ``fairseq-train`` and ``translate`` read out.

The folder holds dictionaries and binary files as ``fairseq-preprocess`` makes them and the text pipeline (see
``text/text_pipeline.py``). Three passes are between: raw lines to words, words to subwords that were learned on the
training text alone, subwords to numbers. What each leaves is in files, so that the text need not fit into memory;
the number of its line goes with each pair, for messages.
"""

import argparse
import re
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple

import torch
from fairseq.data import Dictionary
from tqdm import tqdm

from muse_plugin.files.built_folder import build_folder
from muse_plugin.files.lines import iterate_lines
from muse_plugin.preparation.output_folder import list_data
from muse_plugin.preparation.parallel_map import map_in_order
from muse_plugin.preparation.split_files import (
    check_validation,
    choose_part,
    count_tokens,
    divide_lines,
    iterate_tokens,
    list_files,
)
from muse_plugin.preparation.translation_settings import make_translation_settings
from muse_plugin.preparation.vocabulary import binarise, build_dictionary, build_piece_dictionary
from muse_plugin.text.sentence_pieces import SentencePieces
from muse_plugin.text.text_pipeline import TextPipeline, kind_of, learn_subwords, make_word_splitter
from muse_plugin.text.text_settings import FILE_NAME, TextSettings
from muse_plugin.text.tokenizer import Tokenizer
from muse_plugin_command.flag_checks import check_positive

TRAIN_TEXT = "train.tok"  # where the task with BPE-dropout looks for it
CHARACTERS_PER_TOKEN = 20  # a longer line is refused before it is tokenised, which may take quadratic time

_SUBWORDS = re.compile(r"none|(?P<kind>bpe|sentencepiece(:unigram|:bpe)?):(?P<size>0*[1-9]\d{0,8})")
_LINE_NUMBERS = "line-numbers"  # no language
_DATA = re.compile(
    r"(train|valid|test\d*)\.\w+-\w+\.\w+\.(bin|idx)|dict\.\w+\.txt|preprocess\.log"
    rf"|(bpe|sentencepiece)(\.source|\.target)?\.(codes|model)|{re.escape(FILE_NAME)}|{re.escape(TRAIN_TEXT)}\.\w+"
)
_PRESETS = (  # the most training pairs that each is for, and what it is trained with
    (100_000, "muse_tiny", "--lr 0.004 --warmup-updates 500"),
    (2_000_000, "muse_iwslt_de_en", "--lr 0.001 --warmup-updates 4000"),
    (sys.maxsize, "muse_large", "--lr 0.001 --warmup-updates 4000 --update-freq 16 --dropout 0.3"),
)
_MANY_PAIRS = 100_000  # from which progress is shown


class Pair(NamedTuple):
    """A sentence and its translation.

    Attributes:
        line: its number in both files, from 1.
        source: text, words or subwords, as far as it has come.
        target: the same of the other language.
    """

    line: int
    source: str
    target: str


class Split(NamedTuple):
    """Two files, one for each language.

    Attributes:
        name: ``train``, ``valid``, ``test``, ``test1``, ...
        flag: what names them on the command line.
        paths: source and target.
    """

    name: str
    flag: str
    paths: tuple[Path, Path]

    def read(self) -> Iterator[Pair]:
        """Yields the pairs of lines.

        Raises:
            ValueError: if a line cannot be read, or the files have different numbers of lines.
        """
        source, target = (iterate_lines(path, self.flag) for path in self.paths)
        for one, other in zip_longest(source, target):
            if one is None or other is None:
                counts = [sum(1 for _ in iterate_lines(path, self.flag)) for path in self.paths]
                raise ValueError(
                    f"{self.flag}: line n of one file must translate line n of the other, but {self.paths[0]} has "
                    f"{counts[0]:,} lines and {self.paths[1]} {counts[1]:,}; make the shorter one again."
                )
            yield Pair(one[0], one[1], other[1])


class Count(NamedTuple):
    """What a prepared split holds: pairs, and the tokens of both sides."""

    pairs: int
    source: int
    target: int


def run(args: argparse.Namespace) -> int:
    """Prepares the data; the body of ``muse-plugin prepare-translation``.

    Raises:
        ValueError: if flags do not fit or a line of a file is not as it must be.
        FileNotFoundError: if a file is missing.
        FileExistsError: if the output folder must not be replaced.
    """
    sides = _check_flags(args)
    languages = (args.source_lang, args.target_lang)
    splits = [Split(name, flag, _find_files(prefix, languages, flag)) for name, prefix, flag in list_files(args)]
    names = list_data(args.output, lambda name: _DATA.fullmatch(name) is not None)
    if names and not args.overwrite:
        raise FileExistsError(
            f"--output must name a new or an empty folder, but {args.output} holds {', '.join(names[:3])}; name "
            "another folder or give --overwrite."
        )
    with build_folder(args.output) as folder:
        lines = _Preparation(args, sides, splits, folder).run()
    print("\n".join(lines))
    return 0


def _check_flags(args: argparse.Namespace) -> tuple[TextSettings, TextSettings]:
    check_positive(args, "max_length", "workers")
    subwords, _ = _parse_subwords(args.subwords)
    sides = make_translation_settings(args, [kind_of(subwords)] * 2)
    check_validation(args)
    if not args.valid and args.valid_from_train is None:
        raise ValueError(
            "training needs sentences to validate on, but neither --valid PREFIX nor --valid-from-train is given; "
            "add one, such as --valid-from-train 1000."
        )
    if set(",:") & set(str(args.output.resolve())):
        raise ValueError(
            f"--output must have neither a comma nor a colon in its path, where fairseq would split it, but got "
            f"{args.output.resolve()}; name another folder."
        )
    return sides


def _parse_subwords(text: str) -> tuple[str, int]:
    """Reads ``--subwords``: what ``learn_subwords`` calls them, and how many."""
    match = _SUBWORDS.fullmatch(text)
    if not match:
        raise ValueError(
            "--subwords must be sentencepiece:N, sentencepiece:unigram:N, sentencepiece:bpe:N or bpe:N with N at least "
            f"1, or none, but got {text!r}; sentencepiece:8000 is usual."
        )
    return match["kind"] or "none", int(match["size"] or 0)


def _find_files(prefix: Path, languages: tuple[str, str], flag: str) -> tuple[Path, Path]:
    found = []
    for lang in languages:
        path = next((path for end in ("", ".gz") if (path := Path(f"{prefix}.{lang}{end}")).is_file()), None)
        if path is None:
            raise FileNotFoundError(
                f"{flag} {prefix} must stand for {prefix}.{languages[0]} and {prefix}.{languages[1]}, each perhaps "
                f"with .gz, but there is no {prefix}.{lang}; check the path and the languages."
            )
        found.append(path)
    return found[0], found[1]


class _Preparation:
    """One run: the steps in their order, and the lines of the report that they add.

    Args:
        args: the flags of the command, checked.
        sides: what is done to the text of both languages.
        splits: the files, the training split first.
        folder: an empty folder to fill.
    """

    def __init__(
        self, args: argparse.Namespace, sides: tuple[TextSettings, TextSettings], splits: list[Split], folder: Path
    ) -> None:
        self.args = args
        self.sides = sides
        self.splits = splits
        self.folder = folder
        self.words = folder / "words"
        self.cut = folder / "subwords"
        self.languages = (args.source_lang, args.target_lang)
        self.dropped: dict[str, Counter[str]] = {}

    def run(self) -> list[str]:
        """Fills the folder; returns the lines of the report."""
        for folder in (self.words, self.cut):
            folder.mkdir()
        for split in self.splits:
            self._write_words(split)
        if self.args.valid_from_train:
            self._divide_training()
        pipeline = self._learn()
        pipeline.save(self.folder)
        counts = {split.name: self._write_subwords(split, pipeline) for split in self.splits}
        self._binarise(pipeline)
        if self.args.keep_train_text:
            self._save_train_text()
        for folder in (self.words, self.cut):
            shutil.rmtree(folder)
        return [*self._describe(counts), f"written to {self.args.output}", "", *self._say_what_next(counts)]

    def _write_words(self, split: Split) -> None:
        most = CHARACTERS_PER_TOKEN * self.args.max_length
        rule = f"a line must have at most {most:,} characters, {CHARACTERS_PER_TOKEN} for each token of --max-length"
        pairs = self._keep(split, split.read(), "long", rule, lambda text: len(text) <= most)
        pairs = map_in_order(partial(_start_words, self.sides), pairs, self.args.workers)
        pairs = self._keep(split, pairs, "empty", "a line must hold a sentence", bool)
        self._write(self.words / split.name, pairs)

    def _divide_training(self) -> None:
        train = self.splits[0]
        numbers = self.words / f"train.{_LINE_NUMBERS}"
        chosen = choose_part(numbers, self.args.valid_from_train, self.args.seed, self.args.train)
        for end in (*self.languages, _LINE_NUMBERS):
            divide_lines(self.words / f"train.{end}", self.words / f"valid.{end}", chosen)
        self.splits.insert(1, train._replace(name="valid"))

    def _learn(self) -> TextPipeline:
        subwords, size = _parse_subwords(self.args.subwords)
        contents = [
            learn_subwords(subwords, chain.from_iterable(map(iterate_tokens, group)), size)
            for group in self._group_training_files(self.words)
        ]
        return TextPipeline(Tokenizer(self.sides[0], contents[0]), Tokenizer(self.sides[1], contents[-1]))

    def _write_subwords(self, split: Split, pipeline: TextPipeline) -> Count:
        most = self.args.max_length
        make_work = partial(_start_subwords, self.sides, (pipeline.source.content, pipeline.target.content))
        pairs = map_in_order(make_work, self._read(self.words / split.name), self.args.workers)
        pairs = self._keep(split, pairs, "empty", "a line must hold a sentence of characters that subwords know", bool)
        rule = f"a sentence must have at most {most:,} tokens (--max-length)"
        pairs = self._keep(split, pairs, "long", rule, lambda text: text.count(" ") < most)
        count = self._write(self.cut / split.name, pairs)
        if not count.pairs:
            raise ValueError(f"{split.flag} must hold sentences, but {split.paths[0]} has none that is kept; check it.")
        return count

    def _keep(
        self, split: Split, pairs: Iterable[Pair], flaw: str, rule: str, is_right: Callable[[str], bool]
    ) -> Iterator[Pair]:
        """Keeps the pairs of which both sides are right; the flag named like the flaw says what becomes of others."""
        dropped = self.dropped.setdefault(split.name, Counter())
        for pair in pairs:
            wrong = [path for path, text in zip(split.paths, pair[1:], strict=True) if not is_right(text)]
            if not wrong:
                yield pair
            elif getattr(self.args, flaw) == "skip":
                dropped[flaw] += 1
            else:
                raise ValueError(
                    f"{split.flag}: {rule}, but line {pair.line} of {wrong[0]} does not; correct it, or give --{flaw} "
                    "skip to drop such pairs."
                )

    def _write(self, prefix: Path, pairs: Iterable[Pair]) -> Count:
        number = source = target = 0
        with ExitStack() as stack:
            files = [
                stack.enter_context(Path(f"{prefix}.{end}").open("w", encoding="utf-8", newline="\n"))
                for end in (_LINE_NUMBERS, *self.languages)
            ]
            for pair in pairs:
                for file, value in zip(files, pair, strict=True):
                    file.write(f"{value}\n")
                number += 1
                source += pair.source.count(" ") + 1
                target += pair.target.count(" ") + 1
        return Count(number, source, target)

    def _read(self, prefix: Path) -> Iterator[Pair]:
        paths = [Path(f"{prefix}.{end}") for end in (_LINE_NUMBERS, *self.languages)]
        total = sum(1 for _ in iterate_tokens(paths[0]))
        columns = zip(*map(iterate_tokens, paths), strict=True)
        for number, source, target in tqdm(
            columns, f"subwords of {prefix.name}", total, unit=" pairs", disable=total < _MANY_PAIRS
        ):
            yield Pair(int(number[0]), " ".join(source), " ".join(target))

    def _binarise(self, pipeline: TextPipeline) -> None:
        pair = "-".join(self.languages)
        for lang, dictionary in zip(self.languages, self._make_dictionaries(pipeline), strict=True):
            dictionary.save(str(self.folder / f"dict.{lang}.txt"))
            for split in self.splits:
                prefix = self.folder / f"{split.name}.{pair}.{lang}"
                binarise(self.cut / f"{split.name}.{lang}", dictionary, prefix)

    def _make_dictionaries(self, pipeline: TextPipeline) -> tuple[Dictionary, Dictionary]:
        if self.sides[0].subwords == "sentencepiece":
            made = [build_piece_dictionary(SentencePieces(side.content).list_pieces()) for side in pipeline]
        else:
            made = [build_dictionary(count_tokens(group)) for group in self._group_training_files(self.cut)]
        return made[0], made[-1]

    def _group_training_files(self, folder: Path) -> list[list[Path]]:
        """The files that one set of subwords and one dictionary are made from: both together, or each by itself."""
        paths = [folder / f"train.{lang}" for lang in self.languages]
        return [[path] for path in paths] if self.args.separate else [paths]

    def _save_train_text(self) -> None:
        pairs = self._read(self.words / "train")
        numbers = (int(line) for (line,) in iterate_tokens(self.cut / f"train.{_LINE_NUMBERS}"))
        self._write(self.folder / TRAIN_TEXT, (next(pair for pair in pairs if pair.line == line) for line in numbers))
        (self.folder / f"{TRAIN_TEXT}.{_LINE_NUMBERS}").unlink()

    def _describe(self, counts: dict[str, Count]) -> list[str]:
        lines = []
        for name, count in counts.items():
            dropped = "".join(f", {number:,} {flaw} dropped" for flaw, number in self.dropped[name].items())
            lengths = f"{count.source / count.pairs:.1f} and {count.target / count.pairs:.1f}"
            lines.append(f"{name}: {count.pairs:,} pairs, {lengths} tokens a sentence{dropped}")
        return lines

    def _say_what_next(self, counts: dict[str, Count]) -> list[str]:
        data = shlex.quote(str(self.args.output))
        user_dir = '--user-dir "$(muse-plugin path)"'
        device = "--fp16" if torch.cuda.is_available() else "--cpu"
        arch, schedule = next(rest for most, *rest in _PRESETS if counts["train"].pairs <= most)
        shared = "" if self.args.separate else " --share-all-embeddings"
        cut = {"none": "", "subword-nmt": " --remove-bpe", "sentencepiece": " --remove-bpe sentencepiece"}
        path = "--path checkpoints/checkpoint_best.pt"
        lines = [
            "train, then translate raw text:",
            f"  fairseq-train {data} {user_dir} --arch {arch}{shared} --save-dir checkpoints {device} \\",
            "    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \\",
            f"    --optimizer adam --adam-betas '(0.9, 0.98)' --lr-scheduler inverse_sqrt {schedule} \\",
            "    --max-tokens 4096 --max-epoch 50 --patience 5 --keep-last-epochs 5",
            f"  muse-plugin translate {path} < raw.{self.languages[0]}",
        ]
        if "test" in counts:
            command = f"fairseq-generate {data} {user_dir} {path} --beam 5{cut[self.sides[0].subwords]}"
            lines += ["translate the test set:", f"  {command}"]
        return lines


def _start_words(sides: Sequence[TextSettings]) -> Callable[[Pair], Pair]:
    source, target = (make_word_splitter(side).split for side in sides)
    return lambda pair: Pair(pair.line, " ".join(source(pair.source)), " ".join(target(pair.target)))


def _start_subwords(sides: Sequence[TextSettings], contents: tuple[bytes, bytes]) -> Callable[[Pair], Pair]:
    source, target = (Tokenizer(side, content).cut for side, content in zip(sides, contents, strict=True))
    return lambda pair: Pair(pair.line, " ".join(source(pair.source.split())), " ".join(target(pair.target.split())))
