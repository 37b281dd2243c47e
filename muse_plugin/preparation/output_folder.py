"""A folder that appears all at once: built beside its place, moved there when complete, and removed if it fails."""

import contextlib
import glob
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Optional

from muse_plugin.files.locks import try_lock
from muse_plugin.text.text_settings import EARLIER_NAME, FILE_NAME, SUBWORD_FILES, load_text_settings

# What a data set may hold, whoever made it; a folder with anything else is never replaced.
DATA_NAMES = frozenset(
    {
        *("input0", "input1", "label", "characters0", "characters1"),
        *("word_vectors.txt", "preprocess.log", FILE_NAME, EARLIER_NAME, *SUBWORD_FILES.values()),
    }
)


def check_output(output: Path, arguments: Mapping[str, Any], overwrite: bool) -> None:
    """Checks that a folder may be made, or made again.

    Args:
        output: where the data set is to be.
        arguments: the flags that it depends on; a data set made with the same ones may be replaced.
        overwrite: whether any data set may be replaced.

    Raises:
        NotADirectoryError: if ``output`` is a file.
        FileExistsError: if the folder holds something that must not be replaced.
    """
    names = list_data(output, DATA_NAMES.__contains__)
    if not names or overwrite:
        return
    try:
        _, earlier = load_text_settings(output)
    except (FileNotFoundError, ValueError) as error:
        raise FileExistsError(
            f"--output must name a new or an empty folder, but {output} holds {', '.join(names[:3])} and no "
            f"{FILE_NAME} that says how they were made; name another folder or give --overwrite."
        ) from error
    differences = _describe_differences(earlier.arguments, arguments)
    if differences:
        raise FileExistsError(
            f"--output must name a new folder or one made with the same settings, but {output} was made with others "
            f"({differences}); name another folder or give --overwrite."
        )


def list_data(output: Path, is_data: Callable[[str], bool]) -> list[str]:
    """Lists what a folder holds, which must be prepared data alone; nothing if there is no folder.

    Args:
        output: the folder.
        is_data: says of a name whether it may be replaced.

    Raises:
        NotADirectoryError: if ``output`` is a file.
        FileExistsError: if the folder holds anything else.
    """
    if not output.exists():
        return []
    if not output.is_dir():
        raise NotADirectoryError(f"--output must name a folder, but {output} is a file; name another.")
    names = sorted(path.name for path in output.iterdir())
    foreign = [name for name in names if not is_data(name)]
    if foreign:
        raise FileExistsError(
            f"--output must name a new folder, an empty one or one of prepared data alone, but {output} also holds "
            f"{', '.join(foreign[:3])}; name another folder or move that elsewhere."
        )
    return names


def _describe_differences(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    # A flag that an earlier version did not have was not given.
    names = [name for name in {**earlier, **now} if earlier.get(name) != now.get(name)]
    return "; ".join(f"--{name.replace('_', '-')} was {earlier.get(name)} and is {now.get(name)}" for name in names)


@contextlib.contextmanager
def build_folder(output: Path) -> Iterator[Path]:
    """Gives a new folder to fill, which takes the place of ``output`` when the block ends without an exception.

    When anything fails, it is removed, ``output`` is what it was, and folders made above it are gone. What killed
    programs left of the same output is removed.

    Args:
        output: an existing folder, which is replaced, or a new one.

    Yields:
        A folder beside ``output``.
    """
    output = output.resolve()
    made = [folder for folder in output.parents if not folder.exists()]
    output.parent.mkdir(parents=True, exist_ok=True)
    folder = output.with_name(f".{output.name}.{uuid.uuid4().hex[:8]}.tmp")
    _remove_leftovers(output)
    lock = None
    try:
        folder.mkdir()
        lock = _lock_folder(folder)
        yield folder
        _take_place(folder, output)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        for parent in made:
            with contextlib.suppress(OSError):  # somebody else has put something there
                parent.rmdir()
        raise
    finally:
        if lock is not None:
            os.close(lock)


def _lock_folder(folder: Path) -> Optional[int]:
    """Locks a folder as long as this process lives and the result is open; None if another has done so."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    with contextlib.suppress(OSError):  # of a file system without locks
        if try_lock(descriptor):
            return descriptor
    os.close(descriptor)
    return None


def _remove_leftovers(output: Path) -> None:
    for folder in output.parent.glob(f".{glob.escape(output.name)}.????????.tmp"):
        with contextlib.suppress(OSError):
            # An empty one may not be locked yet.
            lock = _lock_folder(folder) if any(folder.iterdir()) else None
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def _take_place(folder: Path, output: Path) -> None:
    if not output.exists():
        folder.rename(output)
        return
    aside = folder.with_suffix(".old")
    output.rename(aside)
    try:
        folder.rename(output)
    except BaseException:
        aside.rename(output)
        raise
    shutil.rmtree(aside, ignore_errors=True)
