"""Starts ``muse_plugin/cli.py`` without importing the package; that file says why.

This is the installed command ``muse-plugin``; ``python scripts/muse_plugin_command/__init__.py`` is the same.
"""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

INTERRUPTED, BROKEN_PIPE = 128 + 2, 128 + 13  # what a shell reports for SIGINT and SIGPIPE


def main() -> int:
    """Runs the command line of this process.

    Returns:
        The exit code. Ctrl-C and a reader that has seen enough, such as ``head``, end it without a traceback.
    """
    try:
        code = int(load_cli(find_package_folder()).main())
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return BROKEN_PIPE
    return code


def find_package_folder() -> Path:
    """Finds the installed package, or the one of this checkout; executes nothing of it.

    Returns:
        The folder of muse_plugin.
    """
    checkout = Path(__file__).resolve().parents[2] / "muse_plugin"
    spec = importlib.util.find_spec("muse_plugin")
    for folder in [*(spec.submodule_search_locations or [] if spec else []), checkout]:
        if (Path(folder) / "cli.py").is_file():
            return Path(folder)
    sys.exit(
        "muse-plugin: error: the package muse_plugin must be importable, but it is not installed for "
        f"{sys.executable}; run scripts/setup.sh in a checkout of it."
    )


def load_cli(folder: Path) -> ModuleType:
    """Executes ``cli.py`` as a module of its own."""
    spec = importlib.util.spec_from_file_location("_muse_plugin_cli", folder / "cli.py")
    assert spec is not None
    assert spec.loader is not None
    cli = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = cli
    spec.loader.exec_module(cli)
    return cli


if __name__ == "__main__":
    sys.exit(main())
