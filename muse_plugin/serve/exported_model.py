"""A folder of ``muse-plugin export`` as a model that is served, with neither torch nor fairseq.

The search is that of this package's own ``runner/run.py``; the program in the folder is never executed.
"""

import argparse
import functools
import math
import os
from typing import Any

from muse_plugin.runner.run import EOS, SPECIAL_SYMBOLS, UNK, WAY_OUT, Translator
from muse_plugin.serve.page_sentence import MAX_SOURCE_TOKENS, split_sentence
from muse_plugin.serve.sentences import split_whole
from muse_plugin.serve.served_model import ServedModel

_NOTE = (
    "This model is an exported one, whose graphs give neither attention and gates nor the scores of tokens; "
    "muse-plugin view with its checkpoint shows them."
)


class _WholeTranslator(Translator):
    def read_line(self, line: str, number: int = 1) -> list[str]:
        return split_whole(line, self.longest_source - 1, self.source.split)


def load_exported_model(args: argparse.Namespace) -> ServedModel:
    """Loads the folder; ``OMP_NUM_THREADS`` counts as for a checkpoint.

    Args:
        args: the flags of ``muse-plugin serve``.

    Raises:
        FileNotFoundError: if a file is missing.
        ImportError: if a package is missing.
        ValueError: if a file is damaged or not the one that was exported, or flags do not fit.
    """
    if args.data is not None:
        raise ValueError(
            f"--data names the dictionaries of a checkpoint, but {args.path} is an exported folder, which has its own; "
            "leave it out."
        )
    if args.fp16:
        raise ValueError(
            f"--fp16 is for a checkpoint, but {args.path} is an exported folder, which runs on the CPU; leave it out."
        )
    threads = os.environ.get("OMP_NUM_THREADS", "")
    try:
        translator = _WholeTranslator(args.path, int(threads) if threads.isdecimal() else None)
    except ImportError as error:
        raise ImportError(
            f"muse-plugin serve needs onnxruntime for an exported folder, and what cuts its text, but: {error}; run "
            "pip install onnxruntime, or install this package with the extra 'export'."
        ) from error
    except (KeyError, TypeError, AttributeError) as error:  # of settings that a stranger wrote, with checksums
        raise ValueError(
            f"{args.path} must be as muse-plugin export wrote it, but reading it gave {type(error).__name__}: "
            f"{' '.join(str(error).split())[:200]}; {WAY_OUT}."
        ) from error
    search = {"beam": args.beam, "lenpen": args.lenpen}
    translate = functools.partial(
        translator.translate, **search, batch_size=args.batch_size, max_tokens=args.max_tokens
    )
    source_lang, target_lang = (text.settings["lang"] for text in (translator.source, translator.target))
    return ServedModel(source_lang, target_lang, translate, lambda nbest: ExportedInspector(translator, search, nbest))


class ExportedInspector:
    """What the page can show of an exported model: translations with their scores.

    Args:
        translator: the model.
        search: its settings, ``beam`` and ``lenpen``.
        nbest: most hypotheses in an answer.
    """

    def __init__(self, translator: Translator, search: dict[str, Any], nbest: int) -> None:
        self._translator, self._search, self._nbest = translator, search, nbest
        self._max_tokens = min(MAX_SOURCE_TOKENS, translator.longest_source - 1)  # one is </s>

    def describe(self) -> dict[str, Any]:
        """As ``inspect.Inspector`` does, without gates."""
        return {
            "source_lang": self._translator.source.settings["lang"],
            "target_lang": self._translator.target.settings["lang"],
            **self._search,
            "nbest": self._nbest,
            "max_tokens": self._max_tokens,
            "gates": {},
            "gate_notes": {},
        }

    def inspect(self, text: str) -> dict[str, Any]:
        """As ``inspect.Inspector`` does; attention is empty, and the score of a token None.

        Raises:
            ValueError: if the text is blank or too long.
        """
        words = split_sentence(text, self._max_tokens, self._translator.source.split)
        known = self._translator.indices
        source = [{"text": word if word in known else SPECIAL_SYMBOLS[UNK], "known": word in known} for word in words]
        hypotheses = []
        for found in self._translator.search([words], **self._search)[0][: self._nbest]:
            best = self._translator.describe(*found)
            hypotheses.append(
                {
                    "text": best.text,
                    "score": best.score * math.log(2),  # bits to nats
                    "tokens": [{"text": token, "score": None} for token in best.tokens],
                    "attention": [],
                }
            )
        return {
            "source": [*source, {"text": SPECIAL_SYMBOLS[EOS], "known": True}],
            "hypotheses": hypotheses,
            "attention_note": _NOTE,
        }
