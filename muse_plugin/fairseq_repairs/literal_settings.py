"""Reads settings such as ``(0.9, 0.98)`` as data; fairseq runs them as Python, also those stored in a checkpoint."""

import ast
import operator
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from muse_plugin.fairseq_repairs.repair import Repair, loaded_command

# The modules of fairseq that call eval on a setting or a line of data, and its commands that do.
MODULES = (
    "fairseq.criterions.ctc",
    "fairseq.data.audio.raw_audio_dataset",
    "fairseq.data.codedataset",
    "fairseq.models.fconv",
    "fairseq.models.fconv_lm",
    "fairseq.models.fconv_self_att",
    "fairseq.models.hubert.hubert",
    "fairseq.models.lightconv_lm",
    "fairseq.models.speech_to_text.s2t_wav_transformer",
    "fairseq.models.transformer_lm",
    "fairseq.models.wav2vec.wav2vec",
    "fairseq.models.wav2vec.wav2vec2",
    "fairseq.optim.adafactor",
    "fairseq.optim.adam",
    "fairseq.optim.adamax",
    "fairseq.optim.cpu_adam",
    "fairseq.optim.fused_lamb",
    "fairseq.utils",
)
COMMANDS = ("eval_lm", "validate")

MAX_ITEMS = 100_000  # made by one *, so that '[0] * 9999999999' cannot fill the memory


def _times(left: Any, right: Any) -> Any:
    sequence, count = (right, left) if isinstance(left, int) else (left, right)
    if isinstance(sequence, (list, tuple, str, bytes)) and len(sequence) * count > MAX_ITEMS:
        raise ValueError("too many items")
    return left * right


_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _times,
    ast.Div: operator.truediv,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


def _value(node: ast.AST | None) -> Any:
    """The value of a part of the expression; ValueError for a kind of part that is not data."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(_value(item) for item in node.elts)
    if isinstance(node, ast.Dict):
        return {_value(key): _value(value) for key, value in zip(node.keys, node.values, strict=True)}
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.operand))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError(f"{type(node).__name__} is not data")


def evaluate_literal(text: str) -> Any:
    """Computes what a setting says without running anything.

    Understood are numbers, strings, True, False, None, lists, tuples, dicts, and ``+ - * /`` between numbers, or
    ``+`` and ``*`` where lists take them: ``1e-4``, ``(0.9, 0.98)``, ``[(512, 3)] * 4 + [(512, 1)]``.

    Raises:
        TypeError: if ``text`` is no string, as with ``eval``.
        ValueError: if it contains anything else, such as a name or a call.
    """
    if not isinstance(text, str):
        raise TypeError(f"a setting to evaluate must be a string, but got {type(text).__name__}")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, SyntaxError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        shown = text if len(text) <= 80 else text[:77] + "..."
        raise ValueError(
            f"a setting must be plain data such as 3, [3, 7], (0.9, 0.98) or [(512, 3)] * 4, but got {shown!r}; "
            "nothing of it was run. It is on the command line or among the settings stored in a checkpoint."
        ) from error


def _loaded_without() -> list[ModuleType]:
    modules = [sys.modules[name] for name in MODULES if name in sys.modules]
    modules += [module for name in COMMANDS for module in loaded_command(name)]
    return [module for module in modules if vars(module).get("eval") is not evaluate_literal]


def _apply() -> None:
    for module in _loaded_without():
        module.eval = evaluate_literal  # a module's own name hides the built-in


REPAIR = Repair(
    why="settings stored in a checkpoint (--adam-betas, --adaptive-softmax-cutoff, kernel lists ...) are passed to "
    "eval, so that a checkpoint from elsewhere can run code although the file itself is read safely",
    remedy=_apply,
    probe=lambda: bool(_loaded_without()),
)
