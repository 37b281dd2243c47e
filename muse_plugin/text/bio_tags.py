"""What BIO tags are: ``B-X`` begins a stretch of kind X, ``I-X`` continues it, ``O`` is outside.

An ``I-X`` that continues nothing is how the older IOB1 scheme begins a stretch.
"""

from collections.abc import Sequence


def is_bio_tag(tag: str) -> bool:
    """Whether a tag is ``O``, ``B-X`` or ``I-X``."""
    return tag == "O" or (tag[:2] in ("B-", "I-") and len(tag) > 2)


def find_bad_continuations(tags: Sequence[str]) -> list[int]:
    """Returns the positions of every ``I-X`` that follows neither ``B-X`` nor ``I-X``."""
    before = ["O", *tags]
    return [i for i, tag in enumerate(tags) if tag.startswith("I-") and before[i] not in (tag, f"B-{tag[2:]}")]
