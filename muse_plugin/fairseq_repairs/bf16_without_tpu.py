"""Lets --bf16 train on a CPU or a GPU; fairseq takes it for a run on a TPU."""

from __future__ import annotations

import functools
import importlib.util
import sys

from fairseq import options

from muse_plugin.fairseq_repairs.repair import Repair, rebind

_MARK = "_leaves_tpu_to_torch_xla"


def _is_needed() -> bool:
    # Which device is meant is decided in the middle of parsing a whole command line, which cannot be tried out here.
    return importlib.util.find_spec("torch_xla") is None and not hasattr(options.parse_args_and_arch, _MARK)


def _apply() -> None:
    original = options.parse_args_and_arch

    @functools.wraps(original)
    def parse_args_and_arch(parser, input_args=None, *rest, **named):
        parsed = original(parser, input_args, *rest, **named)
        args = parsed[0] if isinstance(parsed, tuple) else parsed  # (args, unknown flags) with parse_known
        asked_for = "--tpu" in (sys.argv[1:] if input_args is None else input_args)
        if getattr(args, "bf16", False) and not asked_for:
            args.tpu = False
        return parsed

    setattr(parse_args_and_arch, _MARK, True)
    rebind(original, parse_args_and_arch)


REPAIR = Repair(
    name="bf16-without-tpu",
    why="--bf16 switches --tpu on, and without torch_xla training then ends with \"'NoneType' object has no attribute "
    "'xla_device'\", on CPU and GPU alike",
    is_needed=_is_needed,
    apply=_apply,
)
