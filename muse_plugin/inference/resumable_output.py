"""A file made from the lines of another file, which a program that was stopped at any moment continues making.

Next to OUTPUT are, until it is whole, ``OUTPUT.partial`` with the lines so far, ``OUTPUT.partial.json``, which says how
many they are and what they were made from, and a lock. In this order: the lines reach the disk, then the description is
replaced in one step. What the lines hold beyond it, such as half a line, is cut off when the work continues. At the end
``OUTPUT.partial`` takes its name and the others are removed. See ``streaming.py`` for the work itself.
"""

import contextlib
import glob
import hashlib
import io
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Optional

from muse_plugin.files.atomic_files import sync_folder
from muse_plugin.files.json_objects import read_versioned, write_json
from muse_plugin.files.locks import open_without_links, take_lock

FORMAT_VERSION = 2
PARTIAL, STATE, LOCK = ENDINGS = (".partial", ".partial.json", ".partial.lock")  # behind the name of the output
_BLOCK_BYTES = 1 << 20
_NOTHING = hashlib.sha256().hexdigest()
_WAY_OUT = "give --restart to begin again, or name another --output"


class PartialOutput:
    """A file that is being made from the lines of another; a context manager.

    What is done is kept when the block ends before ``finish``, unless that is nothing.

    Args:
        source: an ordinary file, from whose lines the output is made.
        target: where the output is to be; an ordinary file, or nothing yet.
        made_by: what else the output depends on: names and values (text, numbers) that messages show.
        restart: whether what was left unfinished is thrown away.

    Attributes:
        source: the open source, after the lines that are done.
        partial: where the output is until it is whole.
        is_in_place: whether the output has its name already: all that is left is to ``finish``.

    Raises:
        FileExistsError: if what was left unfinished was made from something else, or not by this class.
        ValueError: if somebody else is making the same file, or what was left is damaged.
    """

    def __init__(self, source: Path, target: Path, made_by: Mapping[str, Any], restart: bool = False) -> None:
        self.partial = target.with_name(f"{target.name}{PARTIAL}")
        self._target = target
        self._state_path = target.with_name(f"{target.name}{STATE}")
        self._lock_path = target.with_name(f"{target.name}{LOCK}")
        self._lock: Optional[BinaryIO] = None
        self._file: Optional[BinaryIO] = None
        self._is_new = False
        self.is_in_place = False
        self._saved = self._now = State(dict(made_by))
        self.source = _DigestingReader(source)
        try:
            self._lock = take_lock(self._lock_path, target, "name another --output")
            found = None if restart else self._find_unfinished(source)
            if found is None:
                self.source.read_again()
                self._is_new = True
                self._save(self._saved)  # first: a description of more lines than there are would be taken for damage
                self.partial.unlink(missing_ok=True)  # which may be a link to somewhere else
                self._file = self.partial.open("xb")
            else:
                self._saved = self._now = found
                self.is_in_place = not self.partial.exists()
                if not self.is_in_place:
                    self._file = self._open_partial(found)
        except BaseException:
            self._close()
            raise

    @property
    def lines(self) -> int:
        """Lines of the source that are done and safe."""
        return self._saved.lines

    def append(self, text: bytes, lines: int, can_go_on: bool) -> None:
        """Adds what was made from the lines that were read since the last call.

        Args:
            text: as many lines, each with its line break.
            lines: how many.
            can_go_on: if true, they are safe when this returns; if false, they are kept only by ``finish``, and a
                program that is stopped before makes them again.
        """
        assert self._file is not None, "the output is whole"
        self._file.write(text)
        self._now = State(
            self._now.made_by,
            lines=self._now.lines + lines,
            input_bytes=self.source.position,
            input_sha256=self.source.digest.hexdigest(),
            output_bytes=self._now.output_bytes + len(text),
        )
        if can_go_on and self.source.is_after_line_break:
            self._sync(self._file)
            self._save(self._now)

    def finish(self) -> None:
        """Puts the file, which is whole now, into its place."""
        if not self.is_in_place:
            assert self._file is not None
            self._sync(self._file)
            self._save(self._now)
            os.replace(self.partial, self._target)
            sync_folder(self._target.parent)
        self._remove_traces()

    def __enter__(self) -> "PartialOutput":
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._close()

    def _find_unfinished(self, source: Path) -> Optional["State"]:
        """What the work can continue from, or None if nothing is lost by beginning again."""
        found = _read_state(self._state_path)
        exists = self.partial.exists()
        if self.partial.is_symlink():
            raise FileExistsError(f"{self.partial} must be a file, but it is a link to another place; {_WAY_OUT}.")
        if found is None:
            if exists and self.partial.stat().st_size:
                raise FileExistsError(
                    f"{self.partial} must have {self._state_path.name} next to it, which says what it was made from, "
                    f"but there is none; {_WAY_OUT}."
                )
            return None
        if found.lines == 0:
            return None
        differences = self._compare(found, source)
        if not exists:  # it was stopped between its last two steps, or the output was moved since
            is_whole = self._target.is_file() and self._target.stat().st_size == found.output_bytes
            return found if is_whole and not differences and not self.source.peek(1) else None
        if differences:
            raise FileExistsError(
                f"--output must be new or left unfinished by the same command, but {self.partial} was made with "
                f"{' and '.join(differences)}; {_WAY_OUT}."
            )
        return found

    def _compare(self, found: "State", source: Path) -> list[str]:
        """What is not as it was; the source is read as far as it was before."""
        wanted = self._now.made_by
        differences = [
            f"{name} {found.made_by.get(name)} (now {wanted.get(name)})"
            for name in {**wanted, **found.made_by}
            if found.made_by.get(name) != wanted.get(name)
        ]
        self.source.read_up_to(found.input_bytes)
        if self.source.position != found.input_bytes or self.source.digest.hexdigest() != found.input_sha256:
            differences.append(f"another --input (its first {found.lines:,} lines are not those of {source})")
        return differences

    def _open_partial(self, found: "State") -> BinaryIO:
        """Opens the lines so far for adding more; what follows them is cut off."""
        size = self.partial.stat().st_size
        if size < found.output_bytes:
            raise ValueError(
                f"{self.partial} must begin with the {found.lines:,} lines ({found.output_bytes:,} bytes) that were "
                f"written, but it has {size:,} bytes; {_WAY_OUT}."
            )
        file = open_without_links(self.partial)
        file.truncate(found.output_bytes)
        return file

    def _sync(self, file: BinaryIO) -> None:
        file.flush()
        os.fsync(file.fileno())

    def _save(self, state: "State") -> None:
        content = {"format_version": FORMAT_VERSION, **asdict(state)}
        write_json(self._state_path, content, indent=2, ensure_ascii=False)
        self._saved = state

    def _remove_traces(self) -> None:
        """Removes all but the output and the lock, also what killed programs left of a description."""
        leftovers = self._target.parent.glob(f".{glob.escape(self._state_path.name)}.????????.tmp")
        for path in (*leftovers, self.partial, self._state_path):
            path.unlink(missing_ok=True)

    def _close(self) -> None:
        self.source.close()
        try:
            if self._file is not None:
                self._file.close()
        finally:
            if self._lock is not None:
                with self._lock:  # given back also if a file cannot be removed
                    if self._is_new and self.lines == 0:
                        self._remove_traces()
                    self._lock_path.unlink(missing_ok=True)  # last, for others may come as soon as it is gone


