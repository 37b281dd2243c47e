"""What is analysed: a trained model with sentences of its data, loaded by fairseq."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

import numpy as np
import torch
from fairseq import utils
from fairseq.models import FairseqEncoderDecoderModel
from torch import Tensor, nn

from muse_plugin.checkpoints.model_loading import build_model, check_data, find_checkpoint, read_state
from muse_plugin.inference.length_batches import make_batches
from muse_plugin_command.flags.analyze import MAX_TOKENS

_LONGEST_SHOWN = 20  # words of the sentence that is shown where none is asked for


class AnalyzedModel(NamedTuple):
    """A trained model and a part of its data.

    Attributes:
        name: what to call it.
        model: on the device where it is to run, in evaluation mode.
        task: its task.
        dataset: a split of the data.
        settings: of the checkpoint, for the record: architecture, task, updates.
    """

    name: str
    model: Any
    task: Any
    dataset: Any
    settings: dict[str, Any]

    @property
    def translates(self) -> bool:
        """Whether the model has a decoder."""
        return hasattr(self.model, "decoder")

    @property
    def padding(self) -> int:
        """Id that fills short sentences."""
        dictionary = self.task.source_dictionary
        return 1 if dictionary is None else int(dictionary.pad())


class Batches:
    """Sentences of a model in batches of similar length, made when they are asked for.

    Args:
        analyzed: whose data they are.
        indices: the sentences, see ``choose_sentences``.
        max_tokens: of a batch, padding included; a longer sentence makes a batch of its own.
    """

    def __init__(self, analyzed: AnalyzedModel, indices: Sequence[int], max_tokens: int = MAX_TOKENS) -> None:
        self.dataset = analyzed.dataset
        self.groups = make_batches({index: int(self.dataset.num_tokens(index)) for index in indices}, max_tokens)

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for group in self.groups:
            yield self.dataset.collater([self.dataset[index] for index in group])["net_input"]


def load_model(
    path: Path,
    split: str,
    data: Optional[Path] = None,
    name: Optional[str] = None,
    cpu: bool = False,
    flag: str = "--path",
) -> AnalyzedModel:
    """Loads a checkpoint and a split of its data.

    Args:
        path: a checkpoint, or a folder with one.
        split: such as valid.
        data: folder of the data; None for the one that the model was trained on.
        name: what to call it; None for the name of its architecture.
        cpu: if false, a GPU is used when there is one.
        flag: that named the checkpoint, for messages.

    Raises:
        FileNotFoundError: if the checkpoint, the data or the split are missing.
        ValueError: if the checkpoint is damaged, does not fit the data, or is of another kind of model.
    """
    try:
        checkpoint = find_checkpoint(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(str(error).replace("--path", flag)) from None
    overrides = {} if data is None else {"data": str(data)}
    state = read_state(path, overrides)
    trained, task_settings = state["cfg"]["model"], state["cfg"]["task"]
    place = task_settings.get("data")
    model, task = _build(checkpoint, state, overrides, place)
    # The settings of a model are a config or, for older models, a Namespace.
    names = trained if isinstance(trained, Mapping) else vars(trained)
    arch = str(names.get("_name") or names.get("arch"))
    updates = (state.get("optimizer_history") or [{}])[-1].get("num_updates")
    settings = {"checkpoint": str(path), "arch": arch, "task": str(task_settings["_name"]), "updates": updates}
    if not (hasattr(task, "predicts") or isinstance(model, FairseqEncoderDecoderModel)):
        raise ValueError(
            f"{flag} must be a model of translation or of sentences, but {checkpoint} holds {arch}, trained with "
            f"--task {settings['task']}; analyze another one."
        )
    dataset = _load_split(task, split, place)
    if torch.cuda.is_available() and not cpu:
        model.cuda()
    analyzed = AnalyzedModel(name or arch, model.eval(), task, dataset, settings)
    if analyzed.translates and getattr(dataset, "tgt", True) is None:
        raise ValueError(
            f"a translation model reads its data with their translations, but split {split} has no target side; "
            "binarise both languages, or choose another --split."
        )
    return analyzed


def _build(checkpoint: Path, state: dict[str, Any], overrides: dict[str, str], data: Any) -> tuple[nn.Module, Any]:
    if data is not None:
        check_data(checkpoint, Path(utils.split_paths(str(data), os.pathsep)[0]))
    try:
        return build_model(checkpoint, state, overrides, data)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"the data in {data} must be those that {checkpoint} was trained with, but they lack a file: {error}; name "
            "the folder of the right ones by --data."
        ) from error


def _load_split(task: Any, split: str, data: Any) -> Any:
    try:
        task.load_dataset(split)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"--split must name a part of the data in {data}, but got {split} ({error}); usual ones are train, valid "
            "and test. If the data are elsewhere, name their folder by --data."
        ) from error
    dataset = task.dataset(split)
    if len(dataset) == 0:
        raise ValueError(f"--split must name a part with sentences, but {split} in {data} is empty.")
    return dataset


def choose_sentences(analyzed: AnalyzedModel, count: int) -> list[int]:
    """The places of ``count`` sentences, increasing, spread evenly over those that the model can read; all if fewer.

    Raises:
        ValueError: if all sentences are too long.
    """
    places, limit = _keep_readable(analyzed, range(len(analyzed.dataset)))
    if len(places) == 0:
        raise ValueError(
            "at least one sentence must be short enough for the model, but all "
            f"{len(analyzed.dataset)} are longer than {limit}; choose another --split."
        )
    chosen = np.linspace(0, len(places) - 1, min(count, len(places))).round().astype(int)
    return sorted(int(place) for place in places[np.unique(chosen)])


def _keep_readable(analyzed: AnalyzedModel, places: Sequence[int]) -> tuple[Any, Any]:
    """Of the places those whose sentences the model can read, and how long they may be."""
    kept = np.array(places)
    limit = utils.resolve_max_positions(analyzed.task.max_positions(), analyzed.model.max_positions())
    if limit is not None:
        kept, _ = analyzed.dataset.filter_indices_by_size(kept, limit)
    return kept, limit


def choose_shown_sentence(analyzed: AnalyzedModel, indices: Sequence[int], number: Optional[int]) -> int:
    """The place of the sentence whose attention is shown.

    Args:
        analyzed: a model and its data.
        indices: of ``choose_sentences``.
        number: of the sentence in the split, from 1; None for the longest of ``indices`` with at most 20 tokens.

    Raises:
        ValueError: if there is no such sentence, or it is too long.
    """
    if number is None:
        lengths = {index: int(analyzed.dataset.num_tokens(index)) for index in indices}
        short = [index for index in indices if lengths[index] <= _LONGEST_SHOWN]
        return max(short, key=lengths.__getitem__) if short else min(indices, key=lengths.__getitem__)
    if not 1 <= number <= len(analyzed.dataset):
        raise ValueError(
            f"--sentence must be the number of a sentence of the split, from 1 to {len(analyzed.dataset)}, but got "
            f"{number}."
        )
    kept, limit = _keep_readable(analyzed, [number - 1])
    if len(kept) == 0:
        raise ValueError(
            f"--sentence must be short enough for the model, but {number} is longer than {limit}; name another."
        )
    return number - 1


def name_words(analyzed: AnalyzedModel, inputs: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The token at each position that encoder and decoder read, of ``inputs`` of one sentence.

    Returns:
        Words of the (first) source text, with the signs that the encoder reads around them; and those that the decoder
        has read when it predicts the next one, none without a decoder.
    """
    tokens: Tensor = inputs["src_tokens"][0]
    if tokens.dim() == 2:  # vectors
        words = [str(number) for number in range(1, len(tokens) + 1)]
    else:
        words = [str(analyzed.task.source_dictionary[token]) for token in tokens.tolist()]
    if analyzed.translates:
        previous = inputs["prev_output_tokens"][0].tolist()
        return words, [str(analyzed.task.target_dictionary[token]) for token in previous]
    return analyzed.model.name_positions(words), []


def check_same_data(first: AnalyzedModel, second: AnalyzedModel) -> None:
    """Raises ValueError unless two models read the same sentences, so that they can be in one figure."""
    dictionaries = [analyzed.task.source_dictionary for analyzed in (first, second)]
    if dictionaries[0] != dictionaries[1]:
        sizes = " and ".join("none" if d is None else f"one of {len(d)}" for d in dictionaries)
        raise ValueError(
            "--against must be a model of the same data, but the two source dictionaries differ "
            f"({sizes} entries); train both on the same binarised data."
        )
    if len(first.dataset) != len(second.dataset) or first.translates != second.translates:
        raise ValueError(
            f"--against must be a model of the same data, but the splits have {len(first.dataset)} and "
            f"{len(second.dataset)} sentences and the tasks are {first.settings['task']} and "
            f"{second.settings['task']}; give the folder of both by --data."
        )
