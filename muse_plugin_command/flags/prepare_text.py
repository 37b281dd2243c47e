"""The flags of ``muse-plugin prepare-text``."""

import argparse
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

FORMATS = (
    "label-tab-text, label-space-text, tsv:text=COLUMN[,pair=COLUMN],label=COLUMN, the same with csv:, csv (with the "
    "header text,label), conll or conll:WORD,TAG"
)
LONGEST_TEXT = 10_000  # words; gensim drops what follows


class Setting(NamedTuple):
    """A flag ``--word2vec-NAME``.

    Attributes:
        default: its value where it is not given.
        meaning: for ``--help``.
        least: the smallest number that it may be.
        below: it must be less than that.
        choices: what it may be, if it is no number.
    """

    default: Union[int, float, str]
    meaning: str
    least: float = 1
    below: float = 2**31
    choices: Optional[tuple[str, ...]] = None


SETTINGS = {
    "algorithm": Setting(
        "cbow",
        "for --word2vec: a word is predicted from the mean of those around it (cbow) or from each of them (skip-gram, "
        "several times as long, better on little text)",
        choices=("cbow", "skip-gram"),
    ),
    "min_count": Setting(5, "for --word2vec: words seen fewer than N times get no vector"),
    "window": Setting(5, "for --word2vec: words to either side that a word is predicted from", below=LONGEST_TEXT),
    "epochs": Setting(5, "for --word2vec: passes over the text"),
    "negative": Setting(5, "for --word2vec: words drawn at random that each prediction is told from", below=1_000),
    # gensim takes 1 and more for a number of words, not for a share.
    "sample": Setting(
        0.001,
        "for --word2vec: words with a larger share of the text are passed over at random, 0: none",
        least=0,
        below=1,
    ),
    "seed": Setting(1, "for --word2vec: of the first vectors and of what is sampled", least=0, below=2**32),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of ``muse-plugin prepare-text`` on ``parser``."""
    parser.description = (
        "Turn labelled text into training data for sentence models: dictionaries, fairseq's binary files and "
        "text_pipeline.json, which says how to treat new text. Files may be compressed with gzip."
    )
    add = parser.add_argument
    add("--train", type=Path, required=True, metavar="FILE", help="examples to train on")
    add("--valid", type=Path, metavar="FILE", help="examples to validate on")
    add("--test", type=Path, nargs="+", default=[], metavar="FILE", help="examples to test on: test, test1, ...")
    add("--output", type=Path, required=True, metavar="DIR", help="folder of the data, made if missing")
    add("--format", help=f"{FORMATS} (default: csv for a file .csv, else label-tab-text); columns count from 1")
    add("--header", action="store_true", help="the first line of each file is no example")
    add("--conllu", action="store_true", help="with conll: skip comments, ranges (1-2), empty nodes (8.1) of CoNLL-U")
    add("--numbers", action="store_true", help="labels are numbers, for regression")
    add("--tags", choices=("any", "bio"), default="any", help="check that tags are valid BIO (default: any)")
    add(
        "--bad-tags",
        choices=("refuse", "repair"),
        default="refuse",
        help="what happens to an I-X after neither B-X nor I-X: an error, or it becomes B-X (default: refuse)",
    )
    add(
        "--empty",
        choices=("refuse", "skip"),
        default="refuse",
        help="what happens to an example with an empty text: an error, or it is left out (default: refuse)",
    )
    add("--valid-from-train", metavar="SHARE|COUNT", help="validate on a random part of --train: 0.1 or 1000")
    add("--seed", type=int, default=1, help="chooses the part of --valid-from-train (default: 1)")
    add(
        "--lower-case",
        action=argparse.BooleanOptionalAction,
        help="lower-case all texts (default: no; word pieces: as the files in --bert-dir say, or as the vocabulary is)",
    )
    add(
        "--tokenizer",
        choices=("none", "moses", "wordpiece"),
        default="none",
        help="none: words are separated by spaces; wordpiece: BERT's word pieces (default: none)",
    )
    add("--bert-dir", type=Path, metavar="DIR", help="folder of a BERT model, whose vocab.txt has the pieces")
    add("--bpe-codes", type=Path, metavar="FILE", help="cut words into sub-words with these codes of subword-nmt")
    add("--sentencepiece-model", type=Path, metavar="FILE", help="cut words into pieces with this model")
    add("--language", default="en", help="two-letter code for Moses' rules (default: en)")
    add("--characters", action="store_true", help="also write the characters of the words, never lower-cased")
    vector = "a pretrained vector keeps a rare word"
    add("--threshold", type=int, default=0, metavar="N", help=f"words seen fewer than N times are unknown; {vector}")
    add("--max-words", type=int, default=0, metavar="N", help="keep the N most frequent words (default: 0, all)")
    add(
        "--vocabulary-from",
        choices=("train", "all"),
        default="train",
        help="count words in the training split or in all of them, for frozen pretrained vectors (default: train)",
    )
    add("--dict-from", type=Path, metavar="DIR", help="use the dictionaries of an earlier output of this command")
    add("--dictionary", type=Path, metavar="FILE", help="use this dictionary of words, such as a translation model's")
    add("--word-vectors", type=Path, metavar="FILE", help="pretrained vectors to cut to the vocabulary, as text")
    add("--word2vec", type=int, metavar="DIM", help="train vectors of this width on the training text (gensim)")
    _add_word2vec_flags(parser)
    add("--word2vec-text", type=Path, nargs="+", metavar="FILE", help="further texts for --word2vec, one a line")
    add("--overwrite", action="store_true", help="replace prepared data that was made with other settings")


def _add_word2vec_flags(parser: argparse.ArgumentParser) -> None:
    """Declares a flag for each of ``SETTINGS``; data made before a flag existed count as made without it."""
    for name, setting in SETTINGS.items():
        values: dict[str, Any] = (
            {"choices": setting.choices} if setting.choices else {"type": type(setting.default), "metavar": "N"}
        )
        parser.add_argument(flag_of(name), help=f"{setting.meaning} (default: {setting.default})", **values)


def flag_of(name: str) -> str:
    """The flag of a setting."""
    return f"--word2vec-{name.replace('_', '-')}"
