"""Reads a BERT from a folder as Hugging Face's ``transformers`` writes it: config.json and the parameters.

Nothing in those files is run: parameters come from ``model.safetensors`` or, with ``weights_only``, from
``pytorch_model.bin``.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from muse_plugin.modules.bert_encoder import ACTIVATIONS, BertEncoder, BertSizes
from muse_plugin.pretrained.torch_files import check_stored_whole, check_torch_file

CONFIG_NAME = "config.json"
WEIGHT_NAMES = ("model.safetensors", "pytorch_model.bin")
_RULE = f"--bert-dir must name a folder with {CONFIG_NAME} and {' or '.join(WEIGHT_NAMES)}"

# Ours by theirs, next to the layers.
_EMBEDDINGS = {
    "embeddings.word_embeddings.weight": "words.weight",
    "embeddings.position_embeddings.weight": "positions.weight",
    "embeddings.token_type_embeddings.weight": "segments.weight",
    "embeddings.LayerNorm.weight": "embedding_norm.weight",
    "embeddings.LayerNorm.bias": "embedding_norm.bias",
}
_LAYER = {
    "attention.output.dense": "out_proj",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "fc1",
    "output.dense": "fc2",
    "output.LayerNorm": "output_norm",
}
_STACKED = ("query", "key", "value")
# What such files hold besides the encoder.
_UNUSED = ("pooler.", "cls.", "embeddings.position_ids", "classifier.", "dropout.")
_NAMED_AT_MOST = 5
_LONGEST_CONFIG = 1 << 20  # bytes; they have a few hundred
_MOST_LAYERS = 1000  # they have up to 48; each takes time to build, however narrow it is
_SHOWN = 60  # characters of a value in messages
_FEW = 1 << 24  # parameters that can be built without harm; the comparison by names then says more


def read_bert_sizes(folder: Path) -> BertSizes:
    """Reads ``config.json`` of a folder, and checks that the file of parameters is large enough for what it says.

    Raises:
        FileNotFoundError: if there is no such file, or no parameters.
        ValueError: if it is no BERT's, or a size is missing or impossible.
    """
    path = folder / CONFIG_NAME
    if not path.is_file():
        raise FileNotFoundError(f"{_RULE}, but there is no {path}.")
    weights = _find_weights(folder)
    if path.stat().st_size > _LONGEST_CONFIG:
        raise ValueError(f"{path} must have at most {_LONGEST_CONFIG:,} bytes, but it has {path.stat().st_size:,}.")
    try:
        sizes = parse_bert_sizes(path.read_bytes().decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    # Before anything of these sizes is built.
    parameters, stored = _count_parameters(sizes), weights.stat().st_size
    if parameters > max(stored, _FEW):
        raise ValueError(
            f"{path} must fit {weights.name} next to it, but its sizes make {parameters:,} parameters and that file "
            f"has only {stored:,} bytes; copy or download the folder again."
        )
    if sizes.num_hidden_layers > _MOST_LAYERS:
        raise ValueError(
            f"{path} must be of a BERT with at most {_MOST_LAYERS:,} layers, but num_hidden_layers is "
            f"{sizes.num_hidden_layers:,}; copy or download the folder again."
        )
    return sizes


def parse_bert_sizes(text: str) -> BertSizes:
    """Reads the sizes out of the text of a ``config.json``.

    Raises:
        ValueError: if it is no BERT's, or a size is missing or impossible.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"BERT's sizes must be a JSON object, but reading it gave '{error}'.") from None
    if not isinstance(content, dict):
        raise ValueError(f"BERT's sizes must be a JSON object, but got a {type(content).__name__}.")
    kind = content.get("model_type", "bert")
    if kind != "bert":
        raise ValueError(
            f"--bert-dir must hold a BERT, model_type 'bert', but this is {_show(kind)}; choose another model."
        )
    positions = content.get("position_embedding_type", "absolute")
    if positions != "absolute":
        raise ValueError(f"BERT's positions must be absolute, but position_embedding_type is {_show(positions)}.")
    values: dict[str, Any] = {}
    for name, annotation in BertSizes.__annotations__.items():
        if name not in content:
            if name in BertSizes._field_defaults:
                continue
            raise ValueError(f"BERT's sizes must have {name}, but it is missing.")
        values[name] = value = content[name]
        if not _is_possible(name, value, str(annotation)):
            raise ValueError(f"BERT's sizes must be possible ones, but {name} is {_show(value)}.")
    sizes = BertSizes(**values)
    if sizes.hidden_size % sizes.num_attention_heads != 0:
        raise ValueError(
            "BERT's hidden_size must be divisible by num_attention_heads, but they are "
            f"{_show(sizes.hidden_size)} and {_show(sizes.num_attention_heads)}."
        )
    return sizes


def _show(value: Any) -> str:
    return repr(value)[:_SHOWN]


