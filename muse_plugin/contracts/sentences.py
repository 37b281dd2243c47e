"""What sentence models and criterions ask of a task of sentences, and such a task of its model."""

from collections.abc import Sequence
from typing import Any, Optional, Protocol, runtime_checkable

# The criterion of each kind of prediction.
CRITERIONS = {
    "label": "muse_sentence_classification",
    "number": "muse_sentence_regression",
    "tags": "muse_sequence_tagging",
}


@runtime_checkable
class TaskOfSentences(Protocol):
    """A task whose model reads sentences or pairs.

    The model may say ``has_heads``, and ``remembered``: settings read from files, by the name of their field
    (``flag.remembered``) in its config.

    Attributes:
        predicts: "label", "number" or "tags".
        outputs: number of outputs of the model.
        labels: names of the classes or tags, in the order of the outputs; empty for numbers.
        pairs: whether the input is two sentences.
        vector_size: width of inputs that are vectors; 0 for words.
        max_words: longest text in words; None for any.
        source_dictionary: of words; None where inputs are vectors.
        character_dictionary: of characters; None where the data have none.
        unknown_index: the id of an unknown word; None where inputs are vectors.
        loads_checkpoint: whether the model is built for a checkpoint, which brings what is else read from files.
        has_heads: whether the model that was built pools by heads that attend to words; None before there is one.
    """

    predicts: str
    outputs: int
    labels: Sequence[str]
    pairs: bool
    vector_size: int
    max_words: Optional[int]
    source_dictionary: Any
    character_dictionary: Any
    unknown_index: Any
    loads_checkpoint: bool
    has_heads: Optional[bool]


def check_sentence_task(task: Any) -> TaskOfSentences:
    """Returns ``task``.

    Raises:
        ValueError: if it is no task of sentences, such as fairseq's own.
    """
    if not isinstance(task, TaskOfSentences):
        name = getattr(getattr(task, "cfg", None), "_name", type(task).__name__)
        raise ValueError(
            f"a sentence model needs a task of sentences, but got --task {name}; use --task "
            "muse_sentence_classification, muse_sequence_tagging or muse_mirrored_summation."
        )
    return task
