"""Checks training text and BPE codes before anything is segmented, and divides the text among processes."""

import base64
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from muse_plugin.tasks.bpe_dropout.word_segmentation import PieceMerger, SentencePieceModel
from muse_plugin.text.byte_pair_encoding import BPE_MARKER, CODES_NAME, BytePairEncoding, check_codes
from muse_plugin.text.sentence_pieces import MODEL_NAME, SPACE_MARK, SentencePieces
from muse_plugin.text.subword_file import read_subword_file

SAMPLE_LINES = 1000
# In the sample, of all pieces: more unknown ones, or more words that end in "@@", cannot be by accident.
TOLERATED = 0.01


class Share(NamedTuple):
    """Consecutive lines of a text.

    Attributes:
        start: byte at which they start.
        first_line: number of the first, counted from 0.
        lines: how many.
    """

    start: int
    first_line: int
    lines: int


@dataclass(frozen=True)
class TrainingText:
    r"""One language of the training text; only ``\n`` ends a line.

    Attributes:
        path: where it is.
        lines: number of lines.
        size: bytes.
        changed: time of the last change, in nanoseconds, as the file system gives it.
        shares: the text divided into equal numbers of lines, up to one.
        sample: up to ``SAMPLE_LINES`` lines from all over the text.
    """

    path: Path
    lines: int
    size: int
    changed: int
    shares: tuple[Share, ...]
    sample: tuple[str, ...]

    def check_unchanged(self) -> None:
        """Compares the file with what was read.

        Raises:
            RuntimeError: if it has changed.
        """
        now = self.path.stat()
        if (now.st_size, now.st_mtime_ns) != (self.size, self.changed):
            raise RuntimeError(
                f"the training text {self.path} must stay as it is while training runs, but it has changed from "
                f"{self.size} to {now.st_size} bytes or was written again; start the training again, which resumes "
                "from the last checkpoint."
            )


