"""Tiny sentence models of every kind, sentences for them, and data on disk in the layout that sentence tasks read."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import torch
from fairseq.data import Dictionary, indexed_dataset
from fairseq.models import MODEL_REGISTRY, build_model
from support.fairseq_commands import parse_training
from support.helpers import sentences_of
from support.reference import make_dictionary
from torch import nn

import muse_plugin  # noqa: F401  (registers models and tasks)
from muse_plugin.tasks.sentences.columns import WORD_SEPARATOR

PAD = 1
SYMBOLS = 30
CHARACTERS = 12
TRUNK = {
    "word_embed_dim": 10,
    "encoder_embed_dim": 12,
    "classifier_hidden_dim": 9,
    "embedding_dropout": 0.0,
    "dropout": 0.0,
    "classifier_dropout": 0.0,
}
_CHARACTERS = {"character_embed_dim": 5, "character_features": 6}
_ATTENTION = {"encoder_layers": 2, "encoder_attention_heads": 4, "attention_dropout": 0.0}
# Sizes of every model, and whether a sentence with its words swapped is another one to it.
MODELS = {
    "multi_scale_transformer": {**_ATTENTION, "encoder_head_dim": 5, "encoder_attention_scales": "1,3,N/4"},
    "sentence_transformer": {**_ATTENTION, "encoder_ffn_embed_dim": 16},
    "sentence_muse": {**_ATTENTION, "encoder_ffn_embed_dim": 16},
    "sentence_bigru": {"encoder_hidden_size": 7},
    "sentence_cnn": {"encoder_filter_widths": "2,3", "encoder_filters": 5},
    "sentence_average": {},
    "distance_attention_network": {"encoder_attention_heads": 3, "encoder_ffn_embed_dim": 16},
    "directional_attention_network": {},
    "lama": {"encoder_hidden_size": 7, "pooling_heads": 3},
    "lama_context": {"encoder_hidden_size": 7, "pooling_heads": 3},
    "lama_encoder": {"pooling_heads": 3},
    "sentence_structured_attention": {"encoder_hidden_size": 7, "pooling_heads": 3, "pooling_hidden_dim": 11},
}
VARIANTS = {
    **{name: {"model": name} for name in MODELS},
    "no_windows": {"encoder_attention_bias": "none"},
    "windows_of_one": {"encoder_attention_scales": "1"},
    "distance": {"encoder_attention_bias": "multi-scale,distance", "encoder_distance_slopes": "learned"},
    "scaled_by_model": {"attention_scale": "model", "encoder_attention_scales": "N/16,N/8,N/4,N/2"},
    "one_layer_with_windows": {"encoder_attention_bias_layers": "0"},
    "transformer_with_windows": {
        "model": "sentence_transformer",
        "encoder_attention_bias": "multi-scale",
        "encoder_attention_scales": "1,N/4",
    },
    "learned_positions": {"model": "sentence_transformer", "encoder_positions": "learned"},
    "no_positions": {"model": "sentence_transformer", "encoder_positions": "none", "no_layernorm_embedding": True},
    "normalize_before": {"model": "sentence_transformer", "encoder_normalize_before": True},
    "muse_in_stages": {
        "model": "sentence_muse",
        "encoder_branches": "self_attention,conv/ffn",
        "encoder_kernel_sizes": "[[3],[5,7]]",
    },
    "two_recurrent_layers": {"model": "sentence_bigru", "encoder_layers": 2},
    "no_input_map": {"model": "sentence_cnn", "word_embed_dim": 12, "input_projection": "needed"},
    "single_layer_on_top": {"model": "sentence_average", "classifier_hidden_dim": 0},
    "no_distance_mask": {"model": "distance_attention_network", "distance_alpha": 0.0},
    "no_projection_norms": {"model": "distance_attention_network", "projection_norms": "none"},
    "no_block_norms": {"model": "distance_attention_network", "no_block_norms": True},
    "disan_with_norms_on_top": {
        "model": "directional_attention_network",
        "pooling": "source_to_token_max",
        "projection_norms": "all",
    },
    "windows_with_source_to_token": {"pooling": "source_to_token_max"},
    "lama_of_rank_two_without_norm": {"model": "lama_context", "pooling_rank": 2, "pooling_norm": "none"},
    "windows_with_low_rank_attention": {"pooling": "low_rank_attention", "pooling_context": "mean"},
    "muse_with_low_rank_attention": {"model": "sentence_muse", "pooling": "low_rank_attention"},
    "character_cnn": {"character_encoder": "cnn", **_CHARACTERS},
    "character_bilstm": {"model": "sentence_bigru", "character_encoder": "bilstm", **_CHARACTERS},
    "character_features": {"model": "sentence_bigru", "word_features": "shape,affixes", "word_feature_dim": 4},
}


def make_task(
    predicts: str = "label", outputs: int = 3, characters: bool = False, max_words: int = 14, **settings: object
) -> SimpleNamespace:
    """What a model asks of its task."""
    attributes = {
        "predicts": predicts,
        "outputs": outputs,
        "pairs": False,
        "vector_size": 0,
        "labels": [f"label_{number}" for number in range(outputs)],
        "has_heads": None,
        "loads_checkpoint": False,
        "max_words": max_words,
        "source_dictionary": make_dictionary(SYMBOLS),
        "character_dictionary": make_dictionary(CHARACTERS) if characters else None,
    }
    attributes |= settings
    dictionary = attributes["source_dictionary"]
    return SimpleNamespace(**{"unknown_index": None if dictionary is None else dictionary.unk(), **attributes})


def build_preset(name: str, task: object = None, **flags: object) -> nn.Module:
    """A model of full size, as the command line makes it."""
    args = parse_training("data", "--arch", name, "--max-tokens=1")
    vars(args).update(flags)
    return MODEL_REGISTRY[name].build_model(args, task or make_task())


def build(model: str = "multi_scale_transformer", task: object = None, seed: int = 3, **flags: object) -> nn.Module:
    """A tiny model through fairseq's own entry; biases are random, since zeros hide mistakes."""
    torch.manual_seed(seed)
    if task is None:
        task = make_task(characters="none" not in (flags.get("character_encoder", ""), flags.get("word_features", "")))
    net = build_model(Namespace(_name=model, arch=model, **{**TRUNK, **MODELS.get(model, {}), **flags}), task)
    for name, parameter in net.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter, std=0.3)
    for embedding in (module for module in net.modules() if isinstance(module, nn.Embedding)):
        with torch.no_grad():
            embedding.weight.mul_(8 if embedding.weight.requires_grad else 1)
    return net