def _is_possible(name: str, value: Any, annotation: str) -> bool:
    if name == "hidden_act":
        return isinstance(value, str) and value in ACTIVATIONS
    if "float" not in annotation:
        return type(value) is int and value >= 1
    number = type(value) in (int, float)
    return number and (0 < value < 1 if name == "layer_norm_eps" else 0 <= value < 1)


def write_bert_sizes(sizes: BertSizes) -> str:
    """The sizes as ``parse_bert_sizes`` reads them."""
    return json.dumps(sizes._asdict())


def load_bert_weights(encoder: BertEncoder, folder: Path) -> None:
    """Fills an encoder with the parameters of a folder.

    Args:
        encoder: of the sizes in the folder; with fewer layers it gets the lowest ones.
        folder: of the model.

    Raises:
        FileNotFoundError: if there are no parameters.
        ImportError: if they are in the safetensors format and that package is missing.
        ValueError: if the file is damaged, or parameters are missing, unknown or of another shape; they are named.
    """
    path = _find_weights(folder)
    theirs = {_strip(name): tensor for name, tensor in _read(path).items()}
    layers = read_bert_sizes(folder).num_hidden_layers
    wanted = _list_parts(layers)
    missing = sorted(part for parts in wanted.values() for part in parts if part not in theirs)
    known = {part for parts in wanted.values() for part in parts}
    extra = sorted(name for name in theirs if name not in known and not name.startswith(_UNUSED))
    if missing or extra:
        raise ValueError(
            f"{path} must hold the parameters of a BERT with {layers} layers, but "
            f"{_name_some(missing, 'missing')}{' and ' if missing and extra else ''}{_name_some(extra, 'unknown')}; "
            f"the parameters must be those of {CONFIG_NAME} next to them."
        )
    own = encoder.state_dict()
    for name, parameter in own.items():
        # Their parts are of equal height.
        shape = (parameter.shape[0] // len(wanted[name]), *parameter.shape[1:])
        for part in wanted[name]:
            if theirs[part].shape != shape:
                raise ValueError(
                    f"{path} must fit {CONFIG_NAME} next to it, but {part} has the shape {tuple(theirs[part].shape)} "
                    f"instead of {shape}."
                )
    encoder.load_state_dict({name: torch.cat([theirs[part] for part in wanted[name]]) for name in own})


def _find_weights(folder: Path) -> Path:
    path = next((folder / name for name in WEIGHT_NAMES if (folder / name).is_file()), None)
    if path is None:
        raise FileNotFoundError(f"{_RULE}, but {folder} has no parameters.")
    return path


def _count_parameters(sizes: BertSizes) -> int:
    width, hidden = sizes.hidden_size, sizes.intermediate_size
    rows = sizes.vocab_size + sizes.max_position_embeddings + sizes.type_vocab_size
    layer = 4 * width * (width + 1) + width * hidden + hidden + hidden * width + width + 4 * width
    return rows * width + 2 * width + sizes.num_hidden_layers * layer


def _list_parts(layers: int) -> dict[str, list[str]]:
    """Their parameters, stacked in this order, by our names."""
    parts = {ours: [theirs] for theirs, ours in _EMBEDDINGS.items()}
    for layer in range(layers):
        for kind in ("weight", "bias"):
            for theirs, ours in _LAYER.items():
                parts[f"layers.{layer}.{ours}.{kind}"] = [f"encoder.layer.{layer}.{theirs}.{kind}"]
            parts[f"layers.{layer}.in_proj.{kind}"] = [
                f"encoder.layer.{layer}.attention.self.{name}.{kind}" for name in _STACKED
            ]
    return parts


def _strip(name: str) -> str:
    """A parameter's name without the model around it, and as it is called today."""
    name = name.removeprefix("bert.")
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        try:
            from safetensors.torch import load_file
        except ImportError as error:
            raise ImportError(
                f"reading {path} needs the package safetensors, which is not installed; pip install safetensors."
            ) from error
        reader: Any = load_file
    else:
        check_torch_file(path)
        reader = partial(torch.load, map_location="cpu", weights_only=True)
    try:
        state = reader(str(path))
    except Exception as error:  # a damaged or foreign file may raise anything
        raise ValueError(
            f"{path} must hold the parameters of a BERT, but reading it gave: {' '.join(str(error).split())[:200]}; it "
            "is cut short, damaged, or holds more than parameters: copy or download it again."
        ) from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{path} must hold parameters by their names, but holds something else.")
    check_stored_whole(path, state)
    return {str(name): tensor.float() for name, tensor in state.items()}


def _name_some(names: list[str], what: str) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _NAMED_AT_MOST} more" if len(names) > _NAMED_AT_MOST else ""
    return f"{', '.join(names[:_NAMED_AT_MOST])}{more} {'is' if len(names) == 1 else 'are'} {what}"
