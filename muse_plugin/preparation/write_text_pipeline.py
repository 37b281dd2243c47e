"""``muse-plugin text-pipeline``: the text pipeline of a model whose data ``fairseq-preprocess`` made.

The subwords exist: codes of subword-nmt or a model of SentencePiece. They are checked against the dictionaries and
written, with both, where ``translate`` and ``view`` look for them (see ``text/text_pipeline.py``).
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Optional

from muse_plugin.files.atomic_files import open_atomically
from muse_plugin.files.lines import check_file
from muse_plugin.preparation.translation_settings import make_translation_settings
from muse_plugin.preparation.vocabulary import list_words, load_dictionary
from muse_plugin.text.dictionary_fit import check_dictionaries
from muse_plugin.text.text_pipeline import TextPipeline
from muse_plugin.text.text_settings import FILE_NAME, StoredText
from muse_plugin.text.tokenizer import Tokenizer
from muse_plugin_command.flag_checks import check_target_folder

_KINDS = {"bpe_codes": "subword-nmt", "sentencepiece": "sentencepiece"}  # by flag


def run(args: argparse.Namespace) -> int:
    """Writes the text pipeline; the body of ``muse-plugin text-pipeline``.

    Raises:
        ValueError: if flags do not fit, or the subwords are damaged or do not fit the dictionaries.
        FileNotFoundError: if a file is missing.
        FileExistsError: if something else is where the pipeline is to be.
    """
    check_target_folder(args.output, "--output")
    pipeline = _make_pipeline(args)
    data = args.data or args.output
    dictionaries = [data / f"dict.{lang}.txt" for lang in (pipeline.source_lang, pipeline.target_lang)]
    for path in dictionaries:
        if not path.is_file():
            raise FileNotFoundError(
                f"the subwords are checked against the dictionaries, but {path} does not exist; name the folder that "
                "fairseq-preprocess wrote by --data."
            )
    source, target = (list_words(load_dictionary(path)) for path in dictionaries)
    warnings = check_dictionaries(pipeline, source, target, data)
    if not args.lower_case and "".join(source + target).islower():
        warnings.append(
            f"no token of the dictionaries in {data} has a capital; if the text was lower-cased, give --lower-case."
        )
    for warning in warnings:
        sys.stderr.write(f"warning: {warning}\n")
    files = {path.name: path.read_bytes() for path in dictionaries}
    with TemporaryDirectory() as folder:
        pipeline.save(folder)
        made = sorted(Path(folder).iterdir(), key=lambda path: path.name == FILE_NAME)  # which makes the others count
        files |= {path.name: path.read_bytes() for path in made}
    _write(files, args.output, args.overwrite)
    print(f"written to {args.output}: {', '.join(files)}")
    print(f"translate raw text:\n  muse-plugin translate --path CHECKPOINT --data {args.output}")
    return 0


def _make_pipeline(args: argparse.Namespace) -> TextPipeline:
    subwords = [_choose_subwords(args, side) for side in TextPipeline._fields]
    settings = make_translation_settings(args, [kind for kind, _ in subwords])
    sides = []
    for setting, (_, path) in zip(settings, subwords, strict=True):
        sides.append(Tokenizer.load(StoredText(setting, path, path.name)) if path else Tokenizer(setting))
    return TextPipeline(*sides)


def _choose_subwords(args: argparse.Namespace, side: str) -> tuple[str, Optional[Path]]:
    """The kind of the subwords of one language, and their file if there are any."""
    given = [
        (flag, (kind, path))
        for name, kind in _KINDS.items()
        for flag in (name, f"{side}_{name}")
        if (path := getattr(args, flag)) is not None
    ]
    if len(given) > 1:
        flags = " and ".join(f"--{flag.replace('_', '-')}" for flag, _ in given)
        raise ValueError(f"one file cuts the words of the {side} language, but got {flags}; drop all but one.")
    for flag, (_, path) in given:
        check_file(path, f"--{flag.replace('_', '-')}")
    return given[0][1] if given else ("none", None)


def _write(files: dict[str, bytes], folder: Path, overwrite: bool) -> None:
    """Writes files in their order, unless others of these names are there."""
    present = {name: (folder / name).read_bytes() for name in files if (folder / name).exists()}
    for name, content in present.items():
        if content != files[name] and name.startswith("dict."):
            raise FileExistsError(
                f"the dictionaries in --output must be those of --data, but {folder / name} differs; name another."
            )
        if content != files[name] and not overwrite:
            raise FileExistsError(
                f"--output must have no other text pipeline, but {folder / name} differs; name another folder or give "
                "--overwrite."
            )
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        if present.get(name) != content:
            with open_atomically(folder / name) as file:
                file.write(content)
