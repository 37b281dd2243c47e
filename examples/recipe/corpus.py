"""Turns downloaded corpora into training text: extracts, tokenises, cleans, splits, checks.

``python corpus.py --help`` lists what it can do. Tokenisation is that of Moses, by sacremoses. Text is UTF-8 with one
sentence per line; pairs of files that do not have the same number of lines are refused.
"""

import argparse
import errno
import gzip
import hashlib
import lzma
import re
import sys
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import IO, Optional, Union

from sacremoses import MosesPunctNormalizer, MosesTokenizer
from tqdm import tqdm

# IWSLT: lines that are no sentences, and tags around those that are.
NO_SENTENCE = re.compile(r"<(url|talkid|keywords|speaker|translator|reviewer)\b|</?(doc|file|srcset|refset)\b|<\?xml")
TAGS = re.compile(r"</?(title|description)>")
SEGMENT = re.compile(r"<seg id=\"[^\"]*\">\s*(.*?)\s*</seg>", re.IGNORECASE)
BLOCK = 25  # lines with a checksum of their own, see run_compare
# Text shrinks to a fifth or so. What grows far more on the way back, beyond a size that does no harm, is no text.
MOST_GROWTH = 200
HARMLESS_SIZE = 100 << 20  # bytes
LONGEST_HEADER = 1 << 20  # bytes of a name or attributes in a tar file, which are read as a whole
CHUNK = 1 << 20


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a text file, without their ends.

    Only a line feed ends a line: the other separators that Python knows occur within sentences.

    Raises:
        ValueError: if a line is no UTF-8.
    """
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                yield line.decode("utf-8").rstrip("\n").rstrip("\r")
            except UnicodeDecodeError as error:
                raise ValueError(f"{path}, line {number}: must be UTF-8, but is not ({error.reason}).") from error


def read_pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """The pairs of lines of two files.

    Raises:
        ValueError: if the files have different numbers of lines; both are named.
    """
    for one, other in zip_longest(read_lines(source), read_lines(target)):
        if one is None or other is None:
            counts = [sum(1 for _ in read_lines(path)) for path in (source, target)]
            raise ValueError(
                f"line n of one file must translate line n of the other, but {source} has {counts[0]} lines and "
                f"{target} {counts[1]}; download or make the shorter one again."
            )
        yield one, other


class TextWriter:
    """Writes lines to files that appear under their names only when everything is written."""

    def __init__(self, *paths: Path) -> None:
        self.paths = paths
        self._stack = ExitStack()

    def __enter__(self) -> "TextWriter":
        for path in self.paths:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._streams = [
            self._stack.enter_context(self._part(path).open("w", encoding="utf-8", newline="\n")) for path in self.paths
        ]
        return self

    def write(self, *lines: str) -> None:
        for stream, line in zip(self._streams, lines, strict=True):
            stream.write(line + "\n")

    def __exit__(self, kind: Optional[type], *_: object) -> None:
        self._stack.close()
        for path in self.paths:
            self._part(path).replace(path) if kind is None else self._part(path).unlink(missing_ok=True)

    @staticmethod
    def _part(path: Path) -> Path:
        return path.with_name(path.name + ".part")


class SafeTarInfo(tarfile.TarInfo):
    """The header of a member; refuses one that would fill the memory."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:  # the standard library's hook for subclasses
        if not self.isreg() and self.size > LONGEST_HEADER:
            raise tarfile.ReadError(f"a header of {self.size} bytes")
        return super()._proc_member(archive)


def copy_limited(stream: Union[IO[bytes], gzip.GzipFile], out: IO[bytes], most: int, name: str) -> int:
    """Copies at most ``most`` bytes; returns how many.

    Raises:
        ValueError: if there are more.
    """
    size = 0
    while chunk := stream.read(CHUNK):
        size += len(chunk)
        if size > most:
            raise ValueError(f"{name} must unpack to text, but takes more than {most >> 20} MiB; is this a zip bomb?")
        out.write(chunk)
    return size


