"""Whether a text pipeline can be the one that a model was trained with, as far as its dictionaries tell.

The subwords of the training text make every token of the dictionaries, and the dictionaries have nearly all that they
make. Subwords of other text fail in both: as many merges, learned on other sentences of the same kind, in one token of
seven. Failing in one alone has harmless reasons too: a dictionary without rare tokens, or of more languages.
"""

from collections.abc import Iterable
from pathlib import Path

from muse_plugin.text import FILLER, SPECIAL_SYMBOLS
from muse_plugin.text.text_pipeline import TextPipeline
from muse_plugin.text.tokenizer import Tokenizer

_FOREIGN = 0.1  # shares from which subwords are those of other text
_MANY_MISSING = 0.25  # up to this share, what is missing is rare or only a part of longer pieces


def check_dictionaries(pipeline: TextPipeline, source: Iterable[str], target: Iterable[str], folder: Path) -> list[str]:
    """Compares a pipeline with the dictionaries of a model.

    Args:
        pipeline: languages and subwords.
        source: symbols of the source dictionary.
        target: symbols of the target dictionary.
        folder: where they are, for messages.

    Returns:
        A sentence of warning for each dictionary, or for both together if they or their subwords are the same, that the
        pipeline may not fit.

    Raises:
        ValueError: with such a sentence, if subwords are those of other text.
    """
    languages, tokens = (pipeline.source_lang, pipeline.target_lang), (_list_tokens(source), _list_tokens(target))
    names = [str(folder / f"dict.{lang}.txt") for lang in languages]
    if tokens[0] == tokens[1] or pipeline.source.content == pipeline.target.content:
        faults = [_compare(" and ".join(names), tokens[0] | tokens[1], [*pipeline])]
    else:
        faults = [_compare(*side) for side in zip(names, tokens, ([tokenizer] for tokenizer in pipeline), strict=True)]
    return [fault for fault in faults if fault]


def _list_tokens(symbols: Iterable[str]) -> set[str]:
    return {symbol for symbol in symbols if symbol not in SPECIAL_SYMBOLS and not FILLER.fullmatch(symbol)}


def _compare(names: str, tokens: set[str], tokenizers: list[Tokenizer]) -> str:
    unmade = sorted(token for token in tokens if not any(tokenizer.can_make(token) for tokenizer in tokenizers))
    pieces = {piece for tokenizer in tokenizers for piece in tokenizer.list_pieces()}
    missing = pieces - tokens
    unmade_share, missing_share = len(unmade) / max(len(tokens), 1), len(missing) / max(len(pieces), 1)
    if not unmade and missing_share < _MANY_MISSING:
        return ""
    sentence = (
        f"the text pipeline must be that of the training text, but it never makes {len(unmade):,} of the "
        f"{len(tokens):,} tokens ({unmade_share:.1%}) of {names}"
    )
    sentence += f", such as {unmade[0]!r}" if unmade else ""
    if pieces:
        share = f"{len(missing):,} of the {len(pieces):,} pieces that it makes ({missing_share:.1%})"
        sentence += f", and {share} are missing there"
    if unmade_share >= _FOREIGN and (missing_share >= _FOREIGN or not pieces):
        raise ValueError(f"{sentence}; give 'muse-plugin text-pipeline' the codes or the model that cut that text.")
    return f"{sentence}; translations suffer unless the data were made so."
