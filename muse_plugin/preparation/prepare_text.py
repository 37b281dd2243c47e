"""``muse-plugin prepare-text``: labelled text in, the folder that fairseq's ``sentence_prediction`` task reads out.

The folder holds ``input0`` (and ``input1`` for pairs), ``label`` and perhaps ``characters0`` (and ``characters1``),
each with ``dict.txt`` and fairseq's binary files, as ``fairseq-preprocess --only-source`` makes them, and
``text_pipeline.json`` with the file of its subwords (see ``text/text_settings.py``).
Each example goes through ``corpus_formats.py``, ``labelled_sentences.py``, ``split_files.py`` and ``vocabulary.py``, in
this order, and is never held in memory longer than that takes.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from muse_plugin.files.built_folder import build_folder
from muse_plugin.files.lines import check_file
from muse_plugin.preparation.corpus_formats import CorpusFormat, choose_format, parse_format
from muse_plugin.preparation.output_folder import check_output
from muse_plugin.preparation.preparation import Preparation
from muse_plugin.preparation.split_files import check_validation, list_files
from muse_plugin.preparation.vocabulary import load_dictionary
from muse_plugin.preparation.word2vec import choose_settings, import_gensim
from muse_plugin.text.data_record import DataRecord
from muse_plugin.text.subword_file import read_subword_file
from muse_plugin.text.text_settings import TextSettings, load_text_settings, make_sentence_settings
from muse_plugin.text.tokenizer import Tokenizer
from muse_plugin.text.word_pieces import VOCABULARY_NAME, choose_rules
from muse_plugin_command.flag_checks import check_read_twice
from muse_plugin_command.flags import prepare_text as flags

# Flags that say where to, not what: the same data set results whatever they are.
_WITHOUT_EFFECT = ("output", "overwrite")


def run(args: argparse.Namespace) -> int:
    """Prepares the data; the body of ``muse-plugin prepare-text``.

    Raises:
        ValueError: if flags do not fit or a line of a file is not as it must be.
        FileNotFoundError: if a file is missing.
        FileExistsError: if the output folder must not be replaced.
    """
    args.format = args.format or choose_format(args.train)
    corpus_format = parse_format(args.format, args.header, args.conllu)
    _check_flags(args, corpus_format)
    tokenizer, report = _make_tokenizer(args)
    record = DataRecord(
        numbers=args.numbers,
        tags=corpus_format.tags,
        pair=corpus_format.sides == 2,
        characters=args.characters,
        format=args.format,
        arguments=_list_arguments(args),
    )
    earlier = _load_earlier(args.dict_from, tokenizer.settings, record) if args.dict_from else None
    check_output(args.output, record.arguments, args.overwrite)
    with build_folder(args.output) as folder:
        lines = Preparation(args, corpus_format, tokenizer, record, earlier, folder).run()
    sys.stdout.write("\n".join([*report, *lines, f"written to {args.output}"]) + "\n")
    return 0


def _make_tokenizer(args: argparse.Namespace) -> tuple[Tokenizer, list[str]]:
    """How text becomes words, and what the report says of it."""
    if args.tokenizer == "wordpiece":
        rules, source = choose_rules(args.bert_dir, args.lower_case)
        settings = make_sentence_settings(args.language, "none", "wordpiece", **rules._asdict())
        path = args.bert_dir / VOCABULARY_NAME
        casing = "uncased" if rules.lower_case else "cased"
        report = [f"word pieces of {path}, {casing} as {source} has it"]
        return Tokenizer(settings, read_subword_file(path), str(path)), report
    subwords, path, content = "none", None, b""
    for kind, flag, given in (
        ("subword-nmt", "--bpe-codes", args.bpe_codes),
        ("sentencepiece", "--sentencepiece-model", args.sentencepiece_model),
    ):
        if given:
            check_file(given, flag)
            subwords, path, content = kind, given, read_subword_file(given)
    settings = make_sentence_settings(args.language, args.tokenizer, subwords, lower_case=bool(args.lower_case))
    return Tokenizer(settings, content, str(path)), []


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
    check_validation(args)
    for flag, value in (("--threshold", args.threshold), ("--max-words", args.max_words)):
        if value < 0:
            raise ValueError(f"{flag} must be at least 0, but got {value}; 0 keeps all words.")
    if not re.fullmatch(r"[a-z]{2,3}", args.language):
        raise ValueError(f"--language must be a code such as en, but got {args.language!r}.")
    _check_words(args)
    if corpus_format.tags:
        cuts = {
            "--tokenizer": args.tokenizer != "none",
            "--bpe-codes": args.bpe_codes,
            "--sentencepiece-model": args.sentencepiece_model,
            "--numbers": args.numbers,
        }
        for flag, value in cuts.items():
            if value:
                raise ValueError(
                    f"{flag} needs one label for each text, but --format {args.format} tags words; drop it."
                )
    elif args.tags != "any":
        raise ValueError(f"--tags {args.tags} needs tagged words, but got --format {args.format}; use conll.")
    if args.bad_tags == "repair" and args.tags != "bio":
        raise ValueError(f"--bad-tags repair needs --tags bio, but got --tags {args.tags}; add or drop one.")
    if args.dict_from and args.dict_from.resolve() == args.output.resolve():
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
    import_gensim()
    for path in args.word2vec_text or ():
        check_file(path, "--word2vec-text")
        check_read_twice(path, "--word2vec-text")


def _check_words(args: argparse.Namespace) -> None:
    """Checks the flags that say what words are and which of them the dictionary has."""
    if args.bert_dir and args.tokenizer != "wordpiece":
        raise ValueError(
            f"--bert-dir is for word pieces, but got --tokenizer {args.tokenizer}; give --tokenizer wordpiece or drop "
            "--bert-dir."
        )
    if args.tokenizer == "wordpiece" and not args.bert_dir:
        raise ValueError(
            f"--tokenizer wordpiece needs the folder of a BERT model, which holds {VOCABULARY_NAME}, but --bert-dir is "
            "not given; add it."
        )
    if args.bpe_codes and args.sentencepiece_model:
        raise ValueError(
            f"words are cut in one way, but got --bpe-codes {args.bpe_codes} and --sentencepiece-model "
            f"{args.sentencepiece_model}; drop one."
        )
    counting = {
        "--threshold": args.threshold,
        "--max-words": args.max_words,
        "--vocabulary-from": args.vocabulary_from != "train",
    }
    earlier = {"--dict-from": args.dict_from}
    cutting = {"--bpe-codes": args.bpe_codes, "--sentencepiece-model": args.sentencepiece_model}
    for given, rule, contradicting in (
        (
            args.bert_dir,
            f"--tokenizer wordpiece all entries of {VOCABULARY_NAME} are the dictionary and",
            counting | earlier | {"--dictionary": args.dictionary} | cutting,
        ),
        (args.dictionary, f"--dictionary the words of {args.dictionary} are the vocabulary and", counting | earlier),
        (args.dict_from, "--dict-from", counting),
    ):
        flags_given = [flag for flag, value in contradicting.items() if value]
        if given and flags_given:
            raise ValueError(
                f"with {rule} nothing is counted, but got {', '.join(flags_given)}; drop what contradicts it."
            )
    if args.dictionary:
        load_dictionary(args.dictionary, "--dictionary")


def _load_earlier(folder: Path, settings: TextSettings, record: DataRecord) -> DataRecord:
    text, earlier = load_text_settings(folder)
    names = ["lower_case", "tokenizer", "subwords"]
    if "moses" in (text.settings.tokenizer, settings.tokenizer):
        names.append("lang")
    pairs = [(name, getattr(text.settings, name), getattr(settings, name)) for name in names]
    pairs += [(name, getattr(earlier, name), getattr(record, name)) for name in ("numbers", "tags")]
    differences = [f"{name} is {there} there and {here} here" for name, there, here in pairs if there != here]
    if differences:
        raise ValueError(
            f"--dict-from must name data whose words and labels were made alike, but {folder} has a vocabulary built "
            f"with another tokenisation or other labels ({'; '.join(differences)}); use the same flags."
        )
    if record.characters and not earlier.characters:
        raise ValueError(
            f"--characters with --dict-from needs a dictionary of characters, but {folder} was prepared without "
            "--characters; prepare it again with it, or drop the flag here."
        )
    return earlier
