"""Refuses a key of --model-overrides that no checkpoint has a setting for, and proposes the nearest one.

Keys are settings of the checkpoint or flags of its model and task; a flag newer than the checkpoint is added to it.
A checkpoint of fairseq before 1.0 keeps its settings in another form, for which every key is accepted as before.
"""

import argparse
from argparse import Namespace
from collections.abc import Iterator
from typing import Any, Optional

from fairseq import checkpoint_utils
from fairseq.dataclass import utils as dataclass_utils
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY
from omegaconf import DictConfig, OmegaConf, open_dict

from muse_plugin.fairseq_repairs.literal_settings import evaluate_literal
from muse_plugin.fairseq_repairs.repair import Repair, replace
from muse_plugin_command.flag_suggestions import find_near

# While checkpoints are read for a command: what was asked for, and of each checkpoint the names of its settings.
_reading: Optional[tuple[dict[str, Any], list[set[str]]]] = None


def _stored(cfg: Any) -> Iterator[str]:
    if isinstance(cfg, Namespace):
        yield from vars(cfg)
    elif isinstance(cfg, DictConfig):
        for key in cfg:
            yield str(key)
            if not OmegaConf.is_missing(cfg, key):
                yield from _stored(cfg[key])


def _declared(cfg: DictConfig) -> Iterator[tuple[str, str]]:
    """(group, name) of the flags of model and task, whether or not the checkpoint knows them."""
    model = cfg.get("model")
    name = getattr(model, "arch", None) or getattr(model, "_name", None)
    task = TASK_REGISTRY.get(getattr(cfg.get("task"), "_name", None))
    for group, kind in (("model", ARCH_MODEL_REGISTRY.get(name) or MODEL_REGISTRY.get(name)), ("task", task)):
        if kind is not None:
            parser = argparse.ArgumentParser(add_help=False, conflict_handler="resolve")
            kind.add_args(parser)
            yield from ((group, action.dest) for action in parser._actions)


def _asked(overrides: Optional[dict[str, Any]], task: Any) -> dict[str, Any]:
    """What the user gave by --model-overrides, of all that a command overrides.

    fairseq-validate overrides every flag of its command line, that one itself among them; the commands that have a task
    already override nothing else.
    """
    if overrides and "model_overrides" in overrides:
        return evaluate_literal(overrides["model_overrides"])
    return dict(overrides or {}) if task is not None else {}


def check_overrides(asked: dict[str, Any], settings: list[set[str]]) -> None:
    """Checks the keys of --model-overrides by the names of the settings in each checkpoint.

    Keys may be in groups, such as ``{'model': {'dropout': 0.1}}``.

    Raises:
        ValueError: if a key is known to no checkpoint.
    """
    known = set().union(*settings)
    keys = [*asked, *(key for group in asked.values() if isinstance(group, dict) for key in group)]
    for key in keys:
        if key not in known:
            near = find_near(str(key), sorted(known))
            advice = f"did you mean {near!r}?" if near else "they are called as flags of training, with _ for -."
            raise ValueError(
                f"--model-overrides must name settings of the checkpoint or its model, but there is none called "
                f"{str(key)!r}; {advice}"
            )


def _apply() -> None:
    @replace(dataclass_utils, "overwrite_args_by_name")
    def overwrite_args_by_name(original: Any, cfg: DictConfig, overrides: dict[str, Any]) -> None:
        if _reading is None or "model" not in cfg or "task" not in cfg:  # fairseq calls it for each group, too
            return original(cfg, overrides)
        (asked, settings), declared = _reading, list(_declared(cfg))
        settings.append({*_stored(cfg), *(name for _, name in declared)})
        original(cfg, overrides)  # which sets nothing that a group has not
        with open_dict(cfg):
            for group, name in declared:
                if name in asked and name not in cfg[group]:
                    cfg[group][name] = asked[name]

    @replace(checkpoint_utils, "load_model_ensemble_and_task")
    def load_model_ensemble_and_task(
        original: Any, filenames: Any, arg_overrides: Any = None, task: Any = None, *rest: Any, **named: Any
    ) -> Any:
        global _reading
        _reading = asked, settings = _asked(arg_overrides, task), []
        try:
            loaded = original(filenames, arg_overrides, task, *rest, **named)
            if settings:
                check_overrides(asked, settings)
        finally:
            _reading = None
        return loaded


REPAIR = Repair(
    why="a misspelt key of --model-overrides is ignored without a word",
    remedy=_apply,
)
