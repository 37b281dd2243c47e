"""Lets --bf16 train on a CPU or a GPU; fairseq takes it for a run on a TPU."""

import importlib.util
import sys

from fairseq import options

from muse_plugin.fairseq_repairs.repair import Repair, replace


def _apply() -> None:
    @replace(options, "parse_args_and_arch")
    def parse_args_and_arch(original, parser, input_args=None, *rest, **named):
        parsed = original(parser, input_args, *rest, **named)
        args = parsed[0] if isinstance(parsed, tuple) else parsed  # (args, unknown flags) with parse_known
        asked_for = "--tpu" in (sys.argv[1:] if input_args is None else input_args)
        if getattr(args, "bf16", False) and not asked_for:
            args.tpu = False
        return parsed


REPAIR = Repair(
    why="--bf16 switches --tpu on, and without torch_xla training then ends with \"'NoneType' object has no attribute "
    "'xla_device'\", on CPU and GPU alike",
    remedy=_apply,
    concerns=lambda: importlib.util.find_spec("torch_xla") is None,
)
