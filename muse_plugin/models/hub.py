"""Loads a translation model from a folder in one call, as fairseq's hub does, without further settings."""

import contextlib
import json
import logging
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any, Optional, Union

import torch
from fairseq import hub_utils
from fairseq.dataclass.configs import GenerationConfig
from fairseq.models.transformer import TransformerModelBase
from omegaconf import open_dict

from muse_plugin_command.flag_suggestions import find_near
from muse_plugin_command.flags.shared import CHECKPOINT_NAMES, MAX_LENGTH_EXTRA, MAX_LENGTH_FACTOR

logger = logging.getLogger(__name__)


# Of ``generate``: flags of the search without their dashes, and what fairseq's own takes besides.
_SETTINGS = {field.name for field in fields(GenerationConfig)}
_SETTINGS |= signature(hub_utils.GeneratorHubInterface.generate).parameters.keys()


class TextHub(hub_utils.GeneratorHubInterface):  # type: ignore[misc]
    """fairseq's hub for raw text as it comes: blank lines stay blank, and of long ones the beginning is read."""

    def __init__(self, cfg: Any, task: Any, models: Any) -> None:
        super().__init__(cfg, task, models)
        if cfg.dataset.max_tokens is not None:  # of training: a batch must hold the longest sentence
            with open_dict(cfg.dataset):
                cfg.dataset.max_tokens = max(cfg.dataset.max_tokens, self.max_positions[0])

    def sample(self, sentences: Any, beam: int = 1, verbose: bool = False, **kwargs: Any) -> Any:
        """As fairseq's, which ``translate`` calls: a list of texts for a list, one text for one."""
        if isinstance(sentences, str):
            return self.sample([sentences], beam, verbose, **kwargs)[0]
        sentences, longest = list(sentences), self.max_positions[0]
        encoded = {}
        for i, sentence in enumerate(sentences):
            tokens = self.encode(sentence)
            if len(tokens) > longest:
                logger.warning(
                    "sentence %d is longer than %d tokens; only its beginning is translated.", i + 1, longest
                )
                tokens = torch.cat([tokens[: longest - 1], tokens[-1:]])
            if len(tokens) > 1:  # more than the end-of-sentence mark
                encoded[i] = tokens
        answers = [""] * len(sentences)
        found = self.generate([*encoded.values()], beam, verbose, **kwargs) if encoded else []
        for i, hypotheses in zip(encoded, found, strict=True):
            answers[i] = self.decode(hypotheses[0]["tokens"])
        return answers

    def generate(self, tokenized_sentences: Any, beam: int = 5, verbose: bool = False, **kwargs: Any) -> Any:
        """As fairseq's, which ignores a misspelt setting and ends translations at 200 tokens.

        Without ``max_len_a`` and ``max_len_b``, they are as long as those of ``muse-plugin translate`` may be.

        Raises:
            TypeError: if there is no setting of that name.
            ValueError: if the beam is empty.
        """
        for name in kwargs.keys() - _SETTINGS:
            near = find_near(name, sorted(_SETTINGS))
            advice = (
                f"did you mean {near!r}?" if near else "they are called as flags of fairseq-generate, with _ for -."
            )
            raise TypeError(f"the search has no setting called {name!r}; {advice}")
        if beam < 1:
            raise ValueError(f"beam must be at least 1, but is {beam}; 5 is usual.")
        own = self.cfg.generation
        if not {"max_len_a", "max_len_b"} & kwargs.keys() and (own.max_len_a, own.max_len_b) == (0, 200):
            kwargs.update(max_len_a=MAX_LENGTH_FACTOR, max_len_b=MAX_LENGTH_EXTRA)
        if kwargs.get("print_alignment") is True:
            kwargs["print_alignment"] = "hard"  # as the flag without a value
        if kwargs.get("print_alignment"):
            for model in self.models:
                if hasattr(model.decoder, "return_attention"):  # which was dropped when the model was loaded
                    model.decoder.return_attention()
        return super().generate(tokenized_sentences, beam, verbose, **kwargs)


class HubLoading(TransformerModelBase):
    """What knows the folders that this package's commands and recipes make."""

    @classmethod
    def from_pretrained(
        cls,
        model_name_or_path: Union[str, Path],
        checkpoint_file: Optional[str] = None,
        data_name_or_path: Union[str, Path] = ".",
        **settings: Any,
    ) -> Any:
        """Loads a checkpoint with its dictionaries and, where there is one, its text pipeline.

        The pipeline is that of the folder of the dictionaries, or of the checkpoint; it also says the languages.

        Args:
            model_name_or_path: the folder of the checkpoint.
            checkpoint_file: its name; default: the first of those that ``--path`` of the commands looks for.
            data_name_or_path: the folder of the dictionaries; with a dot at its start, seen from the first folder.
            **settings: what fairseq takes, such as ``tokenizer`` and ``bpe`` in place of the text pipeline.

        Returns:
            A ``TextHub``: ``translate`` and ``generate``, on the CPU until ``cuda()``.

        Raises:
            FileNotFoundError: if one of the folders does not exist, the first has no checkpoint, or the second no
                dictionary.
        """
        folder = Path(model_name_or_path)
        if checkpoint_file is None:
            found = [name for name in CHECKPOINT_NAMES if (folder / name).is_file()]
            if not found:
                raise FileNotFoundError(
                    f"the folder must hold one of {', '.join(CHECKPOINT_NAMES)}, but {folder} holds none; "
                    "name the file by checkpoint_file."
                )
            checkpoint_file = found[0]
        data = str(data_name_or_path)
        dictionaries = folder / data if data.startswith(".") else Path(data)
        archived = {str(folder), data} & cls.hub_models().keys()
        for place in (folder, dictionaries):
            if not place.exists() and not archived:
                raise FileNotFoundError(
                    f"the folder {place} does not exist; name that of the checkpoint, or the dictionaries."
                )
        if not archived and not any(dictionaries.glob("dict.*.txt")):
            raise FileNotFoundError(
                f"{dictionaries} holds no dictionaries (dict.*.txt); name the folder of the training data by "
                "data_name_or_path."
            )
        for place in (dictionaries, folder):
            if (place / "text_pipeline.json").is_file():
                settings = {**_read_languages(place / "text_pipeline.json"), **settings}
                if not {"tokenizer", "bpe"} & settings.keys():
                    settings.update(tokenizer="muse_text_pipeline", text_pipeline=str(place))
                break
        found = hub_utils.from_pretrained(str(folder), checkpoint_file, data, archive_map=cls.hub_models(), **settings)
        return TextHub(found["args"], found["task"], found["models"])


def _read_languages(pipeline: Path) -> dict[str, str]:
    """The languages that a checkpoint need not name; without, fairseq looks for binary data to tell them."""
    with contextlib.suppress(ValueError, KeyError, TypeError):  # the tokenizer says what is wrong with the file
        texts = json.loads(pipeline.read_bytes())["texts"]
        return {f"{side}_lang": texts[side]["lang"] for side in ("source", "target")}
    return {}
