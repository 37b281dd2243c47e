"""Cross-entropy of tags or the likelihood of whole tag sequences, with accuracy of tags and F1 of entities."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor, nn

from muse_plugin.contracts.seqeval_package import import_seqeval
from muse_plugin.criterions.class_counts import count_classes, f1, log_f1, log_share, log_sums
from muse_plugin.criterions.sentence_criterion import SentenceCriterion

_IGNORED = -1
_ENTITY_SUMS = ("_entities_right", "_entities_predicted", "_entities_gold")


@register_criterion("muse_sequence_tagging", dataclass=FairseqDataclass)
class MuseSequenceTaggingCriterion(SentenceCriterion):
    """The loss of a tagger: cross-entropy per word, or with ``--crf`` the negative log-likelihood of its sequences.

    Logs the loss in bits per word and ``accuracy`` in percent (in training that of the best tag of each word, also with
    ``--crf``); in validation also ``macro_f1``, ``f1_TAG`` if tags are few and, with ``--entities``, ``entity_f1``,
    ``entity_precision`` and ``entity_recall``, in percent, as conlleval counts them.
    """

    predicts = "tags"

    def measure(self, model: nn.Module, sample: dict[str, Any]) -> tuple[Tensor, int, dict[str, Any]]:
        """See ``SentenceCriterion``; losses are in nats, decisions are words."""
        target, lengths = sample["target"], sample["net_input"]["src_lengths"]
        prediction = model(**sample["net_input"], target=target)
        losses = prediction.losses
        if losses is None:
            logits = prediction.logits.float().transpose(1, 2)
            losses = F.cross_entropy(logits, target, ignore_index=_IGNORED, reduction="none").sum(dim=1)
        real = target != _IGNORED
        if model.training:  # without Viterbi decoding, which takes its time
            log = {"_correct": (prediction.logits.argmax(-1) == target)[real].sum()}
        else:
            best, labels = model.best_tags(prediction.logits, lengths), self.task.labels
            predicted = torch.tensor([tag for row in best for tag in row], device=target.device)
            log = {"_correct": (predicted == target[real]).sum(), **count_classes(predicted, target[real], labels)}
            if self.task.cfg.entities:
                gold = [row[:length] for row, length in zip(target.tolist(), lengths.tolist(), strict=True)]
                names = [[[labels[tag] for tag in row] for row in rows] for rows in (best, gold)]
                log.update(zip(_ENTITY_SUMS, count_entities(*names), strict=True))
        return losses, int(lengths.sum()), log

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Logs measures over batches and processes."""
        super().reduce_metrics(logging_outputs)
        log_f1(logging_outputs)
        if any(_ENTITY_SUMS[0] in log for log in logging_outputs):
            log_sums(logging_outputs, _ENTITY_SUMS)
            log_share("entity_precision", _ENTITY_SUMS[0], _ENTITY_SUMS[1])
            log_share("entity_recall", _ENTITY_SUMS[0], _ENTITY_SUMS[2])
            metrics.log_derived("entity_f1", lambda meters: round(f1(*(meters[key].sum for key in _ENTITY_SUMS)), 4))


def count_entities(predicted: Sequence[list[str]], gold: Sequence[list[str]]) -> tuple[int, int, int]:
    """How many entities were found exactly, were predicted, and are there, by the rules of conlleval.

    Args:
        predicted: tags B-X, I-X and O of each sentence; an I-X that continues nothing opens an entity.
        gold: the right ones, in the same form.

    Raises:
        ImportError: if seqeval is not installed.
    """
    found, truth = (set(import_seqeval().get_entities(list(rows))) for rows in (predicted, gold))
    return len(found & truth), len(found), len(truth)
