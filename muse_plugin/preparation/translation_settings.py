"""What is done to the two texts of translation, as the flags of ``prepare-translation`` and ``text-pipeline`` say."""

import argparse
import re
from collections.abc import Sequence

from muse_plugin.text.text_settings import TextSettings

_LANGUAGE = re.compile(r"[A-Za-z]{2,8}(_[A-Za-z]{2,8})?")  # file names end in it


def make_translation_settings(args: argparse.Namespace, subwords: Sequence[str]) -> tuple[TextSettings, TextSettings]:
    """The settings of source and target.

    Args:
        args: flags, those of ``add_translation_text_arguments`` among them.
        subwords: the setting of this name of source and target.

    Raises:
        ValueError: if a language is no code, both are the same, or hyphens are to be split without Moses.
    """
    for flag, lang in (("--source-lang", args.source_lang), ("--target-lang", args.target_lang)):
        if not _LANGUAGE.fullmatch(lang):
            raise ValueError(f"{flag} must be a code such as de or zh_TW, but got {lang!r}; give one.")
    if args.source_lang == args.target_lang:
        raise ValueError(f"the two languages must differ, but both are {args.source_lang!r}; correct --target-lang.")
    source, target = (
        _make_settings(args, lang, kind)
        for lang, kind in zip((args.source_lang, args.target_lang), subwords, strict=True)
    )
    if args.aggressive_hyphens and "moses" not in (source.tokenizer, target.tokenizer):
        raise ValueError(
            "--aggressive-hyphens needs --tokenizer moses, but that is none; add the one or drop the other."
        )
    return source, target


def _make_settings(args: argparse.Namespace, lang: str, subwords: str) -> TextSettings:
    tokenizer = args.tokenizer or ("moses" if subwords == "subword-nmt" else "none")
    return TextSettings(
        lang,
        normalize=args.normalize,
        tokenizer=tokenizer,
        aggressive_hyphens=args.aggressive_hyphens,
        lower_case=args.lower_case,
        detokenize=args.detokenize or tokenizer == "moses",
        subwords=subwords,
    )
