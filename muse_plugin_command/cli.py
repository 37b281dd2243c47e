"""One command, ``muse-plugin``, with sub-commands whose work is imported only after their flags are read.

Nothing but the standard library is imported here: importing ``muse_plugin`` imports fairseq, which takes seconds and is
impossible on the machine where ``muse-plugin doctor`` is needed most.

To add a sub-command, add a line to ``COMMANDS``. A file of its name in ``flags`` defines ``add_arguments(parser)``, and
the module that the line names defines ``run(args) -> int``. Work that needs no fairseq may be done without: ``flags``
then also defines ``needs_fairseq(args)``.
"""

import argparse
import errno
import gc
import importlib
import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, Optional

from muse_plugin_command.flag_suggestions import SuggestingParser

PACKAGE_FOLDER = Path(__file__).resolve().parents[1] / "muse_plugin"

# What a sub-command raises to tell the user something; any other exception is a defect and keeps its traceback.
USER_ERRORS = (
    ValueError,
    NotImplementedError,
    ImportError,
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)


class Command(NamedTuple):
    """A line of the table of sub-commands.

    Attributes:
        module: where ``run`` is defined, as ``muse_plugin.<module>``.
        help: one line for ``muse-plugin --help``.
        standalone: if true, the module is in this package and needs only the standard library.
    """

    module: str
    help: str
    standalone: bool = False


COMMANDS = {
    "path": Command("cli", "print the folder of this package, for fairseq's --user-dir", standalone=True),
    "doctor": Command("doctor", "check what is installed and say what each missing thing costs", standalone=True),
    "average": Command("checkpoints.averaging", "average several checkpoints of one training run into one"),
    "convert": Command("checkpoints.authors_format", "turn a checkpoint of the MUSE authors into one of this package"),
    "translate": Command("inference.translate", "translate raw sentences from standard input"),
    "serve": Command("serve.serve", "answer requests for translations over HTTP"),
    "view": Command("serve.view", "look into translations in a browser: n-best, attention, gates"),
    "export": Command("exporting.export", "write a folder that translates without fairseq and torch"),
    "prepare-translation": Command("preparation.prepare_translation", "make translation data from parallel text"),
    "text-pipeline": Command("preparation.write_text_pipeline", "make a text pipeline of existing subwords"),
    "prepare-text": Command("preparation.prepare_text", "make training data for sentence models from labelled text"),
    "predict": Command("inference.predict", "label or tag raw text with a sentence model"),
    "match": Command("matching.match", "encode sentences once, then score and search pairs of them"),
    "evaluate": Command("evaluation.evaluate", "score translations: BLEU in its kinds, chrF, TER"),
    "score-labels": Command("evaluation.score_labels", "score predicted labels, tags or numbers"),
    "analyze": Command("analysis.analyze", "look into models and training runs: figures with their numbers"),
    "benchmark": Command("benchmark.benchmark", "measure speed and memory against fairseq's own models"),
}


def run(args: argparse.Namespace) -> int:
    """Prints the folder of this package; the body of ``muse-plugin path``."""
    print(PACKAGE_FOLDER)
    return 0


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs one sub-command.

    Args:
        argv: the words after ``muse-plugin``; those of this process if None.

    Returns:
        The exit code: what the sub-command returned, or 2 if it could not be started or refused its input.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    name = next((word for word in words if not word.startswith("-")), "")
    parser = build_parser(name)
    try:
        args = parser.parse_args(words)
    except SystemExit as stop:  # argparse has printed its message or the help text
        return stop.code if isinstance(stop.code, int) else 2
    if name not in COMMANDS:
        parser.print_help(sys.stderr)
        return 2
    gc.disable()  # of what is imported, nothing is garbage: looking for it took a fifth of the time
    try:
        if not getattr(load_flags(name), "needs_fairseq", lambda _: True)(args):
            _open_package()
        body = load_body(name)
    except ImportError as error:
        if args.traceback:
            raise
        return _report(name, f"it cannot start: {error}; 'muse-plugin doctor' says what is missing.")
    finally:
        gc.enable()
    if not COMMANDS[name].standalone:
        _silence_libraries()
    try:
        return int(body.run(args))
    except Exception as error:
        sentence = _explain(error)
        if args.traceback or sentence is None:
            raise
        return _report(name, sentence)


def build_parser(name: str = "") -> argparse.ArgumentParser:
    """Builds the parser of the whole command line, which proposes the flag that a misspelt one may stand for.

    Args:
        name: the sub-command whose flags are declared; those of the others are not.
    """
    parser = SuggestingParser(prog="muse-plugin", description="Tools around the MUSE models for fairseq.")
    parser.add_argument("--version", action="version", version=f"muse-plugin {read_version()}")
    parser.add_argument("--traceback", action="store_true", help="show where in the program an error was raised")
    choices = parser.add_subparsers(title="commands", metavar="COMMAND")  # parsers of the same class
    for command, (_, summary, _) in COMMANDS.items():
        own = choices.add_parser(command, help=summary)
        if command == name:
            load_flags(name).add_arguments(own)
    return parser


def load_flags(name: str) -> ModuleType:
    """Imports the module that declares the flags of a sub-command."""
    return importlib.import_module(f"{__package__}.flags.{name.replace('-', '_')}")


def read_version() -> str:
    """Reads the version from the package's ``__init__.py`` without executing it."""
    text = (PACKAGE_FOLDER / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', text, flags=re.MULTILINE)
    return match[1] if match else "unknown"


def load_body(name: str) -> ModuleType:
    """Imports the module that does the work of a sub-command."""
    command = COMMANDS[name]
    if command.standalone:
        return importlib.import_module(f"{__package__}.{command.module}")
    if PACKAGE_FOLDER.name not in sys.modules and importlib.util.find_spec(PACKAGE_FOLDER.name) is None:
        sys.path.insert(0, str(PACKAGE_FOLDER.parent))  # a checkout that is not installed
    return importlib.import_module(f"{PACKAGE_FOLDER.name}.{command.module}")


def _open_package() -> None:
    """Opens ``muse_plugin`` without its ``__init__``, which imports fairseq and torch."""
    package = ModuleType(PACKAGE_FOLDER.name)
    package.__path__ = [str(PACKAGE_FOLDER)]
    sys.modules.setdefault(PACKAGE_FOLDER.name, package)


def _silence_libraries() -> None:
    """Leaves only warnings of those that report each step."""
    import logging  # most of the time that --help takes

    for library in ("fairseq", "muse_plugin.tasks", "matplotlib", "sacrebleu"):
        logging.getLogger(library).setLevel(logging.WARNING)


def _explain(error: Exception) -> Optional[str]:
    """What an error tells the user; None if it is a defect."""
    if isinstance(error, MemoryError):
        return "there is not enough memory; a file may ask for more than it should: see where it is from."
    if isinstance(error, USER_ERRORS):
        if isinstance(error, OSError) and error.filename is not None:  # the system's words, not a sentence
            return f"cannot use {error.filename}: {error.strerror}; check this path."
        return str(error)
    if isinstance(error, OSError) and error.errno in (errno.EROFS, errno.ENAMETOOLONG):
        return f"cannot write {error.filename}: {error.strerror}; choose another place."
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):  # EFBIG: "ulimit -f"
        return f"there is no room to write ({error.strerror}); make some, then give the command again."
    return None


def _report(name: str, sentence: str) -> int:
    print(f"muse-plugin {name}: error: {sentence}", file=sys.stderr)
    return 2
