"""A checkpoint of fairseq as a model that is served."""

import argparse

from muse_plugin.inference.streaming import Line
from muse_plugin.inference.translate import Translator
from muse_plugin.serve.inspect import Inspector
from muse_plugin.serve.sentences import split_whole
from muse_plugin.serve.served_model import ServedModel


class _WholeTranslator(Translator):
    def read_line(self, line: Line) -> list[str]:
        return split_whole(
            line.text, self.max_source_tokens - 1, lambda text: self.pipeline.encode_source(text).split()
        )


def load_checkpoint_model(args: argparse.Namespace) -> ServedModel:
    """Loads what ``muse-plugin translate`` takes.

    Args:
        args: the flags of ``muse-plugin serve``.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if one is damaged.
    """
    settings = {name: getattr(args, name) for name in ("beam", "lenpen", "max_tokens", "batch_size", "cpu", "fp16")}
    translator = _WholeTranslator.load(args.path, args.data, **settings)

    def translate(sentences: list[str]) -> list[str]:
        return translator.translate_lines([Line(i + 1, text) for i, text in enumerate(sentences)])

    pipeline = translator.pipeline
    return ServedModel(
        pipeline.source_lang, pipeline.target_lang, translate, lambda nbest: Inspector(translator, nbest)
    )
