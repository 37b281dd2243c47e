"""Checks that the tags of a text file are valid BIO (see ``text/bio_tags.py``), or repairs them."""

from collections.abc import Sequence
from pathlib import Path

from muse_plugin.text.bio_tags import find_bad_continuations, is_bio_tag

_SHOWN = 40  # characters of a tag in messages


def check_bio(tags: Sequence[str], lines: Sequence[int], path: Path, repair: bool) -> tuple[list[str], int]:
    """Checks the tags of one sentence.

    Args:
        tags: a tag for each word.
        lines: the line in the file of each tag, for messages.
        path: the file.
        repair: whether an ``I-X`` that continues nothing becomes ``B-X``; otherwise it is refused.

    Returns:
        The tags, all valid, and how many were changed.

    Raises:
        ValueError: if a tag is none of ``O``, ``B-X`` and ``I-X``, or continues nothing and ``repair`` is false.
    """
    for tag, line in zip(tags, lines, strict=True):
        if not is_bio_tag(tag):
            raise ValueError(
                f"with --tags bio a tag must be O, B-KIND or I-KIND, but line {line} of {path} has {tag[:_SHOWN]!r}; "
                "convert the tags or leave out --tags bio."
            )
    bad = find_bad_continuations(tags)
    if bad and not repair:
        tag, previous = tags[bad[0]][:_SHOWN], tags[bad[0] - 1][:_SHOWN] if bad[0] else "the start of the sentence"
        raise ValueError(
            f"with --tags bio a tag {tag} must follow B-{tag[2:]} or I-{tag[2:]}, but in line {lines[bad[0]]} of "
            f"{path} it follows {previous}; correct the file or give --bad-tags repair."
        )
    repaired = list(tags)
    for place in bad:
        repaired[place] = f"B-{tags[place][2:]}"
    return repaired, len(bad)