def extract(archive: Path, folder: Path, names: list[str]) -> None:
    """Extracts the members of a .tgz or .zip whose last part of the path is one of ``names``, flat into ``folder``.

    A member that is compressed itself (NAME.gz) is decompressed. Links and devices are no members.

    Raises:
        ValueError: if one is missing, the archive is damaged, or it unpacks to far more than text does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = set()
    left = max(HARMLESS_SIZE, MOST_GROWTH * archive.stat().st_size)
    try:
        with ExitStack() as stack:
            if zipfile.is_zipfile(archive):
                opened = stack.enter_context(zipfile.ZipFile(archive))
                members = ((entry.filename, partial(opened.open, entry)) for entry in opened.infolist())
            else:
                packed = stack.enter_context(tarfile.open(archive, tarinfo=SafeTarInfo))
                members = ((entry.name, partial(packed.extractfile, entry)) for entry in packed if entry.isfile())
            for member, open_member in members:
                name = Path(member).name.removesuffix(".gz")
                if name not in names or name in found:
                    continue
                found.add(name)
                part = folder / f"{name}.part"
                part.unlink(missing_ok=True)  # whatever it is, such as a link
                try:
                    with open_member() as stream, part.open("xb") as out:
                        source = gzip.GzipFile(fileobj=stream) if member.endswith(".gz") else stream
                        left -= copy_limited(source, out, left, f"{archive}: {name}")
                    part.replace(folder / name)
                finally:
                    part.unlink(missing_ok=True)
                if len(found) == len(set(names)):
                    break  # what follows in a large archive need not be read
    except (
        *(tarfile.TarError, zipfile.BadZipFile, OSError, zlib.error, lzma.LZMAError, EOFError),
        RuntimeError,  # of a zip file that asks for a password or is packed in a way that Python does not know
    ) as error:
        # Without a number: damaged gzip. EINVAL: the directory of a zip file places a member before its beginning.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # the disk's
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{archive} must be a whole .tgz or .zip archive, but is not ({reason}); fetch it again."
        ) from error
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(
            f"{archive} must contain {', '.join(missing)}, but does not; it is not the archive of this recipe."
        )


def strip_tags(line: str) -> Optional[str]:
    """A line of IWSLT's train.tags file as a sentence; None if it is none."""
    return None if NO_SENTENCE.search(line) else TAGS.sub("", line)


def clean_pair(source: str, target: str, longest: int, ratio: float) -> bool:
    """Whether a pair is kept, by the rules of Moses' clean-corpus-n: lengths in words, from one on, and their ratio."""
    lengths = len(source.split()), len(target.split())
    return min(lengths) >= 1 and max(lengths) <= longest and max(lengths) <= ratio * min(lengths)


def tokenize_line(line: str, lang: str, normalize: bool, aggressive: bool, lower: bool) -> str:
    """Moses' tokenisation of one line, with its entities (``&apos;``).

    Args:
        line: raw text.
        lang: two letters.
        normalize: first Moses' normalize-punctuation and remove-non-printing-char.
        aggressive: split words at hyphens (``@-@``).
        lower: write small letters.
    """
    tools = _tools(lang)
    if normalize:
        line = _blank_unprintable(tools[0].normalize(line))
    line = tools[1].tokenize(line, aggressive_dash_splits=aggressive, return_str=True, escape=True)
    return line.lower() if lower else line


def _blank_unprintable(line: str) -> str:
    """Moses' remove-non-printing-char: a space for every control, format, unassigned and surrogate character."""
    if line.isprintable():
        return line
    return "".join(" " if unicodedata.category(character).startswith("C") else character for character in line)


_TOOLS: dict[str, tuple[MosesPunctNormalizer, MosesTokenizer]] = {}


def _tools(lang: str) -> tuple[MosesPunctNormalizer, MosesTokenizer]:
    if lang not in _TOOLS:
        _TOOLS[lang] = MosesPunctNormalizer(lang=lang), MosesTokenizer(lang=lang)
    return _TOOLS[lang]


def run_extract(args: argparse.Namespace) -> None:
    extract(args.archive, args.folder, args.names)


def run_strip_tags(args: argparse.Namespace) -> None:
    with TextWriter(args.output) as writer:
        for line in read_lines(args.input):
            sentence = strip_tags(line)
            if sentence is not None:
                writer.write(sentence.strip())


def run_segments(args: argparse.Namespace) -> None:
    """Sentences of NIST's XML or SGML test sets; Moses does not split words at the typographic apostrophe."""
    with TextWriter(args.output) as writer:
        for path in args.inputs:
            count = 0
            for line in read_lines(path):
                for sentence in SEGMENT.findall(line):
                    writer.write(sentence if args.keep_apostrophes else sentence.replace("’", "'"))
                    count += 1
            if count == 0:
                raise ValueError(f"{path} must contain sentences between <seg> tags, but has none.")


