"""``muse-plugin predict``: raw text in, a label with probabilities, numbers or tags out, one line for each line.

The checkpoint names the folder of its data, which holds the dictionaries and how text became words (see
``text/text_settings.py``). New text is treated the same way. With ``--split`` the lines are those of prepared
data, and the right answers are next to the model's, for ``muse-plugin score-labels``.
"""

import argparse
import functools
import hashlib
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

import torch
from fairseq import utils
from fairseq.tasks import TASK_REGISTRY
from torch import Tensor
from tqdm import tqdm

from muse_plugin import __version__
from muse_plugin.checkpoints.model_loading import build_model, check_data, find_checkpoint, read_state
from muse_plugin.files.lines import open_output
from muse_plugin.inference.length_batches import make_batches
from muse_plugin.inference.resumable_output import fingerprint_file
from muse_plugin.inference.streaming import (
    check_stream_arguments,
    resume,
)
from muse_plugin.tasks.sentences.sentence_task import SentenceTask
from muse_plugin.text.text_settings import StoredText, find_sentence_settings, load_text_settings
from muse_plugin.text.tokenizer import Tokenizer
from muse_plugin_command.flag_checks import check_positive

logger = logging.getLogger(__name__)

BUFFER_SIZE = 2000  # lines read before the first is answered, unless the input is a terminal
# Text of which more words than this share are unknown is probably not what the model was trained for.
_SUSPICIOUS_SHARE = 0.5
_ENOUGH_WORDS = 100
# Words of a batch, padding included, however many sentences that is: lines of any length must not fill the memory.
BATCH_WORDS = 100_000


class Answer(NamedTuple):
    """What the model says of a line.

    Attributes:
        words: of the first text, as the model read them.
        label: the most probable label; None for other tasks, and for a blank line.
        scores: probability of each label, or the predicted numbers; empty for tags and blank lines.
        tags: one per word; empty for other tasks.
        target: the right label, numbers or tags, where they are known.
        length: words that the model read, of the longer text of a pair.
    """

    words: Sequence[str] = ()
    label: Optional[str] = None
    scores: Sequence[float] = ()
    tags: Sequence[str] = ()
    target: Any = None
    length: int = 0


def run(args: argparse.Namespace) -> int:
    """Answers the lines of the input; the body of ``muse-plugin predict``."""
    check_positive(args, "batch_size", "max_words")
    if args.split is not None and args.input is not None:
        raise ValueError(
            f"--split and --input are two sources of text, but got {args.split} and {args.input}; drop one."
        )
    check_stream_arguments(args)
    options = args.batch_size, args.max_words, args.cpu, args.long_texts
    predictor = Predictor(load_sentence_model(args.path, args.data, needs_text=args.split is None), *options)
    if predictor.task.labels and args.format == "tsv" and not predictor.tags_words:
        print(f"columns: label, then the probability of: {' '.join(predictor.task.labels)}", file=sys.stderr)
    if args.split is not None:
        answers = predictor.answer_split(args.split)
        with open_output(args.output) as sink:
            for answer in answers:
                sink.write(f"{_write(predictor, answer, args.format)}\n".encode())
        predictor.report_unknown_words()
        return 0

    described = functools.partial(_describe, args, predictor)
    try:
        with resume(args.input, args.output, BUFFER_SIZE, described, args.restart) as run:
            for lines in run:
                answers = predictor.answer([line.text for line in lines], first_line=lines[0].number)
                run.write([_write(predictor, answer, args.format) for answer in answers])
    finally:  # of what this run read: one that continues does not know of it
        predictor.report_long_texts()
    predictor.report_unknown_words()
    return 0


