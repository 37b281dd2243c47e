"""Fetches the files of a recipe: resumes broken downloads, checks size and SHA-256, uses what is there already.

``python download.py MANIFEST DIR``: the manifest has one file per line, tab-separated:

    SHA-256 (or -)    size in bytes (or -)    file name    URL [further mirrors]

Downloads are by https only (http only from this machine itself). The checksum is that of the file's uncompressed
content if the file name does not end in .gz but NAME.gz is in DIR.
"""

import argparse
import gzip
import hashlib
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import NamedTuple, Optional
from urllib.parse import urlsplit

BLOCK = 1 << 20
TIMEOUT = 60  # seconds without a byte
THIS_MACHINE = ("127.0.0.1", "::1", "localhost")
CURL_CANNOT_RESUME = (22, 33, 36)  # exit codes: the server refuses the range, or knows none
CURL_NO_NETWORK = (5, 6, 7)  # exit codes: no address of the proxy, none of the server, no connection


class Wanted(NamedTuple):
    """A line of the manifest.

    Attributes:
        sha256: of the whole file; None if nobody has published it.
        size: in bytes; None if unknown.
        name: in the target folder.
        urls: mirrors, the first one preferred.
    """

    sha256: Optional[str]
    size: Optional[int]
    name: str
    urls: tuple[str, ...]


def read_manifest(path: Path) -> list[Wanted]:
    """Reads the table; lines that open with # are comments.

    Raises:
        ValueError: if a line does not have four columns.
    """
    wanted = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        columns = line.split("\t")
        if len(columns) != 4 or "/" in columns[2] or columns[2].startswith("."):
            raise ValueError(f"{path}, line {number}: must be SHA-256, size, file name, URLs, but is {line!r}.")
        sha256, size, name, urls = columns
        wanted.append(
            Wanted(None if sha256 == "-" else sha256, None if size == "-" else int(size), name, tuple(urls.split()))
        )
    return wanted


def find_fault(path: Path, wanted: Wanted) -> Optional[str]:
    """Compares a file with the manifest; for NAME.gz in place of NAME, its content.

    Returns:
        What is wrong with it, or None.
    """
    compressed_copy = path.name == f"{wanted.name}.gz"
    digest, size = hashlib.sha256(), 0
    try:
        with gzip.open(path) if compressed_copy else path.open("rb") as stream:
            while block := stream.read(BLOCK):
                digest.update(block)
                size += len(block)
                if wanted.size is not None and size > wanted.size:
                    return f"has more than the {wanted.size} bytes that it should have"
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return "is cut short or no gzip file"
    if wanted.size is not None and size != wanted.size:
        return f"has {size} bytes instead of {wanted.size}"
    if wanted.sha256 is not None and digest.hexdigest() != wanted.sha256:
        return f"has the SHA-256 {digest.hexdigest()} instead of {wanted.sha256}"
    return None


def find_file(wanted: Wanted, folder: Path) -> Optional[Path]:
    """The path of NAME or NAME.gz if the folder has it."""
    return next((path for path in (folder / wanted.name, folder / f"{wanted.name}.gz") if path.is_file()), None)


def fetch(wanted: Wanted, folder: Path, any_content: bool = False) -> Path:
    """Makes sure that a file is in the folder and is the right one.

    Args:
        wanted: which.
        folder: NAME or NAME.gz may be here already; a broken download is kept as NAME.part and continued.
        any_content: take a file that is there as it is; what is downloaded is checked all the same.

    Returns:
        The path of NAME or NAME.gz.

    Raises:
        ValueError: if a file that is there, or that all mirrors send, is not the right one.
        ConnectionError: if no mirror answers.
        OSError: if the disk is full, or curl is missing.
    """
    path = find_file(wanted, folder)
    if path is not None:
        fault = None if any_content else find_fault(path, wanted)
        if fault is None:
            return path
        raise ValueError(f"{path} {fault}; delete it to have it downloaded again, or put the right file there.")
    if shutil.which("curl") is None:
        raise FileNotFoundError(
            f"downloading {wanted.name} takes the program curl, which is not installed; install it."
        )
    reasons = []
    for url in wanted.urls:
        try:
            return download(url, wanted, folder)
        except (ConnectionError, ValueError) as error:
            reasons.append(f"{url}: {error}")
    raise ConnectionError(
        f"{wanted.name} could not be downloaded; run again to continue where it broke off, or put the file into "
        f"{folder} (or name its folder by RAW_DIR=...). " + "; ".join(reasons)
    )


def download(url: str, wanted: Wanted, folder: Path) -> Path:
    """Downloads one file from one mirror with curl, continuing where an earlier try broke off."""
    folder.mkdir(parents=True, exist_ok=True)
    part, path = folder / f"{wanted.name}.part", folder / wanted.name
    have = part.stat().st_size if part.is_file() else 0
    if wanted.size is not None:
        free = shutil.disk_usage(folder).free
        if free < wanted.size - have:
            raise OSError(f"{folder} has {free >> 20} MiB left, but {url} needs {(wanted.size - have) >> 20} MiB.")
    if wanted.size is None or have < wanted.size:
        check_url(url)
        result = run_curl(url, part)
        if result in CURL_CANNOT_RESUME and have:
            part.unlink()
            result = run_curl(url, part)
        if result != 0:
            network = ": there is no network, or no way to this server" if result in CURL_NO_NETWORK else ""
            raise ConnectionError(f"curl ended with exit code {result}{network}")
    fault = find_fault(part, wanted)
    if fault is not None:
        part.unlink()  # it is complete and wrong: the next try starts afresh
        raise ValueError(f"the download {fault}")
    part.replace(path)
    if wanted.sha256 is None:
        print(f"{wanted.name}: nobody has published its checksum; the SHA-256 of what came is {find_sha256(path)}")
    return path


def find_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def check_url(url: str) -> None:
    """Checks that nobody on the way can change what is downloaded.

    Raises:
        ValueError: if it is not by https, and not from this machine.
    """
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in THIS_MACHINE):
        raise ValueError("downloads must be by https, but this address is not")


def run_curl(url: str, part: Path) -> int:
    """Appends to ``part`` what is missing of ``url``; returns curl's exit code."""
    command = ["curl", "--fail", "--location", "--retry", "3", "--connect-timeout", "30", "--speed-limit", "1"]
    command += ["--speed-time", str(TIMEOUT), "--continue-at", "-", "--output", str(part)]
    # Nor may the server lead elsewhere than to https.
    command += ["--proto", f"={urlsplit(url).scheme}", "--proto-redir", "=https", "--", url]
    if not sys.stderr.isatty():
        command[1:1] = ["--silent", "--show-error"]
    return subprocess.run(command, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("manifest", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these files of the manifest")
    parser.add_argument("--any-content", action="store_true", help="take files that are there as they are: for trials")
    args = parser.parse_args()
    try:
        wanted = read_manifest(args.manifest)
        unknown = set(args.only or ()) - {file.name for file in wanted}
        if unknown:
            raise ValueError(f"{args.manifest} does not have {', '.join(sorted(unknown))}.")
        chosen = [file for file in wanted if not args.only or file.name in args.only]
        for file in chosen:
            print(f"{fetch(file, args.folder, args.any_content)}: ok", flush=True)
    except ConnectionError as error:
        missing = ", ".join(file.name for file in chosen if find_file(file, args.folder) is None)
        print(
            f"download: error: {error}. Still missing are {missing}; all are listed in {args.manifest}.",
            file=sys.stderr,
        )
        return 2
    except (ValueError, OSError) as error:
        print(f"download: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
