"""Cuts text into the pieces of a SentencePiece model, and learns such a model."""

import io
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

from muse_plugin.files.atomic_files import open_atomically
from muse_plugin.text import SPECIAL_SYMBOLS

SPACE_MARK = "\u2581"  # stands for the space before a word
MODEL_NAME = "sentencepiece.model"
MODEL_TYPES = ("unigram", "bpe")
DICTIONARY_NAME = "pieces.txt"
MOST_SENTENCES = 5_000_000  # of a larger text a model is learned on so many, chosen at random: they fit into memory
_FIRST_LINES = 100_000  # whose characters decide how many of them become pieces
_PIECES_PER_CHARACTER = 8


class SentencePieces:
    """A SentencePiece model.

    Args:
        model: content of a ``.model`` file.
        where: what to call it in messages.

    Raises:
        ImportError: if the package sentencepiece is missing.
        ValueError: if ``model`` is not the content of a model file, or has pieces that are bytes.
    """

    def __init__(self, model: bytes, where: str = "the given SentencePiece model") -> None:
        from sentencepiece import SentencePieceProcessor

        self._processor = SentencePieceProcessor()
        try:
            loaded = bool(model) and self._processor.LoadFromSerializedProto(model)
        except (RuntimeError, TypeError):
            loaded = False
        if not loaded:
            raise ValueError(
                f"{where} must be a model of SentencePiece, but its {len(model)} bytes are none; copy the file again."
            )
        if self._processor.IsByte(self._processor.PieceToId("<0x00>")):  # a model has all bytes, or none
            raise ValueError(
                f"{where} must have pieces of characters only, but has bytes, which nothing here joins to characters; "
                "learn it without byte_fallback."
            )

    def split(self, words: Iterable[str]) -> list[str]:
        """Returns the pieces of a text given as its words; a piece that starts a word starts with U+2581.

        No piece reads as a special symbol of a dictionary.
        """
        pieces: list[str] = []
        for piece in self._processor.EncodeAsPieces(" ".join(words)):
            pieces.extend(piece if piece in SPECIAL_SYMBOLS else (piece,))
        return pieces

    def list_pieces(self) -> list[str]:
        """Returns the vocabulary in its order, without control symbols and the unknown piece."""
        processor = self._processor
        numbers = range(processor.GetPieceSize())
        return [processor.IdToPiece(i) for i in numbers if not (processor.IsControl(i) or processor.IsUnknown(i))]

    def can_make(self, piece: str) -> bool:
        """Whether some text has this piece: it is in the vocabulary, or none of its characters is."""
        processor = self._processor
        return not processor.IsUnknown(processor.PieceToId(piece)) or all(
            processor.IsUnknown(processor.PieceToId(character)) for character in piece
        )

    def write_dictionary(self, path: Path) -> None:
        """Writes the vocabulary as a dictionary, for ``fairseq-preprocess --srcdict``."""
        with open_atomically(path) as file:
            # fairseq wants a count; nothing here depends on it.
            file.writelines(f"{piece} 1\n".encode() for piece in self.list_pieces())


def join_pieces(pieces: Iterable[str]) -> str:
    """The text of pieces, with single spaces."""
    return " ".join("".join(pieces).replace(SPACE_MARK, " ").split())


def learn_pieces(lines: Iterable[str], size: int, model_type: str = "unigram") -> bytes:
    """Learns a model on training text; the same text gives the same model.

    Args:
        lines: sentences; a line of more than 4,192 bytes is left out, and of more than ``MOST_SENTENCES`` a sample is
            used, the same one for the same text. Every character becomes a piece, of a long text all but one in
            100,000, unless there are many, as in Chinese: then all but one in 2,000, as the library's authors advise.
        size: pieces of the vocabulary, three symbols of its own included; a small text gives fewer.
        model_type: ``unigram`` or ``bpe``.

    Returns:
        The content of a ``.model`` file.

    Raises:
        ImportError: if the package sentencepiece is missing.
        ValueError: if ``size`` or ``model_type`` is out of range or the text is too small to learn from.
    """
    from sentencepiece import SentencePieceTrainer

    if size < 1 or model_type not in MODEL_TYPES:
        raise ValueError(
            f"a SentencePiece model must have at least 1 piece and be one of {', '.join(MODEL_TYPES)}, but got {size} "
            f"and {model_type!r}; 8000 and 'unigram' are usual."
        )
    model, lines = io.BytesIO(), _skip_blank(lines)
    first = list(islice(lines, _FIRST_LINES))
    coverage = 1.0 if len(first) < _FIRST_LINES else 0.99999
    if len(set().union(*first)) * _PIECES_PER_CHARACTER > size:
        coverage = 0.9995
    try:
        SentencePieceTrainer.Train(
            sentence_iterator=chain(first, lines),
            model_writer=model,
            vocab_size=size,
            model_type=model_type,
            character_coverage=coverage,
            hard_vocab_limit=False,
            input_sentence_size=MOST_SENTENCES,
            shuffle_input_sentence=True,
            num_threads=1,  # sums of several threads depend on their number
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())[-200:]
        raise ValueError(
            f"learning {size} pieces must have enough text for them, but SentencePiece gave '{reason}'; give the whole "
            "training text or another size."
        ) from error
    return model.getvalue()


def _skip_blank(lines: Iterable[str]) -> Iterator[str]:
    return (line for line in lines if line.strip())