def run_tokenize(args: argparse.Namespace) -> None:
    work = partial(
        tokenize_line,
        lang=args.lang,
        normalize=args.normalize,
        aggressive=args.aggressive_hyphens,
        lower=args.lower_case,
    )
    lines = read_lines(args.input)
    tokenized: Iterator[str] = map(work, lines)
    if args.workers > 1:
        from muse_plugin.preparation.parallel_map import map_in_order  # seconds, which one process does not need

        tokenized = map_in_order(partial(partial, work), lines, args.workers)
    with TextWriter(args.output) as writer:
        for line in tqdm(tokenized, desc=f"tokenise {args.output.name}", unit=" lines", mininterval=5):
            writer.write(line)


def run_clean(args: argparse.Namespace) -> None:
    kept = total = 0
    with TextWriter(*args.outputs) as writer:
        for source, target in read_pairs(*args.inputs):
            total += 1
            if clean_pair(source, target, args.max, args.ratio):
                kept += 1
                writer.write(" ".join(source.split()), " ".join(target.split()))
    print(f"{kept} of {total} pairs kept")


def run_split(args: argparse.Namespace) -> None:
    """Every n-th pair to one set of files, all others to the other."""
    if args.every < 1:
        raise ValueError(f"--every must be at least 1, but got {args.every}.")
    counts = [0, 0]
    with TextWriter(*args.rest) as rest, TextWriter(*args.chosen) as chosen:
        for number, pair in enumerate(read_pairs(*args.inputs), start=1):
            is_chosen = number % args.every == 0
            (chosen if is_chosen else rest).write(*pair)
            counts[is_chosen] += 1
    print(f"{counts[1]} pairs chosen, {counts[0]} left")


def key_of(sentence: str) -> str:
    """Letters and digits only, in small letters: sentences that differ in case or punctuation are one."""
    return "".join(character for character in sentence.lower() if character.isalnum())


def read_tatoeba(path: Path) -> Iterator[tuple[str, str]]:
    """The pairs (English, German) of a file with English, tab, German, perhaps further columns.

    Raises:
        ValueError: if a line is something else.
    """
    for number, line in enumerate(read_lines(path), start=1):
        columns = [column.strip() for column in line.split("\t")[:2]]
        if len(columns) < 2 or not all(columns):
            raise ValueError(f"{path}, line {number}: must be English, tab, German, but is {line!r}.")
        yield columns[0], columns[1]


def choose_set(english: str, share: float) -> str:
    """Train, valid or test, by the hash of an English sentence's key: the same whatever else is in the file."""
    place = int.from_bytes(hashlib.sha256(key_of(english).encode("utf-8")).digest()[:8], "big") / 2**64
    return "test" if place < share else "valid" if place < 2 * share else "train"


def run_split_tatoeba(args: argparse.Namespace) -> None:
    """Splits pairs so that no sentence, German or English, is in two sets.

    The English sentence chooses the set. Of its pairs, validation and test take the first, so that a test sentence has
    one reference. A pair whose German sentence is also in the test set, or for training in either, is dropped.
    """
    parts: dict[str, list[tuple[str, str]]] = {"train": [], "valid": [], "test": []}
    held_out: set[str] = set()
    for english, german in read_tatoeba(args.input):
        name, key = choose_set(english, args.share), key_of(english)
        if name == "train" or key not in held_out:
            parts[name].append((german, english))
            held_out.update([key] if name != "train" else [])
    total, taken = sum(map(len, parts.values())), set()
    for name in ("test", "valid", "train"):
        parts[name] = [pair for pair in parts[name] if key_of(pair[0]) not in taken]
        taken.update(key_of(german) for german, _ in parts[name])
        with TextWriter(args.folder / f"{name}.de", args.folder / f"{name}.en") as writer:
            for pair in parts[name]:
                writer.write(*pair)
    counts = ", ".join(f"{name} {len(pairs)}" for name, pairs in parts.items())
    print(f"{counts}; {total - sum(map(len, parts.values()))} dropped: their German sentence is in another set")


def run_check(args: argparse.Namespace) -> None:
    """Refuses misaligned files and empty lines."""
    for number, pair in enumerate(read_pairs(*args.inputs), start=1):
        for path, line in zip(args.inputs, pair, strict=True):
            if not line.strip():
                raise ValueError(f"{path}, line {number}: must hold a sentence, but is empty; clean the text first.")


