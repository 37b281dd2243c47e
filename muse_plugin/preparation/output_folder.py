"""Which folder a data set may be written to: a new one, or one that holds a data set made with the same settings."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

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
    old = earlier.arguments  # a flag that an earlier version did not have was not given
    if names := [name for name in {**old, **arguments} if old.get(name) != arguments.get(name)]:
        differences = (f"--{name.replace('_', '-')} was {old.get(name)} and is {arguments.get(name)}" for name in names)
        raise FileExistsError(
            f"--output must name a new folder or one made with the same settings, but {output} was made with others "
            f"({'; '.join(differences)}); name another folder or give --overwrite."
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
