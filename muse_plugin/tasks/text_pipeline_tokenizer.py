"""The text pipeline of a translation model as a tokenizer of fairseq: raw text for ``fairseq-interactive`` and the hub.

It also cuts words into subwords and joins them again, so that no ``--bpe`` is needed.
"""

from dataclasses import dataclass
from typing import Optional

from fairseq.data.encoders import register_tokenizer
from fairseq.dataclass import FairseqDataclass

from muse_plugin.contracts.flag import flag
from muse_plugin.text.text_pipeline import TextPipeline


@dataclass
class TextPipelineConfig(FairseqDataclass):
    """Flags of the tokenizer."""

    text_pipeline: Optional[str] = flag(None, "folder with text_pipeline.json and the file of its subwords")


@register_tokenizer("muse_text_pipeline", dataclass=TextPipelineConfig)
class TextPipelineTokenizer:
    """Raw source text in, plain target text out.

    Raises:
        ValueError: if no folder is given.
        FileNotFoundError: if there is no text pipeline in it.
    """

    def __init__(self, cfg: TextPipelineConfig) -> None:
        if cfg.text_pipeline is None:
            raise ValueError(
                "--tokenizer muse_text_pipeline needs --text-pipeline DIR, but it is not given; name the folder with "
                "text_pipeline.json."
            )
        self._pipeline = TextPipeline.load(cfg.text_pipeline)

    def encode(self, text: str) -> str:
        """Raw source text to tokens with a space between them."""
        return self._pipeline.encode_source(text)

    def decode(self, tokens: str) -> str:
        """Tokens of the target language to plain text."""
        return self._pipeline.decode(tokens)
