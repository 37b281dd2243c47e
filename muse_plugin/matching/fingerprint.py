"""Names the encoder that made a vector, so that vectors of another are refused.

What counts: the parameters that a sentence's vector depends on, the model's flags that do (two models may differ in
nothing but the number of heads), the dictionaries, the treatment of text, and how many words are read. What decides
about pairs only, after the vectors, does not count: a classifier may be trained again for the same vectors.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from muse_plugin.inference.predict import LoadedModel
from muse_plugin.models.muse_config import flat_flags

# Modules of a pair model that see vectors, not words; a model with others says so in an attribute ``scoring_modules``.
_SCORING_MODULES = ("classifier", "matcher")
# Flags without a say in a vector that a trained model makes.
_SCORING_FLAGS = (
    *("pair_features", "classifier_hidden_dim", "classifier_activation", "crf"),
    *("match_aggregation", "match_no_hierarchy", "match_per_layer", "match_dim"),
)
_TRAINING_FLAGS = (
    *("word_vectors", "freeze_word_vectors", "character_ngram_vectors"),
    *("bert_dir", "translation_checkpoint", "freeze_encoder"),
)
# Ways to compare heads all read the same vectors; the one that compares none reads others.
_HEAD_MATCHES = ("element", "cosine", "bilinear")


def fingerprint_encoder(loaded: LoadedModel) -> str:
    """Describes an encoder in 64 hexadecimal digits; call it before the model is made faster for inference.

    Args:
        loaded: the model, its task and the treatment of its text.

    Returns:
        SHA-256; pass it on to ``fingerprint_vectors``.
    """
    digest = hashlib.sha256()
    dictionaries = (loaded.task.source_dictionary, loaded.task.character_dictionary)
    symbols = [[] if dictionary is None else list(dictionary.symbols) for dictionary in dictionaries]
    for part in (_describe(loaded), *symbols):
        digest.update(json.dumps(part, sort_keys=True).encode("utf-8") + b"\n")
    for name, tensor in encoder_parameters(loaded.model):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def fingerprint_vectors(encoder: str, max_words: int) -> str:
    """The fingerprint of an encoder together with the longest text that it was given.

    Args:
        encoder: from ``fingerprint_encoder``.
        max_words: words read of a sentence.
    """
    return hashlib.sha256(f"{encoder} {max_words}".encode()).hexdigest()


def encoder_parameters(model: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yields names and values of what a vector may depend on, in the order of the names."""
    scoring: tuple[str, ...] = getattr(model, "scoring_modules", _SCORING_MODULES)
    for name, tensor in sorted(model.state_dict().items()):
        if name.split(".")[0] not in scoring:
            yield name, tensor


def _describe(loaded: LoadedModel) -> dict[str, Any]:
    config = getattr(loaded.model, "config_class", None)
    flags: dict[str, Any] = {}
    if config is not None:
        values = vars(flat_flags(loaded.cfg, config))
        if values.get("match") in _HEAD_MATCHES:
            del values["match"]
        # Only what differs from the default, so that a flag that a later version adds changes nothing.
        defaults = {entry.name: _plain(entry.default) for entry in fields(config)}
        ignored = {*_SCORING_FLAGS, *_TRAINING_FLAGS}
        flags = {
            name: _plain(value)
            for name, value in values.items()
            if name not in ignored and "dropout" not in name and _plain(value) != defaults[name]
        }
    if getattr(loaded.task, "dropped", None) is not None:
        flags["unknown_words"] = "drop"
    settings = loaded.text.settings
    # These names and this order are those of caches that were made before.
    tokenizer = "wordpiece" if settings.subwords == "wordpiece" else settings.tokenizer
    text: list[Any] = [settings.lower_case, tokenizer, settings.lang, settings.strip_accents, settings.split_chinese]
    if settings.subwords not in ("none", "wordpiece"):  # other codes make other words of the same dictionary
        text.append(hashlib.sha256(loaded.text.read_subwords()).hexdigest())
    return {"model": type(loaded.model).__name__, "flags": flags, "text": text}


def _plain(value: Any) -> Any:
    """A value of a flag as JSON has it."""
    if isinstance(value, Enum):
        value = value.value
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