def _describe(args: argparse.Namespace, predictor: "Predictor") -> dict[str, Any]:
    """What the answers depend on, besides the text; the sizes of batches too, for the last bits of a number."""
    task, tokenizer, text = predictor.task, predictor.tokenizer, predictor.text
    assert text is not None, "raw text"
    symbols = [
        None if words is None else words.symbols for words in (task.source_dictionary, task.character_dictionary)
    ]
    subwords = hashlib.sha256(tokenizer.content).hexdigest()
    data = json.dumps([symbols, task.labels, asdict(tokenizer.settings), subwords]).encode()
    return {
        "the command": "predict",
        "muse_plugin": __version__,
        "torch": str(torch.__version__),
        "the device": "GPU" if predictor.use_cuda else "CPU",
        "a checkpoint of": fingerprint_file(find_checkpoint(args.path)),
        f"dictionaries and {text.path.name} of": f"sha256 {hashlib.sha256(data).hexdigest()[:16]}",
        "--format": args.format,
        "--batch-size": args.batch_size,
        "--max-words": predictor.max_words,
        "--long-texts": predictor.long_texts,
    }


def _write(predictor: "Predictor", answer: Answer, form: str) -> str:
    task = predictor.task
    return _write_json(answer, task.labels, task.predicts) if form == "jsonl" else _write_columns(answer)


def _write_columns(answer: Answer) -> str:
    if answer.tags:
        return " ".join(answer.tags)
    numbers = [f"{score:.6g}" for score in answer.scores]
    return "\t".join(numbers if answer.label is None else [answer.label, *numbers])


def _write_json(answer: Answer, labels: Sequence[str], predicts: str) -> str:
    if predicts == "tags":
        fields: dict[str, Any] = {"words": answer.words, "tags": answer.tags}
    elif predicts == "number":
        fields = {"numbers": answer.scores}
    else:
        fields = {"label": answer.label, "probabilities": dict(zip(labels, answer.scores, strict=False))}
    if answer.target is not None:
        fields.update(target=answer.target, length=answer.length)
    return json.dumps(fields, ensure_ascii=False)


def check_scores(scores: Tensor) -> Tensor:
    """Returns what a model has computed.

    Raises:
        ValueError: if it is inf or NaN somewhere, of which a label would still be the largest.
    """
    if not bool(torch.isfinite(scores).all()):
        raise ValueError(
            "scores must be finite, but the model gave inf or NaN; its parameters are damaged, or training diverged: "
            "use an earlier checkpoint."
        )
    return scores


class LoadedModel(NamedTuple):
    """A sentence model as its checkpoint has it.

    Attributes:
        model: the model, on the CPU.
        task: its task.
        text: how text becomes words; None if the data do not say, as those of fairseq-preprocess.
        cfg: the model's own settings, as stored.
    """

    model: torch.nn.Module
    task: Any
    text: Optional[StoredText]
    cfg: Any


def load_sentence_model(
    path: Union[str, Path], data: Optional[Union[str, Path]] = None, needs_text: bool = True
) -> LoadedModel:
    """Loads a checkpoint, its dictionaries and its text settings.

    Args:
        path: a checkpoint, or a folder with one.
        data: the folder of the prepared data; None for the one that the model was trained on.
        needs_text: whether raw text will be read, for which there must be text settings.

    Raises:
        FileNotFoundError: if the checkpoint, a dictionary or needed text settings are missing.
        ValueError: if the checkpoint is no sentence model, is damaged, or does not fit the data.
    """
    checkpoint = find_checkpoint(Path(path))
    overrides = {} if data is None else {"data": str(data)}
    state = read_state(Path(path), overrides)
    if not issubclass(TASK_REGISTRY.get(state["cfg"]["task"]["_name"], object), SentenceTask):
        raise ValueError(
            f"this command needs a model of sentences, but {checkpoint} was trained with --task "
            f"{state['cfg']['task']['_name']}; for translation use muse-plugin translate."
        )
    folder = Path(state["cfg"]["task"]["data"])
    if data is None:
        check_data(checkpoint, folder)
    text = load_text_settings(folder)[0] if needs_text or find_sentence_settings(folder).exists() else None
    model, task = build_model(checkpoint, state, overrides, folder)
    return LoadedModel(model, task, text, state["cfg"]["model"])


