"""``--help`` also explains the flags of the architecture, the task, the criterion and so on that are named with it."""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, Optional

from fairseq import options
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY

from muse_plugin.fairseq_repairs.repair import Repair, replace
from muse_plugin_command.flag_suggestions import MISSING

_HELP = ("-h", "--help")


def _apply() -> None:
    @replace(options, "parse_args_and_arch")
    def parse_args_and_arch(
        original: Any, parser: argparse.ArgumentParser, words: Optional[Sequence[str]] = None, *rest: Any, **named: Any
    ) -> Any:
        words = named.pop("input_args", words)
        given = list(sys.argv[1:] if words is None else words)
        lacks_arch = "--arch" in parser._option_string_actions and _find_arch(given) is None
        if lacks_arch or not set(_HELP) & set(given):
            return original(parser, words, *rest, **named)
        given = [word for word in given if word not in _HELP]
        refuse = parser.error

        def error(message: str) -> NoReturn:
            if not message.startswith(MISSING):  # of the task: the data
                refuse(message)
            _print(parser, given)

        for action in parser._actions:
            action.required = False
        vars(parser)["error"] = error
        original(parser, given, *rest, **named)
        _print(parser, given)


def _print(parser: argparse.ArgumentParser, given: Sequence[str]) -> NoReturn:
    """Prints what the parser knows by now, with the values that the architecture chooses for its flags."""
    defaults = _find_defaults(_find_arch(given))
    for group in parser._action_groups:
        for action in group._group_actions if group.title == "Model-specific configuration" else ():
            value, text = defaults.get(action.dest), action.help or ""
            if action.nargs != 0 and value is not None and "${" not in str(value) and "(default" not in text:
                action.help = f"{text} (default: {value})".lstrip()
    parser.print_help()
    parser.exit()


def _find_arch(given: Sequence[str]) -> Optional[str]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--arch", "-a")
    return parser.parse_known_args(given)[0].arch


def _find_defaults(arch: Optional[str]) -> dict[str, Any]:
    if arch not in ARCH_MODEL_REGISTRY:
        return {}
    config = MODEL_DATACLASS_REGISTRY.get(arch) or getattr(ARCH_MODEL_REGISTRY[arch], "__dataclass", None)
    fields = dataclasses.fields(config) if config is not None else ()
    values = {field.name: field.default for field in fields}
    chosen = argparse.Namespace()
    ARCH_CONFIG_REGISTRY[arch](chosen)
    return {name: value for name, value in {**values, **vars(chosen)}.items() if value is not dataclasses.MISSING}


REPAIR = Repair(
    why="'fairseq-train --arch muse --help' prints the flags that all models have and none of the architecture's",
    remedy=_apply,
)
