"""A trained model of pairs, taken apart: sentences to vectors, and pairs of vectors to scores."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional, Union

import torch
from fairseq import utils
from torch import Tensor

from muse_plugin.inference.length_batches import make_batches
from muse_plugin.inference.predict import BATCH_WORDS, Predictor, check_scores, load_sentence_model
from muse_plugin.matching.fingerprint import fingerprint_encoder, fingerprint_vectors
from muse_plugin.matching.vector_cache import VectorCache
from muse_plugin.models.sentence_model import SentenceModel

# Of two labels, the one that means that sentences belong together.
POSITIVE_LABELS = ("1", "yes", "true", "positive", "match", "same", "duplicate", "paraphrase", "equivalent", "relevant")
# Memory of a block of pairs for models that compute each by itself; more would leave a processor's cache.
_PAIR_BYTES = 1 << 25
_HIDDEN = 4096  # numbers of hidden layers per pair, generously


class PairModel:
    """A model of pairs with its task and the settings of its text.

    Args:
        predictor: the model, ready for inference.
        encoder: fingerprint of the model's encoder.

    Attributes:
        width: numbers of a sentence's vector.
        outputs: names of the model's outputs: labels, or "1" and so on for numbers.

    Raises:
        ValueError: if the model does not read pairs.
    """

    def __init__(self, predictor: Predictor, encoder: str) -> None:
        self.predictor = predictor
        self.model: Any = predictor.model
        self.task = predictor.task
        self.encoder = encoder
        if predictor.tags_words or not self.task.pairs:
            what = "tags words" if predictor.tags_words else "reads single sentences"
            raise ValueError(
                f"match compares two sentences, but this model {what}; train one on pairs (muse-plugin prepare-text "
                "--format tsv:text=1,pair=2,label=3), or use muse-plugin predict."
            )
        self.predicts_numbers = self.task.predicts == "number"
        self.outputs = [str(i + 1) for i in range(self.task.outputs)] if self.predicts_numbers else self.task.labels
        self.device = torch.device("cuda" if predictor.use_cuda else "cpu")
        self.width = self.encode([["a"]]).shape[1]

    @classmethod
    def load(
        cls,
        path: Union[str, Path],
        data: Optional[Union[str, Path]] = None,
        batch_size: int = 128,
        max_words: Optional[int] = None,
        cpu: bool = False,
        long_texts: Optional[str] = None,
    ) -> "PairModel":
        """Loads a checkpoint.

        Args:
            path: a checkpoint, or a folder with one.
            data: the folder of the prepared data; None for the one that the model was trained on.
            batch_size: most sentences encoded at once.
            max_words: words read of a sentence; None for as many as in training.
            cpu: if false, a GPU is used when there is one.
            long_texts: "truncate" or "refuse"; None for what was chosen in training.

        Raises:
            FileNotFoundError: if the checkpoint, a dictionary or the text settings are missing.
            ValueError: if the checkpoint is no model of pairs, is damaged, or does not fit the data.
        """
        loaded = load_sentence_model(path, data)
        encoder = fingerprint_encoder(loaded)
        return cls(Predictor(loaded, batch_size, max_words, cpu, long_texts), encoder)

    @property
    def max_words(self) -> int:
        """Words read of a sentence."""
        return int(self.predictor.max_words or self.task.cfg.max_words)

    def fingerprint(self, max_words: Optional[int] = None) -> str:
        """Of the vectors that this model makes of texts of up to ``max_words`` words (None: as many as it reads)."""
        return fingerprint_vectors(self.encoder, self.max_words if max_words is None else max_words)

    def open_cache(self, folder: Path) -> VectorCache:
        """Opens vectors that this model made.

        Raises:
            FileNotFoundError: if they are not there.
            ValueError: if they are of another model, not whole or damaged.
        """
        cache = VectorCache(folder)
        fingerprint = self.fingerprint(cache.meta.max_words)
        if cache.meta.fingerprint != fingerprint:
            raise ValueError(
                f"vectors must be of the model that reads them, but {cache.folder} was made by the encoder "
                f"{cache.meta.fingerprint[:16]} and --path is {fingerprint[:16]}; name the checkpoint (and --data) "
                "that made it, or encode the text again with this one."
            )
        if cache.width != self.width:
            raise ValueError(
                f"this model's vectors have width {self.width}, but those of {cache.folder} have {cache.width}; "
                "encode the text again."
            )
        return cache

    def encode(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """Vectors of sentences, shape (N, ``width``), float32 on the CPU.

        Args:
            sentences: words of each, at least one; batches are made of sentences of similar length.
        """
        vectors: list[Tensor] = [torch.empty(0)] * len(sentences)
        lengths = {number: len(words) for number, words in enumerate(sentences)}
        for batch in make_batches(lengths, BATCH_WORDS, self.predictor.batch_size):
            items = [[self.task.encode(sentences[number])] for number in batch]
            dataset = self.task.build_dataset_for_inference(items, [])
            sample = dataset.collater([dataset[i] for i in range(len(batch))])
            if self.predictor.use_cuda:
                sample = utils.move_to_cuda(sample)
            with torch.no_grad():
                rows = self.model.represent(**sample["net_input"]).float().cpu()
            for number, row in zip(batch, rows, strict=True):
                vectors[number] = row
        return torch.stack(vectors) if vectors else torch.empty(0, self.width)

    def score_pairs(self, first: Tensor, second: Tensor) -> Tensor:
        """Logits, or numbers, of pairs of vectors (B, ``width``): shape (B, outputs), float32 on the CPU."""
        with torch.no_grad():
            logits: Tensor = self.model.score_pairs(first.to(self.device), second.to(self.device)).float().cpu()
        return check_scores(logits)

    def score_all_pairs(self, first: Tensor, second: Tensor) -> Tensor:
        """Logits, or numbers, of every one of ``first`` with every one of ``second``.

        A model that computes each pair by itself, as those without a ``score_all_pairs`` of their own do, gets few at
        a time; the others bound their memory themselves.

        Args:
            first: vectors, shape (N, ``width``).
            second: vectors, shape (M, ``width``).

        Returns:
            Shape (N, M, outputs), float32 on the CPU.
        """
        logits = torch.empty(len(first), len(second), len(self.outputs))
        rows, columns = max(len(first), 1), max(len(second), 1)
        if type(self.model).score_all_pairs is SentenceModel.score_all_pairs:
            pairs = max(1, _PAIR_BYTES // (4 * (8 * self.width + _HIDDEN)))
            columns = min(columns, pairs)
            rows = max(1, pairs // columns)
        second = second.to(self.device)
        with torch.no_grad():
            for start in range(0, len(first), rows):
                part = first[start : start + rows].to(self.device)
                for begin in range(0, len(second), columns):
                    block = self.model.score_all_pairs(part, second[begin : begin + columns])
                    logits[start : start + rows, begin : begin + columns] = block.float()
        return check_scores(logits)

    def choose_output(self, label: Optional[str]) -> int:
        """Which output pairs are ranked by.

        Args:
            label: its name; None if it need not be named.

        Raises:
            ValueError: if there is none of that name, or it has to be named.
        """
        kind = "numbers" if self.predicts_numbers else "labels"
        if label is not None:
            if label not in self.outputs:
                raise ValueError(f"--label must be one of the {kind} {', '.join(self.outputs)}, but got {label}.")
            return self.outputs.index(label)
        if len(self.outputs) == 1:
            return 0
        positive = [number for number, name in enumerate(self.outputs) if name.lower() in POSITIVE_LABELS]
        if not self.predicts_numbers and len(self.outputs) == 2 and len(positive) == 1:
            return positive[0]
        raise ValueError(
            f"pairs are ranked by one output, which need not be named only for a single number or for two labels of "
            f"which one is {', '.join(POSITIVE_LABELS[:-1])} or {POSITIVE_LABELS[-1]}, but this model has the {kind} "
            f"{', '.join(self.outputs)}; name one with --label."
        )

    def rank_values(self, logits: Tensor, output: int) -> Tensor:
        """What pairs are ranked by: the log-odds of a label, or a number.

        Probabilities near 1 are all 1 in float32; their log-odds still differ, and are in the same order.

        Args:
            logits: shape (..., outputs).
            output: number of an output.

        Returns:
            Shape (...).
        """
        own = logits[..., output]
        if self.predicts_numbers:
            return own
        others = torch.cat([logits[..., :output], logits[..., output + 1 :]], dim=-1)
        return own - others.logsumexp(dim=-1)

    def rank_pairs(self, first: Tensor, second: Tensor, output: int) -> Tensor:
        """``rank_values`` of every one of ``first`` with every one of ``second``; shapes as of ``score_all_pairs``."""
        return self.rank_values(self.score_all_pairs(first, second), output)

    def publish(self, values: Tensor) -> Tensor:
        """Turns ``rank_values`` into what is shown: probabilities, or the numbers."""
        return values if self.predicts_numbers else values.sigmoid()