def faults_of(model: str = "multi_scale_transformer", task: object = None, **flags: object) -> list[str]:
    """The sentences with which ``build`` refuses flags or data, one per line."""
    return sentences_of(build, model, task, **flags)


@cache
def built(variant: str, **flags: object) -> nn.Module:
    """A variant in evaluation mode; shared, so do not change it."""
    return build(**{**VARIANTS[variant], **flags}).eval()


def make_sentences(*lengths: int, seed: int = 0) -> list[torch.Tensor]:
    """Random words."""
    generator = torch.Generator(torch.get_default_device()).manual_seed(seed)
    return [torch.randint(4, SYMBOLS, (n,), generator=generator) for n in lengths]


def make_characters(sentence: torch.Tensor, width: int = 4) -> torch.Tensor:
    """Characters of each word, shape (T, W): a function of the word."""
    rows = [[4 + (int(word) * (k + 1)) % (CHARACTERS - 4) for k in range(1 + int(word) % width)] for word in sentence]
    out = torch.full((len(rows), width), PAD)
    for row, ids in enumerate(rows):
        out[row, : len(ids)] = torch.tensor(ids)
    return out


def make_input(
    sentences: Sequence[torch.Tensor],
    longer: int = 0,
    filling: int = PAD,
    prefix: str = "src",
    characters: bool = False,
) -> dict[str, torch.Tensor]:
    """A batch, padded on the right to the longest and ``longer`` beyond; only lengths tell where sentences end."""
    lengths = torch.tensor([len(sentence) for sentence in sentences])
    size = int(lengths.max()) + longer
    tokens = torch.full((len(sentences), size), filling)
    for row, sentence in enumerate(sentences):
        tokens[row, : len(sentence)] = sentence
    batch = {f"{prefix}_tokens": tokens, f"{prefix}_lengths": lengths}
    if characters:
        batch[f"{prefix}_characters"] = torch.stack([make_characters(row) for row in tokens])
        outside = torch.arange(size) >= lengths[:, None]
        batch[f"{prefix}_characters"][outside] = filling
    return batch


