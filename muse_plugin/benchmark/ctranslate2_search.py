"""CTranslate2's Transformer in the decoding benchmark: what a user could pick in place of fairseq."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from fairseq.models import FairseqEncoderDecoderModel

from muse_plugin.benchmark.systems import ModelFactory
from muse_plugin.exporting.ctranslate2_folder import convert_model


class CTranslate2Search:
    """A model of CTranslate2 with its beam search.

    On a CPU it runs with as many threads as PyTorch: all of them work on the same batch.

    Args:
        factory: with the dictionary.
        model: fairseq's Transformer, in float32.
        device: to compute on.
        compute_type: as CTranslate2 calls it: float32, float16, bfloat16 or int8 (8-bit weights of matrix products).

    Raises:
        ImportError: if ctranslate2 is not installed, or this installation cannot compute so on the device.
    """

    def __init__(
        self, factory: ModelFactory, model: FairseqEncoderDecoderModel, device: torch.device, compute_type: str
    ) -> None:
        import ctranslate2

        self._symbols = factory.dictionary.symbols
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "model"
            sides = [("source", factory.dictionary), ("target", factory.dictionary)]
            convert_model(model, sides, folder, compute_type == "int8")
            try:
                self._translator = ctranslate2.Translator(
                    str(folder),
                    device=device.type,
                    device_index=device.index or 0,
                    compute_type=compute_type,
                    inter_threads=1,
                    intra_threads=torch.get_num_threads(),
                )
                # The libraries of a GPU are loaded when they are first used.
                self._translator.translate_batch([self._symbols[-1:]], max_decoding_length=1)
            except (ValueError, RuntimeError) as error:  # another driver, another kind of GPU or processor
                reason = " ".join(str(error).split())
                raise ImportError(f"ctranslate2 must compute {compute_type} on {device}, but says: {reason}") from error

    def make_search(self, source: torch.Tensor, beam: int) -> Callable[[], list[list[str]]]:
        """Makes a function that translates the sentences, with as many tokens as they have.

        Args:
            source: tokens, the last of each sentence is its end; shape (sentences, length).
            beam: its size.

        Returns:
            A function that returns the best translation of each sentence, in symbols.
        """
        # CTranslate2 adds the end of a sentence itself.
        sentences = [[self._symbols[token] for token in tokens[:-1]] for tokens in source.tolist()]
        length = source.shape[1]

        def search() -> list[list[str]]:
            # As with fairseq's limits: the end is forbidden before ``length`` tokens, and one step comes after them.
            results = self._translator.translate_batch(
                sentences,
                beam_size=beam,
                max_batch_size=0,
                min_decoding_length=length,
                max_decoding_length=length + 1,
                max_input_length=0,
            )
            return [result.hypotheses[0] for result in results]

        return search
