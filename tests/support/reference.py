"""The authors' reference numbers (``fixtures/muse_reference``) as models, batches and checkpoints of their program."""

from __future__ import annotations

import json
from argparse import Namespace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from fairseq.data import Dictionary

FOLDER = Path(__file__).parents[1] / "fixtures" / "muse_reference"
NAMES = sorted(path.stem for path in FOLDER.glob("*.npz"))
# Tolerances from the description that comes with the numbers.
STATE_ATOL, ATTENTION_ATOL, SCORE_ATOL, LOSS_RTOL, GRADIENT_RTOL = 2e-5, 1e-6, 2e-5, 1e-6, 1e-4


def make_dictionary(size: int) -> Dictionary:
    """A fairseq dictionary of ``size`` symbols, the four special ones included."""
    dictionary = Dictionary()
    for number in range(size - len(dictionary)):
        dictionary.add_symbol(f"w{number}")
    return dictionary


class Reference:
    """One fixture file."""

    def __init__(self, name: str) -> None:
        with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as archive:
            self.arrays = {key: archive[key] for key in archive.files}
        self.config = json.loads(str(self.arrays["config_json"]))
        self.parameter_names = [str(n) for n in self.arrays["param_names"]]

    def tensor(self, key: str) -> torch.Tensor:
        return torch.from_numpy(self.arrays[key])

    def batch(self, kind: str) -> dict[str, torch.Tensor]:
        names = ("src_tokens", "src_lengths", "prev_output_tokens", "target")
        return {name: self.tensor(f"{kind}/{name}") for name in names}

    def authors_checkpoint(self) -> dict:
        """A checkpoint as the authors' program writes it."""
        model = {key[len("param/") :]: self.tensor(key) for key in self.arrays if key.startswith("param/")}
        for name, source in self.config["tied"].items():
            if name in ("decoder.embed_tokens.weight",):
                model[name] = model[source]
        for side in ("encoder", "decoder"):
            model[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
        model["decoder.version"] = torch.tensor([2.0])
        args = Namespace(arch="transformer", task="translation", source_lang="de", target_lang="en")
        vars(args).update(self.config["model"])
        return {
            "args": args,
            "model": model,
            "optimizer_history": [{"criterion_name": "LabelSmoothedCrossEntropyCriterion", "num_updates": 7}],
            "extra_state": {"train_iterator": {"epoch": 3}},
            "last_optimizer_state": None,
        }

    def task(self) -> SimpleNamespace:
        source = make_dictionary(self.config["source_vocab"])
        shared = self.config["model"]["share_all_embeddings"]
        target = source if shared else make_dictionary(self.config["target_vocab"])
        return SimpleNamespace(source_dictionary=source, target_dictionary=target)

    def converted_model(self):
        """The reference model through our converter, in evaluation mode."""
        from fairseq.models import ARCH_MODEL_REGISTRY

        from muse_plugin.checkpoints.authors_format import convert_checkpoint

        converted = convert_checkpoint(self.authors_checkpoint())
        flags = converted["args"]
        model = ARCH_MODEL_REGISTRY[flags.arch].build_model(flags, self.task())
        model.load_state_dict(converted["model"])
        return model.eval()


@cache
def load_reference(name: str) -> Reference:
    return Reference(name)