def run_compare(args: argparse.Namespace) -> None:
    """Says whether prepared text is the published one; sacremoses and Moses may differ, so that is a warning only."""
    for line in read_lines(args.checksums):
        wanted, name, *blocks = line.split()
        content = (args.folder / name).read_bytes()
        if hashlib.sha256(content).hexdigest() == wanted:
            print(f"{name}: identical to the published file")
        else:
            print(f"{name}: DIFFERS from the published file{describe_difference(content, *blocks)}")


def checksum_blocks(content: bytes) -> str:
    """The first six hexadecimal digits of the SHA-256 of every 25 lines, one after the other."""
    lines = content.split(b"\n")[:-1]
    blocks = (b"\n".join(lines[start : start + BLOCK]) for start in range(0, len(lines), BLOCK))
    return "".join(hashlib.sha256(block).hexdigest()[:6] for block in blocks)


def describe_difference(content: bytes, wanted: str = "") -> str:
    """Where a text differs from one of which only the checksums of its blocks are known; empty without these."""
    if not wanted:
        return ""
    have = checksum_blocks(content)
    blocks = max(len(wanted), len(have)) // 6
    different = [n for n in range(blocks) if wanted[6 * n : 6 * n + 6] != have[6 * n : 6 * n + 6]]
    places = [f"{BLOCK * n + 1}-{BLOCK * n + BLOCK}" for n in different[:5]] + ["..."] * (len(different) > 5)
    return f" in {len(different)} of {blocks} blocks of {BLOCK} lines: lines {', '.join(places)}"


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run, what: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=what)
        command.set_defaults(run=run)
        return command

    command = add("extract", run_extract, "members of a .tgz or .zip, flat into a folder")
    command.add_argument("archive", type=Path)
    command.add_argument("folder", type=Path)
    command.add_argument("names", nargs="+")
    command = add("strip-tags", run_strip_tags, "sentences of IWSLT's train.tags files")
    command.add_argument("input", type=Path)
    command.add_argument("output", type=Path)
    command = add("segments", run_segments, "sentences of XML or SGML test sets")
    command.add_argument("inputs", type=Path, nargs="+")
    command.add_argument("--output", type=Path, required=True)
    command.add_argument("--keep-apostrophes", action="store_true", help="typographic ones, which else become ordinary")
    command = add("tokenize", run_tokenize, "Moses tokenisation")
    command.add_argument("input", type=Path)
    command.add_argument("output", type=Path)
    command.add_argument("--lang", required=True)
    command.add_argument("--normalize", action="store_true", help="normalise punctuation first")
    command.add_argument("--aggressive-hyphens", action="store_true", help="split words at hyphens")
    command.add_argument("--lower-case", action="store_true", help="write small letters")
    command.add_argument("--workers", type=int, default=1, help="processes")
    command = add("clean", run_clean, "drop pairs by length and ratio")
    command.add_argument("--inputs", type=Path, nargs=2, required=True)
    command.add_argument("--outputs", type=Path, nargs=2, required=True)
    command.add_argument("--max", type=int, required=True, help="longest sentence, in words")
    command.add_argument("--ratio", type=float, default=1.5, help="largest ratio of the lengths")
    command = add("split", run_split, "every n-th pair to validation")
    command.add_argument("--inputs", type=Path, nargs=2, required=True)
    command.add_argument("--chosen", type=Path, nargs=2, required=True)
    command.add_argument("--rest", type=Path, nargs=2, required=True)
    command.add_argument("--every", type=int, required=True)
    command = add("split-tatoeba", run_split_tatoeba, "English TAB German into train, valid, test")
    command.add_argument("input", type=Path)
    command.add_argument("folder", type=Path)
    command.add_argument("--share", type=float, default=0.015, help="of English sentences, for valid and test each")
    command = add("check", run_check, "two files are aligned and have no empty line")
    command.add_argument("inputs", type=Path, nargs=2)
    command = add("compare", run_compare, "compare prepared files with the published ones")
    command.add_argument("checksums", type=Path, help="lines: SHA-256, path within the folder")
    command.add_argument("folder", type=Path)
    return parser


def main() -> int:
    args = build_parser().parse_args()
    try:
        args.run(args)
    except (ValueError, OSError) as error:
        print(f"corpus: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