@dataclass(frozen=True)
class State:
    """What ``OUTPUT.partial.json`` holds.

    Attributes:
        made_by: see ``PartialOutput``.
        lines: of the source that are done.
        input_bytes: length of those.
        input_sha256: of those.
        output_bytes: length of what was made from them.
    """

    made_by: dict[str, Any]
    lines: int = 0
    input_bytes: int = 0
    input_sha256: str = _NOTHING
    output_bytes: int = 0


def fingerprint_file(path: Path) -> str:
    """Names the content of a file by ``sha256`` and the first 16 of its hexadecimal digits; see ``hash_file``."""
    return f"sha256 {hash_file(path)[:16]}"


def hash_file(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits.

    Raises:
        FileNotFoundError: if there is no such file.
    """
    with _DigestingReader(path) as reader:
        reader.read_up_to(None)
        return reader.digest.hexdigest()


class _DigestingReader(io.BufferedReader):
    """A file that knows what was read of it, line by line.

    Attributes:
        position: bytes read.
        digest: SHA-256 of those.
        is_after_line_break: whether the last of those ends a line.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))
        self.read_again()

    def read_again(self) -> None:
        """Goes back to the beginning."""
        self.seek(0)
        self.position = 0
        self.digest = hashlib.sha256()
        self.is_after_line_break = False

    def readline(self, size: Optional[int] = -1, /) -> bytes:
        return self._count(super().readline(size))

    def read_up_to(self, position: Optional[int]) -> None:
        """Reads on, to a position or, if it is None or beyond it, to the end."""
        while position is None or self.position < position:
            wanted = _BLOCK_BYTES if position is None else min(_BLOCK_BYTES, position - self.position)
            if not self._count(self.read(wanted)):
                break

    def _count(self, content: bytes) -> bytes:
        self.position += len(content)
        self.digest.update(content)
        if content:
            self.is_after_line_break = content.endswith(b"\n")
        return content


def _read_state(path: Path) -> Optional[State]:
    if not path.is_file():
        return None
    kinds: dict[str, Any] = {entry.name: dict if entry.name == "made_by" else entry.type for entry in fields(State)}
    with contextlib.suppress(ValueError):  # whatever is wrong with it, the way out is the same
        state = State(**read_versioned(path, FORMAT_VERSION, kinds, _WAY_OUT))
        if min(state.lines, state.input_bytes, state.output_bytes) >= 0:
            return state
    raise ValueError(
        f"{path} must be as this version of muse_plugin writes it, but it is damaged or of another version; {_WAY_OUT}."
    )
