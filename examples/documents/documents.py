"""Documents in one form: ``python documents.py FORM FILE --output OUT`` writes a label, a tab and a text per line.

Forms: r8 and news (tables with a header), imdb (label, rating, number and text between tabs), imdb-archive-train and
imdb-archive-test (aclImdb_v1.tar.gz itself). FILE may be there as FILE.gz. ``<br />`` and tabs become spaces.
"""

import argparse
import gzip
import lzma
import re
import sys
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

HEADERS = {"r8": "Class\tExample", "news": "TITLE\tCATEGORY"}
FORMS = ("r8", "news", "imdb", "imdb-archive-train", "imdb-archive-test")
SENTIMENTS = {"neg": "0", "pos": "1"}
LONGEST_REVIEW = 1 << 20  # bytes; a review has a few thousand
BREAK = re.compile(r"<br ?/?>|[\t\r\n]", flags=re.IGNORECASE)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file and their numbers; only a line feed ends a line.

    Raises:
        FileNotFoundError: if neither the file nor FILE.gz is there.
        ValueError: if a line is no UTF-8, or FILE.gz is damaged.
    """
    packed = path.with_name(path.name + ".gz")
    if not path.is_file() and not packed.is_file():
        raise FileNotFoundError(f"there must be a file {path} or {packed.name} next to it, but there is none.")
    try:
        with path.open("rb") if path.is_file() else gzip.open(packed) as stream:
            for number, line in enumerate(stream, start=1):
                yield number, line.decode("utf-8").rstrip("\n").rstrip("\r")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, line {number}: must be UTF-8, but is not ({error.reason}).") from error
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{packed} must be a whole .gz file, but is not ({error}); fetch it again.") from error


def read_table(path: Path, form: str) -> Iterator[tuple[str, str]]:
    """Labels and texts of r8, news or imdb.

    Raises:
        ValueError: if a line is not of that form.
    """
    columns = 4 if form == "imdb" else 2
    for number, line in read_lines(path):
        if number == 1 and form in HEADERS:
            if line != HEADERS[form]:
                raise ValueError(f"{path}, line 1: must be {HEADERS[form]!r}, but is {line[:40]!r}.")
            continue
        cells = line.split("\t", columns - 1)
        if len(cells) != columns:
            raise ValueError(
                f"{path}, line {number}: must have {columns} columns, but has {len(cells)}: {line[:40]!r}."
            )
        yield (cells[1], cells[0]) if form == "news" else (cells[0], cells[-1])


def read_archive(path: Path, split: str) -> Iterator[tuple[str, str]]:
    """Labels and texts of a split of the Large Movie Review Dataset, by class and number of the review.

    Raises:
        FileNotFoundError: if there is no archive.
        ValueError: if it is damaged, another one, or has a review that no person wrote.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there must be an archive {path}, but there is none.")
    wanted = re.compile(rf"aclImdb/{split}/(neg|pos)/(\d+)_\d+\.txt")
    found = []
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                match = wanted.fullmatch(member.name)
                if match and member.isreg():
                    if member.size > LONGEST_REVIEW:
                        raise ValueError(
                            f"{path}: {member.name} must have at most {LONGEST_REVIEW:,} bytes, but has "
                            f"{member.size:,}; it is another archive."
                        )
                    stream = archive.extractfile(member)
                    assert stream is not None, "a regular file has content"
                    found.append((SENTIMENTS[match[1]], int(match[2]), stream.read().decode("utf-8")))
    except (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError) as error:
        raise ValueError(f"{path} must be a whole .tar.gz archive, but is not ({error}); fetch it again.") from error
    if not found:
        raise ValueError(f"{path} must contain aclImdb/{split}/neg and pos, but does not; it is another archive.")
    for label, _, text in sorted(found):
        yield label, text


def keep_some(documents: Iterable[tuple[str, str]], per_class: int) -> Iterator[tuple[str, str]]:
    """The first ``per_class`` documents of every class; all of them if 0."""
    seen: Counter[str] = Counter()
    for label, text in documents:
        seen[label] += 1
        if per_class == 0 or seen[label] <= per_class:
            yield label, text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("form", choices=FORMS)
    parser.add_argument("file", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--per-class", type=int, default=0, metavar="N", help="only the first N documents of a class")
    args = parser.parse_args()
    archive, _, split = args.form.partition("-archive-")
    counts: Counter[str] = Counter()
    part = args.output.with_name(args.output.name + ".part")
    try:
        documents = read_archive(args.file, split) if split else read_table(args.file, archive)
        with part.open("w", encoding="utf-8", newline="\n") as out:
            for label, text in keep_some(documents, args.per_class):
                counts[label] += 1
                out.write(f"{label}\t{BREAK.sub(' ', text).strip()}\n")
    except (OSError, ValueError) as error:
        part.unlink(missing_ok=True)
        print(f"documents: error: {error}", file=sys.stderr)
        return 2
    part.replace(args.output)
    print(f"{args.output.name}: {counts.total():,} documents; " + ", ".join(f"{k} {v:,}" for k, v in counts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