# ---- data on disk -------------------------------------------------------------------------------------------------


def write_column(
    folder: Path, split: str, lines: Sequence[str], dictionary: Dictionary, append_eos: bool = True
) -> None:
    """Writes one binarised text as ``fairseq-preprocess --only-source`` does, and its dictionary."""
    folder.mkdir(parents=True, exist_ok=True)
    dictionary.save(str(folder / "dict.txt"))
    builder = indexed_dataset.make_builder(str(folder / f"{split}.bin"), impl="mmap", vocab_size=len(dictionary))
    for line in lines:
        builder.add_item(dictionary.encode_line(line, add_if_not_exist=False, append_eos=append_eos))
    builder.finalize(str(folder / f"{split}.idx"))


def dictionary_of(*texts: Sequence[str], padding_factor: int = 8) -> Dictionary:
    """The words of some texts, the most frequent first, filled up as fairseq does."""
    dictionary = Dictionary()
    for text in texts:
        for line in text:
            for word in line.split():
                dictionary.add_symbol(word)
    dictionary.finalize(padding_factor=padding_factor)
    return dictionary


def spell(line: str) -> str:
    """The characters of a line, words apart."""
    return f" {WORD_SEPARATOR} ".join(" ".join(word) for word in line.split())


def write_data(
    folder: Path,
    splits: Mapping[str, Sequence[Sequence[str]]],
    columns: Sequence[str] = ("input0", "label"),
    characters: bool = False,
    numbers: bool = False,
) -> Path:
    """Writes a folder that sentence tasks read.

    Args:
        folder: where to.
        splits: per split one row per sentence, of one text per column.
        columns: what the texts are: "input0", "input1", "label".
        characters: write characters0 and, for pairs, characters1.
        numbers: labels are numbers, in a text file.
    """
    texts = {
        column: {split: [row[i] for row in rows] for split, rows in splits.items()} for i, column in enumerate(columns)
    }
    words = dictionary_of(*(texts[c]["train"] for c in columns if c != "label"))
    for column in columns:
        for split, lines in texts[column].items():
            if column != "label":
                write_column(folder / column, split, lines, words)
            elif numbers:
                (folder / "label").mkdir(parents=True, exist_ok=True)
                (folder / "label" / f"{split}.label").write_text("".join(f"{line}\n" for line in lines))
            else:
                write_column(folder / "label", split, lines, dictionary_of(texts["label"]["train"], padding_factor=1))
    if characters:
        inputs = [column for column in columns if column != "label"]
        spelt = {c: {split: [*map(spell, lines)] for split, lines in texts[c].items()} for c in inputs}
        alphabet = dictionary_of(*(spelt[c]["train"] for c in inputs))
        if WORD_SEPARATOR not in alphabet.indices:
            alphabet.add_symbol(WORD_SEPARATOR)
        for column in inputs:
            for split, lines in spelt[column].items():
                write_column(folder / column.replace("input", "characters"), split, lines, alphabet)
    return folder