def read_text(path: Path, num_shares: int) -> TrainingText:
    """Reads a text once from end to end; needs 8 bytes of memory per line meanwhile.

    Args:
        path: the file.
        num_shares: among how many processes to divide it; fewer shares are made of fewer lines.

    Raises:
        ValueError: if it has no lines, an empty one, or one that is no UTF-8.
    """
    status = path.stat()
    starts = array("q", [0])
    empty: list[int] = []
    with open(path, "rb") as file:
        for number, raw in enumerate(file, start=1):
            starts.append(starts[-1] + len(raw))
            try:
                if not raw.decode("utf-8").strip():
                    empty.append(number)
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"the training text must be UTF-8, but line {number} of {path} has the byte "
                    f"0x{raw[error.start]:02x} at position {error.start}; convert the file, or remove the line from "
                    "both languages."
                ) from None
    lines = len(starts) - 1
    if not lines:
        raise ValueError(f"the training text must have lines, but {path} is empty; write it again.")
    if empty:
        raise ValueError(
            f"the training text must have a word on every line, but line {empty[0]} of {path} is empty"
            + (f", and {len(empty) - 1} more" if len(empty) > 1 else "")
            + "; remove such lines from both languages, as Moses' clean-corpus-n.perl does."
        )
    bounds = [lines * share // num_shares for share in range(num_shares + 1)]
    shares = [Share(starts[low], low, high - low) for low, high in pairwise(bounds) if high > low]
    sample = []
    with open(path, "rb") as file:
        for start in sorted({starts[lines * i // SAMPLE_LINES] for i in range(SAMPLE_LINES)}):
            file.seek(start)
            sample.append(file.readline().decode("utf-8"))
    return TrainingText(path, lines, status.st_size, status.st_mtime_ns, tuple(shares), tuple(sample))


def check_parallel(source: TrainingText, target: TrainingText) -> None:
    """Checks that two texts can be translations of each other line by line.

    Raises:
        ValueError: if their numbers of lines differ.
    """
    if source.lines != target.lines:
        raise ValueError(
            f"both languages of the training text must have the same number of lines, but got {source.lines} in "
            f"{source.path} and {target.lines} in {target.path}; write both again from the same corpus."
        )


def find_codes(data: Path, side: str) -> Path:
    """The codes or the model of one side in a folder, joint or its own; ``bpe.codes`` if there is none."""
    names = [CODES_NAME, f"bpe.{side}.codes", MODEL_NAME, f"sentencepiece.{side}.model"]
    return data / next((name for name in names if (data / name).is_file()), CODES_NAME)


def read_codes(path: Path) -> str:
    """Reads a codes file of subword-nmt, which itself would end the process at a bad line, or a SentencePiece model.

    Returns:
        The content; of a file that ends in ``.model``, in base64.

    Raises:
        ValueError: if it is something else.
    """
    if path.suffix == ".model":
        model = read_subword_file(path)
        SentencePieces(model, str(path))
        return base64.b64encode(model).decode("ascii")
    text = read_subword_file(path).decode("utf-8", errors="replace")
    check_codes(text, f"the BPE codes {path}")
    return text


def _check_merges(
    text: TrainingText, lines: list[list[str]], content: bytes, codes_path: Path, indices: Mapping[str, int]
) -> None:
    """Compares what the merges of a BPE model of SentencePiece make of the sample with what the library does."""
    model = SentencePieceModel(content)
    if not model.is_bpe:
        return
    merge = PieceMerger(model, dict(indices), -1, -2, dropout=0)
    others = sum(
        merge(line, "") != [*(indices.get(piece, -1) for piece in cut), -2]
        for line, cut in zip(text.sample, lines, strict=True)
    )
    if others > TOLERATED * len(lines):
        raise ValueError(
            f"BPE-dropout leaves out merges within words, but {others} of {len(lines)} lines of a sample of "
            f"{text.path} are cut otherwise by {codes_path}, as a model with symbols of its own or pieces across words "
            "does; learn one without user_defined_symbols and with split_by_whitespace."
        )


def check_fit(text: TrainingText, codes: str, codes_path: Path, indices: Mapping[str, int], lang: str) -> None:
    """Segments the sample without dropout, to see whether text, codes and dictionary belong together.

    Args:
        text: one language.
        codes: of ``read_codes``.
        codes_path: where it is, for messages.
        indices: of the dictionary of that language.
        lang: name of the language, for messages.

    Raises:
        ValueError: if the text is segmented already, more than ``TOLERATED`` of its pieces are not in the dictionary,
            or a model of SentencePiece does not cut by merges within words alone.
    """
    words = [word for line in text.sample for word in line.split()]
    marked = sum(word.endswith(BPE_MARKER) or word.startswith(SPACE_MARK) for word in words)
    if marked > TOLERATED * len(words):
        raise ValueError(
            f"--train-text must be text before BPE, but {marked} of {len(words)} words of a sample of {text.path} end "
            f"in '{BPE_MARKER}' or start with '{SPACE_MARK}'; give the text in words."
        )
    is_model = codes_path.suffix == ".model"
    content = base64.b64decode(codes) if is_model else b""
    cut = SentencePieces(content).split if is_model else BytePairEncoding(codes).split
    lines = [cut(line.split()) for line in text.sample]
    if is_model:
        _check_merges(text, lines, content, codes_path, indices)
    pieces = [piece for line in lines for piece in line]
    unknown = [piece for piece in pieces if piece not in indices]
    if len(unknown) > TOLERATED * len(pieces):
        examples = ", ".join(dict.fromkeys(unknown[:100]))
        raise ValueError(
            f"the dictionary does not fit the BPE codes or the text: {len(unknown) / len(pieces):.1%} of the pieces of "
            f"a sample of {text.path}, segmented with {codes_path}, are not in the dictionary of '{lang}' "
            f"({examples[:100]} ...); give the codes that the binarised data was made with, and the text as it was "
            "before BPE (tokenised, in the same case)."
        )
