"""``muse-plugin prepare-text``: labelled text in, the folder that fairseq's ``sentence_prediction`` task reads out.

The folder holds ``input0`` (and ``input1`` for pairs), ``label`` and perhaps ``characters0`` (and ``characters1``),
each with ``dict.txt`` and fairseq's binary files, as ``fairseq-preprocess --only-source`` makes them, and ``text.json``
(see ``text_settings.py``); for word pieces also ``vocab.txt`` (see ``word_pieces.py``), for sub-words ``bpe.codes``.
Each example goes through ``corpus_formats.py``, ``labelled_sentences.py``, ``split_files.py`` and ``vocabulary.py``, in
this order, and is never held in memory longer than that takes.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from muse_plugin.files.lines import check_file
from muse_plugin.preparation.corpus_formats import CorpusFormat, choose_format, parse_format
from muse_plugin.preparation.output_folder import build_folder, check_output
from muse_plugin.preparation.preparation import Preparation, list_files, parse_part
from muse_plugin.preparation.vocabulary import load_dictionary
from muse_plugin.preparation.word2vec import choose_settings, import_word2vec
from muse_plugin.text.text_settings import TextSettings, load_text_settings, read_codes
from muse_plugin.text.word_pieces import VOCABULARY_NAME, PieceRules, choose_rules
from muse_plugin_command.flags import prepare_text as flags

# Flags that say where to, not what: the same data set results whatever they are.
_WITHOUT_EFFECT = ("output", "overwrite")


def run(args: argparse.Namespace) -> int:
    """Prepares the data; the body of ``muse-plugin prepare-text``.

    Args:
        args: the parsed flags.

    Returns:
        0.

    Raises:
        ValueError: if flags do not fit or a line of a file is not as it must be.
        FileNotFoundError: if a file is missing.
        FileExistsError: if the output folder must not be replaced.
    """
    args.format = args.format or choose_format(args.train)
    corpus_format = parse_format(args.format, args.header, args.conllu)
    _check_flags(args, corpus_format)
    rules, report = _choose_pieces(args)
    settings = TextSettings(
        lower_case=rules.lower_case,
        tokenizer=args.tokenizer,
        language=args.language,
        numbers=args.numbers,
        tags=corpus_format.tags,
        pair=corpus_format.sides == 2,
        characters=args.characters,
        format=args.format,
        arguments=_list_arguments(args),
        strip_accents=rules.strip_accents,
        split_chinese=rules.split_chinese,
        bpe=args.bpe_codes is not None,
        vocabulary_folder=args.bert_dir,
    )
    earlier = _load_earlier(args.dict_from, settings) if args.dict_from else None
    check_output(args.output, settings.arguments, args.overwrite)
    with build_folder(args.output) as folder:
        lines = Preparation(args, corpus_format, settings, earlier, folder).run()
    sys.stdout.write("\n".join([*report, *lines, f"written to {args.output}"]) + "\n")
    return 0


def _choose_pieces(args: argparse.Namespace) -> tuple[PieceRules, list[str]]:
    """How text is cased and cut, and what the report says of it."""
    if args.tokenizer != "wordpiece":
        return PieceRules(bool(args.lower_case), strip_accents=False, split_chinese=True), []
    rules, source = choose_rules(args.bert_dir, args.lower_case)
    casing = "uncased" if rules.lower_case else "cased"
    return rules, [f"word pieces of {args.bert_dir / VOCABULARY_NAME}, {casing} as {source} has it"]


def _list_arguments(args: argparse.Namespace) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(entry) for entry in value]
        return str(value) if isinstance(value, Path) else value

    parser = argparse.ArgumentParser()
    flags.add_arguments(parser)
    names = vars(parser.parse_args(["--train", "", "--output", ""]))
    arguments = {name: plain(getattr(args, name)) for name in names if name not in _WITHOUT_EFFECT}
    if args.tokenizer != "wordpiece":
        arguments["lower_case"] = bool(args.lower_case)  # as ever; only word pieces have a third way
    return arguments


def _check_flags(args: argparse.Namespace, corpus_format: CorpusFormat) -> None:
    if args.valid_from_train is not None:
        parse_part(args.valid_from_train)
        if args.valid:
            raise ValueError(
                f"validation sentences come from one place, but got --valid {args.valid} and --valid-from-train "
                f"{args.valid_from_train}; drop one."
            )
    for flag, value in (("--threshold", args.threshold), ("--max-words", args.max_words)):
        if value < 0:
            raise ValueError(f"{flag} must be at least 0, but got {value}; 0 keeps all words.")
    if not re.fullmatch(r"[a-z]{2,3}", args.language):
        raise ValueError(f"--language must be a code such as en, but got {args.language!r}.")
    _check_word_pieces(args)
    _check_dictionary(args)
    if corpus_format.tags:
        cuts = {"--tokenizer": args.tokenizer != "none", "--bpe-codes": args.bpe_codes, "--numbers": args.numbers}
        for flag, value in cuts.items():
            if value:
                raise ValueError(
                    f"{flag} needs one label for each text, but --format {args.format} tags words; drop it."
                )
    elif args.tags != "any":
        raise ValueError(f"--tags {args.tags} needs tagged words, but got --format {args.format}; use conll.")
    if args.bad_tags == "repair" and args.tags != "bio":
        raise ValueError(f"--bad-tags repair needs --tags bio, but got --tags {args.tags}; add or drop one.")
    if args.dict_from:
        if args.threshold or args.max_words or args.vocabulary_from != "train":
            raise ValueError(
                "with --dict-from nothing is counted, but got --threshold, --max-words or --vocabulary-from; drop them."
            )
        if args.dict_from.resolve() == args.output.resolve():
            raise ValueError(
                f"--dict-from and --output must be different folders, but both are {args.output}; name a new --output."
            )
    for _, path, flag in list_files(args):
        check_file(path, flag)
    if args.word_vectors:
        check_file(args.word_vectors, "--word-vectors")
    _check_word2vec(args)


def _check_word2vec(args: argparse.Namespace) -> None:
    if args.word2vec is None:
        given = [name for name in (*flags.SETTINGS, "text") if getattr(args, f"word2vec_{name}") is not None]
        if given:
            raise ValueError(
                f"{flags.flag_of(given[0])} is for vectors that are trained here, but --word2vec is not "
                "given; add --word2vec DIM or drop the flag."
            )
        return
    if args.word_vectors:
        raise ValueError(
            f"vectors come from one place, but got --word-vectors {args.word_vectors} and --word2vec {args.word2vec}; "
            "drop one."
        )
    choose_settings(args)
    import_word2vec()
    for path in args.word2vec_text or ():
        check_file(path, "--word2vec-text")


def _check_word_pieces(args: argparse.Namespace) -> None:
    if args.tokenizer != "wordpiece":
        if args.bert_dir:
            raise ValueError(
                f"--bert-dir is for word pieces, but got --tokenizer {args.tokenizer}; give --tokenizer wordpiece or "
                "drop --bert-dir."
            )
        return
    if not args.bert_dir:
        raise ValueError(
            f"--tokenizer wordpiece needs the folder of a BERT model, which holds {VOCABULARY_NAME}, but --bert-dir is "
            "not given; add it."
        )
    given = {
        "--threshold": args.threshold,
        "--max-words": args.max_words,
        "--vocabulary-from": args.vocabulary_from != "train",
        "--dict-from": args.dict_from,
        "--dictionary": args.dictionary,
        "--bpe-codes": args.bpe_codes,
    }
    contradicting = [flag for flag, value in given.items() if value]
    if contradicting:
        raise ValueError(
            f"with --tokenizer wordpiece all entries of {VOCABULARY_NAME} are the dictionary and nothing is counted, "
            f"but got {', '.join(contradicting)}; drop what contradicts it."
        )


def _check_dictionary(args: argparse.Namespace) -> None:
    if args.bpe_codes:
        read_codes(args.bpe_codes)
    if not args.dictionary:
        return
    load_dictionary(args.dictionary, "--dictionary")
    given = {
        "--threshold": args.threshold,
        "--max-words": args.max_words,
        "--vocabulary-from": args.vocabulary_from != "train",
        "--dict-from": args.dict_from,
    }
    contradicting = [flag for flag, value in given.items() if value]
    if contradicting:
        raise ValueError(
            f"with --dictionary the words of {args.dictionary} are the vocabulary and nothing is counted, but got "
            f"{', '.join(contradicting)}; drop what contradicts it."
        )


def _load_earlier(folder: Path, settings: TextSettings) -> TextSettings:
    earlier = load_text_settings(folder)
    names = ["lower_case", "tokenizer", "bpe", "numbers", "tags"]
    if "moses" in (earlier.tokenizer, settings.tokenizer):
        names.append("language")
    differences = [
        f"{name} is {getattr(earlier, name)} there and {getattr(settings, name)} here"
        for name in names
        if getattr(earlier, name) != getattr(settings, name)
    ]
    if differences:
        raise ValueError(
            f"--dict-from must name data whose words and labels were made alike, but {folder} has a vocabulary built "
            f"with another tokenisation or other labels ({'; '.join(differences)}); use the same flags."
        )
    if settings.characters and not earlier.characters:
        raise ValueError(
            f"--characters with --dict-from needs a dictionary of characters, but {folder} was prepared without "
            "--characters; prepare it again with it, or drop the flag here."
        )
    return earlier