class Predictor:
    """A sentence model with its task and the treatment of its text.

    Args:
        loaded: the model, as ``load_sentence_model`` gives it; without text settings, it answers prepared splits alone.
        batch_size: most sentences in a batch.
        max_words: words read of a text; None for as many as in training, or all where every word gets a tag.
        cpu: if false, a GPU is used when there is one.
        long_texts: "truncate" or "refuse"; None for what was chosen in training.

    Raises:
        ValueError: if the model cannot read so many words.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        batch_size: int = 128,
        max_words: Optional[int] = None,
        cpu: bool = False,
        long_texts: Optional[str] = None,
    ) -> None:
        model, task, self.text, _ = loaded
        self.model = model.eval()
        self.task = task
        self.batch_size = batch_size
        self.tags_words = task.predicts == "tags"
        self.max_words = max_words if self.tags_words else (max_words or task.cfg.max_words)
        self.use_cuda = torch.cuda.is_available() and not cpu
        if self.use_cuda:
            model.cuda()
        model.make_generation_fast_()  # type: ignore[operator]
        longest = getattr(model, "longest_text", None)
        if longest is not None:
            if max_words is not None and max_words > longest:
                raise ValueError(f"--max-words must be at most {longest} for this model, but got {max_words}.")
            self.max_words = min(self.max_words or longest, longest)
        self.long_texts = long_texts or str(task.cfg.long_texts)
        self.words = self.unknown_words = self.truncated = 0

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """What turns raw text into words; its subwords are read when it is first needed.

        Raises:
            FileNotFoundError: if the file of its subwords is missing.
            ImportError: if a package is missing that it needs.
            ValueError: if that file is damaged.
        """
        assert self.text is not None, "raw text"
        return Tokenizer.load(self.text)

    def answer(self, lines: Sequence[str], first_line: int = 1) -> list[Answer]:
        """Answers raw lines, in their order.

        Args:
            lines: texts, or pairs with a tab between them.
            first_line: number of the first of them, for messages.

        Raises:
            ValueError: if a line does not hold as many texts as the model reads, or a text is too long and such are
                refused; the sentence has its number.
        """
        answers = [Answer()] * len(lines)
        items: dict[int, tuple[list[str], list[Any]]] = {}
        for position, line in enumerate(lines):
            texts = self._read(line, first_line + position)
            if texts:
                items[position] = texts[0], [self.task.encode(words) for words in texts]
        lengths = {p: max(len(sentence.tokens) for sentence in texts) for p, (_, texts) in items.items()}
        for batch in make_batches(lengths, BATCH_WORDS, self.batch_size):
            dataset = self.task.build_dataset_for_inference([items[p][1] for p in batch], [])
            sample = dataset.collater([dataset[i] for i in range(len(batch))])
            for position, answer in zip(batch, self._predict(sample, [items[p][0] for p in batch]), strict=True):
                answers[position] = answer
        return answers

    def _read(self, line: str, number: int) -> list[list[str]]:
        """The words of each text of a line; nothing if it is blank."""
        wanted = 2 if self.task.pairs else 1
        parts = line.split("\t") if self.task.pairs else [line]
        if not line.strip():
            return []
        if len(parts) != wanted:
            raise ValueError(
                f"this model reads pairs, two texts in a line with a tab between them, but line {number} has "
                f"{len(parts)}: {line[:60]!r}; keep the two columns of texts, for example by cut -f 1,2."
            )
        texts = []
        for part in parts:
            words = self.tokenizer.clean_words(part.split()) if self.tags_words else self.tokenizer.split(part)
            if not words:
                if wanted == 1:
                    return []  # nothing but characters that cannot be seen
                raise ValueError(f"both texts of a pair must have a word, but in line {number} one is blank: {line!r}.")
            if self.is_too_long(words, number):
                self.truncated += 1
                words = words[: self.max_words]
            texts.append(words)
            self.count_words(words)
        return texts

    def is_too_long(self, words: Sequence[str], line: int) -> bool:
        """Whether a text has more words than are read.

        Args:
            words: of the text.
            line: its line, for messages.

        Raises:
            ValueError: if it is, and such are refused.
        """
        if self.max_words is None or len(words) <= self.max_words:
            return False
        if self.long_texts == "refuse":
            raise ValueError(
                f"--long-texts refuse allows {self.max_words} words, but line {line} has {len(words)}; raise "
                "--max-words, or truncate."
            )
        return True

    def count_words(self, words: Sequence[str]) -> None:
        """Counts words, and those that the dictionary does not have, for ``report_unknown_words``."""
        dictionary, piece = self.task.source_dictionary, self.text and self.text.settings.unknown_piece
        self.words += len(words)
        self.unknown_words += sum(word == piece or dictionary.index(word) == dictionary.unk() for word in words)

    def answer_split(self, split: str) -> list[Answer]:
        """Answers all sentences of a prepared split, in their order, with the right answers.

        Args:
            split: its name.

        Raises:
            FileNotFoundError: if the data have no such split.
            ValueError: if its parts do not fit each other, or a text is too long and such are refused.
        """
        dataset = self.task.load_dataset(split, max_words=self.max_words or sys.maxsize, long_texts=self.long_texts)
        answers = [Answer()] * len(dataset)
        batches = make_batches(dict(enumerate(dataset.sizes.tolist())), BATCH_WORDS, self.batch_size)
        for indices in tqdm(batches, unit=" batches", disable=None):
            items = [dataset[i] for i in indices]
            texts = [[self._spell(sentence.tokens) for sentence in item["texts"]] for item in items]
            batch = dataset.collater(items)
            for i, answer in zip(indices, self._predict(batch, [words for words, *_ in texts]), strict=True):
                answers[i] = answer._replace(target=self._name(dataset.targets[i]), length=int(dataset.sizes[i]))
        return answers

    def _spell(self, tokens: Tensor) -> list[str]:
        """The words of ids, counted for ``report_unknown_words``."""
        words = [self.task.source_dictionary[token] for token in tokens.tolist()]
        self.count_words(words)
        return words

    def _name(self, target: Tensor) -> Any:
        """A target as it is written: the name of a label or tag, or numbers."""
        value = target.tolist()
        if self.task.predicts == "number":
            return value
        return [self.task.labels[tag] for tag in value] if isinstance(value, list) else self.task.labels[value]

    def _predict(self, batch: dict[str, Any], words: Sequence[Sequence[str]]) -> Iterator[Answer]:
        if self.use_cuda:
            batch = utils.move_to_cuda(batch)
        with torch.no_grad():
            logits = check_scores(self.model(**batch["net_input"]).logits.float())
            labels = self.task.labels
            if self.tags_words:
                tags = self.model.best_tags(logits, batch["net_input"]["src_lengths"])  # type: ignore[operator]
                for line, row in zip(words, tags, strict=True):
                    yield Answer(line, tags=[labels[tag] for tag in row])
                return
            scores = logits.softmax(dim=-1) if labels else logits
            for line, row in zip(words, scores.tolist(), strict=True):
                yield Answer(line, labels[max(range(len(row)), key=row.__getitem__)] if labels else None, row)

    def report_long_texts(self) -> None:
        """Says how many texts were longer than what is read of them."""
        if self.truncated:
            logger.warning("%d texts were longer than %d words; only those were read.", self.truncated, self.max_words)

    def report_unknown_words(self) -> None:
        """Warns if most words were unknown: the text was probably made into words in another way than in training."""
        if self.words >= _ENOUGH_WORDS and self.unknown_words > _SUSPICIOUS_SHARE * self.words:
            logger.warning(
                "%.0f %% of the words are not in the dictionary; is this text tokenised and cased as the training data "
                "were?",
                100 * self.unknown_words / self.words,
            )
