"""One sentence to numbers: its translations with their scores, cross-attention and gates, ready for JSON.

Search is that of ``inference/translate.py``, with the same model and generator; attention and gates are read as
``muse-plugin analyze`` reads them. ``page_routes.py`` hands the result to the page.
"""

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor

from muse_plugin.analysis.attention_sites import CROSS, find_sites
from muse_plugin.analysis.convolutions import GateRow, read_gates
from muse_plugin.analysis.layers import SIDES
from muse_plugin.analysis.load import MapObserver, read_corpus
from muse_plugin.inference.translate import Translator
from muse_plugin.serve.page_sentence import MAX_SOURCE_TOKENS, split_sentence

_DECIMALS = 6  # of weights; what is cut off cannot be seen, but would be most of the answer
_NO_ATTENTION = "This model has no cross-attention: no decoder layer attends to the encoder."
_NO_GATES = "No gates: no layer of the {side} weighs convolutions of several kernel sizes against each other."


class Inspector:
    """A translation model that shows how it arrived at a translation.

    Args:
        translator: model, text pipeline and search.
        nbest: most hypotheses in an answer.
    """

    def __init__(self, translator: Translator, nbest: int = 5) -> None:
        self.translator = translator
        self.nbest = nbest
        self.max_tokens = min(MAX_SOURCE_TOKENS, int(translator.max_source_tokens) - 1)  # one is </s>
        self._model = translator.models[0]
        self._sites = [site for site in find_sites(self._model) if site.side == CROSS]
        rows = read_gates("", self._model)
        self._gates = {side: _group_gates([row for row in rows if row.side == side]) for side in SIDES}

    def describe(self) -> dict[str, Any]:
        """What the page has to know before the first sentence.

        Returns:
            Languages "source_lang" and "target_lang", the search's "beam", "nbest" and "lenpen", the longest
            sentence in "max_tokens", and the gates of the model: "gates", by side a list of layers, each with
            its "layer" (1 at the bottom) and "weights", a list of "kernel_size" in tokens and "weight" in [0, 1]; and
            "gate_notes", by side what to say where there are none.
        """
        pipeline, generator = self.translator.pipeline, self.translator.generator
        return {
            "source_lang": pipeline.source_lang,
            "target_lang": pipeline.target_lang,
            "beam": int(generator.beam_size),
            "nbest": self.nbest,
            "lenpen": float(generator.len_penalty),
            "max_tokens": self.max_tokens,
            "gates": self._gates,
            "gate_notes": {side: _NO_GATES.format(side=side) for side in SIDES if not self._gates[side]},
        }

    def inspect(self, text: str) -> dict[str, Any]:
        """Translates a sentence and shows how.

        Args:
            text: raw text; line breaks count as spaces.

        Returns:
            "source", the tokens that the encoder reads, each with "text" and "known" (to the dictionary); "hypotheses",
            the best first, each with its "text", "score" (the sum of its tokens' scores divided by their number to
            the power of the length penalty), "tokens" with "text" and "score" (natural logarithm of the probability),
            and "attention": for every layer that attends to the encoder its "layer" and "weights", the mean of the
            heads, a row for each token of the hypothesis and a column for each of the source; and "attention_note",
            what to say where there is none, else "". A number that is not finite is None.

        Raises:
            ValueError: if the text is blank or too long.
        """
        tokens = self._encode(text)
        found = self.translator.search([tokens], [[]])[0][: self.nbest]
        source, target = self.translator.task.source_dictionary, self.translator.task.target_dictionary
        hypotheses = []
        for hypothesis in found:
            written = hypothesis["tokens"].cpu()
            scores = hypothesis["positional_scores"].tolist()
            hypotheses.append(
                {
                    "text": self.translator.pipeline.decode(target.string(written)),
                    "score": _make_number(float(hypothesis["score"])),
                    "tokens": [
                        {"text": str(target[token]), "score": _make_number(score)}
                        for token, score in zip(written.tolist(), scores, strict=True)
                    ],
                    "attention": self._read_attention(tokens, written),
                }
            )
        return {
            "source": [{"text": str(source[token]), "known": token != source.unk()} for token in tokens.tolist()],
            "hypotheses": hypotheses,
            "attention_note": "" if self._sites else _NO_ATTENTION,
        }

    def _encode(self, text: str) -> Tensor:
        """Token ids of a sentence with the end-of-sentence mark, shape (S,)."""
        words = split_sentence(text, self.max_tokens, self.translator.pipeline.source.split)
        ids: Tensor = self.translator.task.source_dictionary.encode_line(" ".join(words), add_if_not_exist=False)
        return ids.long()

    def _read_attention(self, tokens: Tensor, written: Tensor) -> list[dict[str, Any]]:
        """What decoder layers look at while they write ``written``, shape (T,) with its end-of-sentence mark."""
        dictionary = self.translator.task.target_dictionary
        dataset = self.translator.task.build_dataset_for_inference([tokens], [len(tokens)])
        inputs = dataset.collater([dataset[0]])["net_input"]
        inputs["prev_output_tokens"] = torch.cat([written.new_tensor([dictionary.eos()]), written[:-1]])[None]
        observer = MapObserver(self._sites)
        if self._sites:
            read_corpus(self._model, [inputs], [observer], dictionary.pad())
        layers = []
        for number, site in enumerate(self._sites):
            weights = observer.maps[number].double().mean(dim=0).round(decimals=_DECIMALS)
            layers.append(
                {"layer": site.layer, "weights": [[_make_number(w) for w in row] for row in weights.tolist()]}
            )
        return layers


def _group_gates(rows: Sequence[GateRow]) -> list[dict[str, Any]]:
    """Rows of one side by layer."""
    layers: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        weight = {"kernel_size": row.kernel_size_tokens, "weight": _make_number(round(row.weight, _DECIMALS))}
        layers.setdefault(row.layer, []).append(weight)
    return [{"layer": layer, "weights": weights} for layer, weights in layers.items()]


def _make_number(value: float) -> Optional[float]:
    """JSON has neither infinity nor NaN."""
    return value if value - value == 0 else None
