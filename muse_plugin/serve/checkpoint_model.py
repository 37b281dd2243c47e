"""A checkpoint of fairseq as a model that is served."""

import argparse

from muse_plugin.inference.streaming import Line
from muse_plugin.inference.translate import Translator
from muse_plugin.serve.inspect import Inspector
from muse_plugin.serve.sentences import refuse_long
from muse_plugin.serve.served_model import ServedModel


def load_checkpoint_model(args: argparse.Namespace) -> ServedModel:
    """Loads what ``muse-plugin translate`` takes.

    Args:
        args: the flags of ``muse-plugin serve``.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if one is damaged.
    """
    settings = {name: getattr(args, name) for name in ("beam", "lenpen", "max_tokens", "batch_size", "cpu")}
    translator = Translator.load(args.path, args.data, **settings)

    pipeline = translator.pipeline

    def translate(sentences: list[str]) -> list[str]:
        refuse_long(sentences, translator.max_source_tokens - 1, lambda text: pipeline.encode_source(text).split())
        return translator.translate_lines([Line(i + 1, text) for i, text in enumerate(sentences)])

    return ServedModel(
        pipeline.source_lang, pipeline.target_lang, translate, lambda nbest: Inspector(translator, nbest)
    )
