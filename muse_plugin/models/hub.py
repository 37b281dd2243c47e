"""Loads a translation model from a folder in one call, as fairseq's hub does, without further settings."""

from pathlib import Path
from typing import Any, Optional, Union

from fairseq.models.transformer import TransformerModelBase

from muse_plugin_command.flags.shared import CHECKPOINT_NAMES


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

        Args:
            model_name_or_path: the folder of the checkpoint.
            checkpoint_file: its name; default: the first of those that ``--path`` of the commands looks for.
            data_name_or_path: the folder of the dictionaries; with a dot at its start, seen from the first folder.
            **settings: what fairseq takes, such as ``tokenizer`` and ``bpe`` in place of the text pipeline.

        Returns:
            fairseq's ``GeneratorHubInterface``: ``translate``, ``generate``, ``score``, on the CPU until ``cuda()``.

        Raises:
            FileNotFoundError: if there is no checkpoint in the folder.
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
        if not {"tokenizer", "bpe"} & settings.keys() and (folder / "text_pipeline.json").is_file():
            settings.update(tokenizer="muse_text_pipeline", text_pipeline=str(folder))
        return super().from_pretrained(str(folder), checkpoint_file, str(data_name_or_path), **settings)
