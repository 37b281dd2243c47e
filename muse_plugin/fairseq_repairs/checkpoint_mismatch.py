"""Says which parameters of a checkpoint do not fit the model, where fairseq says that the architectures must match."""

import re
from pathlib import Path
from typing import Any

import torch
from fairseq.trainer import Trainer

from muse_plugin.fairseq_repairs.repair import Repair, find_cause, replace

_SIZE = re.compile(
    r"size mismatch for (?P<name>\S+): copying a param with shape torch\.Size\(\[(?P<there>[\d, ]*)\]\) from "
    r"checkpoint, the shape in current model is torch\.Size\(\[(?P<here>[\d, ]*)\]\)"
)
_NAMES = re.compile(r"(?P<kind>Missing|Unexpected) key\(s\) in state_dict: (?P<names>\"[^\n]*\")")
_OF_WORDS = re.compile(r"(embed_tokens|output_projection)\.\w+$")


def describe_mismatch(message: str) -> str | None:
    """Says in one sentence why parameters do not fit, from torch's message; None if that says nothing about it."""
    sizes = [tuple(found[part] for part in ("name", "there", "here")) for found in _SIZE.finditer(message)]
    of_words = [
        (there.split(", ")[0], here.split(", ")[0])
        for name, there, here in sizes
        if _OF_WORDS.search(name) and there.split(", ")[1:] == here.split(", ")[1:]
    ]
    names = {found["kind"]: found["names"].split(", ") for found in _NAMES.finditer(message)}
    if of_words and len(of_words) == len(sizes) and not names:
        words = " and ".join(dict.fromkeys(f"{there} words there and {here} here" for there, here in of_words))
        return (
            f"its dictionaries are not those of the data ({words}); binarise the data with the dictionaries of the "
            "checkpoint: fairseq-preprocess --srcdict, --tgtdict."
        )
    parts = []
    if sizes:
        name, there, here = sizes[0]
        more = f" ({len(sizes)} such parameters)" if len(sizes) > 1 else ""
        parts.append(f"{name} has the shape ({there}) there and ({here}) here{more}")
    for kind, is_in in (("Missing", "the model alone"), ("Unexpected", "the checkpoint alone")):
        if kind in names:
            more = f" ({len(names[kind])} such parameters)" if len(names[kind]) > 1 else ""
            parts.append(f"{names[kind][0].strip(chr(34))} is in {is_in}{more}")
    if not parts:
        return None
    return f"{'; '.join(parts)}. Give the architecture and the sizes with which it was trained."


def _apply() -> None:
    @replace(Trainer, "load_checkpoint")
    def load_checkpoint(original: Any, self: Trainer, filename: str, *rest: Any, **named: Any) -> Any:
        try:
            loaded = original(self, filename, *rest, **named)
        except Exception as error:
            cause = find_cause(error, RuntimeError)
            reason = describe_mismatch(str(cause)) if cause is not None else None
            if reason is None:
                raise
            raise ValueError(f"the checkpoint {filename} does not fit the model: {reason}") from error
        if "dictionaries" in self.task.state_dict() and Path(filename).is_file():
            state = torch.load(filename, map_location="cpu", weights_only=True, mmap=True)  # reads no parameters
            self.task.load_state_dict(state.get("task_state") or {})
        return loaded


REPAIR = Repair(
    why="a checkpoint whose dictionaries are not those of the data (--finetune-from-model) ends training with 'please "
    "ensure that the architectures match', which they do; with other dictionaries of the same size it trains, although "
    "a checkpoint may say (as those of sentence tasks do) which it was made with",
    remedy=_apply,
)
