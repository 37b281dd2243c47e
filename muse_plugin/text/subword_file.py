"""Reads the file of a subword method: BPE codes, a SentencePiece model or a vocabulary of word pieces."""

from pathlib import Path

from muse_plugin.files.limits import LARGEST_VOCABULARY, check_size


def read_subword_file(path: Path, way_out: str = "name the file that the subwords were learned into") -> bytes:
    """Reads such a file as a whole.

    Args:
        path: the file.
        way_out: what the user can do, for the message.

    Raises:
        ValueError: if it is larger than any file of subwords.
    """
    check_size(path, LARGEST_VOCABULARY, way_out)
    return path.read_bytes()
