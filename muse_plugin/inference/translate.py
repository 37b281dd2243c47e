"""``muse-plugin translate``: raw sentences in, plain translations out, one line for each line and in the same order.

The folder given by ``--path`` holds all that is needed: a checkpoint, the dictionaries ``dict.<language>.txt`` and the
text pipeline (see ``text/text_pipeline.py``). Loading and beam search are fairseq's own; this file joins them to raw
text and sees to it that no line, however odd, ends the run.
"""

import argparse
import itertools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional, Union

import torch
from fairseq import utils
from fairseq.tasks import TASK_REGISTRY
from fairseq.tasks.translation import TranslationTask
from fairseq.token_generation_constraints import pack_constraints
from torch import Tensor

from muse_plugin import __version__
from muse_plugin.checkpoints.model_loading import build_model, find_checkpoint, read_state
from muse_plugin.checkpoints.safe_loading import check_finite
from muse_plugin.files.lines import clean_line
from muse_plugin.inference.length_batches import make_batches
from muse_plugin.inference.resumable_output import fingerprint_file
from muse_plugin.inference.streaming import (
    Line,
    check_stream_arguments,
    resume,
)
from muse_plugin.models.onnx.back_end import run_in_onnxruntime_
from muse_plugin.text.dictionary_fit import check_dictionaries
from muse_plugin.text.text_pipeline import TextPipeline
from muse_plugin.text.text_settings import FILE_NAME
from muse_plugin_command.flag_checks import check_positive
from muse_plugin_command.flags.shared import MAX_LENGTH_EXTRA, MAX_LENGTH_FACTOR

logger = logging.getLogger(__name__)

BUFFER_SIZE = 1000  # lines read before the first is translated, unless the input is a terminal

# A line is cut to this many characters for each token the model can read before it is tokenised: tokenisation of a
# long line without words takes quadratic time, and ordinary text has four to six characters a token.
CHARACTERS_PER_TOKEN = 20

# What translations depend on, besides the text, the model and the device.
_FLAGS = ("beam", "lenpen", "max_tokens", "batch_size", "constraints", "inference_backend", "fp16")
_LARGE = ("model", "last_optimizer_state")  # what a translator need not keep of a checkpoint


def run(args: argparse.Namespace) -> int:
    """Translates the lines of the input; the body of ``muse-plugin translate``."""
    check_positive(args, "beam", "max_tokens", "batch_size")
    check_stream_arguments(args)
    settings = {name: getattr(args, name) for name in _FLAGS}
    translator = Translator.load(args.path, args.data, cpu=args.cpu, **settings)
    with resume(args.input, args.output, BUFFER_SIZE, lambda: _describe(args, translator), args.restart) as run:
        for lines in run:
            run.write(translator.translate_lines(lines))
    return 0


def _describe(args: argparse.Namespace, translator: "Translator") -> dict[str, Any]:
    """What the translations depend on, besides the text; the sizes of batches too, for the last bits of a score."""
    pipeline = translator.pipeline
    names = [*(f"dict.{lang}.txt" for lang in (pipeline.source_lang, pipeline.target_lang)), FILE_NAME]
    return {
        "the command": "translate",
        "muse_plugin": __version__,
        "torch": str(torch.__version__),
        "the device": "GPU" if translator.use_cuda else "CPU",
        "a checkpoint of": fingerprint_file(find_checkpoint(args.path)),
        # The last of them has hashes of the subwords.
        **{f"a {name} of": fingerprint_file(translator.folder / name) for name in names},
        **{f"--{name.replace('_', '-')}": getattr(args, name) for name in _FLAGS},
    }


class Translator:
    """A model with its task and text pipeline, ready to translate raw lines.

    Args:
        model: a fairseq encoder-decoder.
        task: the translation task with the dictionaries of ``model``.
        pipeline: the text pipeline that ``model`` was trained with.
        beam: beam size.
        lenpen: exponent of the length by which the score of a hypothesis is divided.
        max_tokens: most source tokens in a batch, padding included; a longer sentence makes a batch of its own.
        batch_size: most sentences in a batch.
        cpu: if false, a GPU is used when there is one.
        constraints: "ordered" or "unordered": phrases that follow a line, each after a tab, must occur in its
            translation, in their order or in any; None if a tab is a space.
        inference_backend: "torch", "onnxruntime", or None for what the model was trained with.
        fp16: compute in half precision, with PyTorch alone.
        folder: where the dictionaries and the text pipeline are.
        state: what the checkpoint holds besides parameters, as ``read_state`` gives it.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        task: Any,
        pipeline: TextPipeline,
        beam: int = 5,
        lenpen: float = 1.0,
        max_tokens: int = 4000,
        batch_size: int = 64,
        cpu: bool = False,
        constraints: Optional[str] = None,
        inference_backend: Optional[str] = None,
        fp16: bool = False,
        folder: Path = Path(),
        state: Optional[dict[str, Any]] = None,
    ) -> None:
        self.folder = folder
        self.state = state or {}
        self.task = task
        self.pipeline = pipeline
        self.max_tokens = max_tokens
        self.batch_size = batch_size
        self.use_cuda = torch.cuda.is_available() and not cpu
        limits = utils.resolve_max_positions(task.max_positions(), model.max_positions())  # type: ignore[operator]
        self.max_source_tokens = limits[0]
        if fp16:
            model.half()
        if self.use_cuda:
            model.cuda()
        model.eval()
        if inference_backend == "onnxruntime":  # fairseq's own models know no back ends
            run_in_onnxruntime_(model)
        else:
            prepare: Any = model.make_generation_fast_
            prepare(beamable_mm_beam_size=beam, need_attn=False, inference_backend=inference_backend)
        self.constraints = constraints
        settings = argparse.Namespace(
            beam=beam,
            lenpen=lenpen,
            max_len_a=MAX_LENGTH_FACTOR,
            max_len_b=MAX_LENGTH_EXTRA,
            constraints=constraints,
        )
        self.models = [model]
        self.generator = task.build_generator(self.models, settings)

    @classmethod
    def load(cls, path: Union[str, Path], data: Optional[Union[str, Path]] = None, **settings: Any) -> "Translator":
        """Loads a checkpoint with its dictionaries and text pipeline.

        Args:
            path: a checkpoint, or a folder with one (see ``find_checkpoint``).
            data: the folder of the dictionaries and the text pipeline; if None, that of the checkpoint or, where that
                has no text pipeline, the one that the checkpoint names as its training data.
            **settings: the remaining arguments of the class.

        Raises:
            FileNotFoundError: if the checkpoint, a dictionary or the text pipeline is missing.
            ValueError: if one of them is damaged or does not fit the others, or the model does not translate.
        """
        checkpoint = find_checkpoint(Path(path))
        state = None
        folder = checkpoint.parent if data is None else Path(data)
        if data is None and not (folder / FILE_NAME).is_file():
            state = _read_state(checkpoint, Path(path), {})
            trained_on = Path(str(state["cfg"]["task"].data).split(":")[0])
            folder = trained_on if (trained_on / FILE_NAME).is_file() else folder
        pipeline = TextPipeline.load(folder)
        for lang in (pipeline.source_lang, pipeline.target_lang):
            dictionary = folder / f"dict.{lang}.txt"
            if not dictionary.is_file():
                raise FileNotFoundError(
                    f"the dictionary {dictionary} does not exist; copy it from the folder that fairseq-preprocess "
                    "wrote, or name that folder by --data."
                )
        if state is None:
            state = _read_state(checkpoint, Path(path), {"data": str(folder)})
        model, task = _load_model(checkpoint, folder, pipeline, state)
        symbols = (task.source_dictionary.symbols, task.target_dictionary.symbols)
        for warning in check_dictionaries(pipeline, *symbols, folder):
            logger.warning(warning)
        rest = {name: value for name, value in state.items() if name not in _LARGE}
        return cls(model, task, pipeline, **settings, folder=folder, state=rest)

    def translate_lines(self, lines: Sequence[Line]) -> list[str]:
        """Translates raw lines; the result has as many, in the same order, and none of them holds a line break."""
        phrases: list[list[Tensor]] = [[] for _ in lines]
        if self.constraints is not None:
            cut = [line.text.split("\t") for line in lines]
            phrases = [self._encode_phrases(line.number, rest) for line, (_, *rest) in zip(lines, cut, strict=True)]
            lines = [line._replace(text=text) for line, (text, *_) in zip(lines, cut, strict=True)]
        encoded = {
            position: tokens for position, line in enumerate(lines) if (tokens := self._encode(line)) is not None
        }
        translations = [""] * len(lines)
        lengths = {position: len(tokens) for position, tokens in encoded.items()}
        for position, length in lengths.items():
            if phrases[position]:
                phrases[position] = self._fit_phrases(lines[position].number, phrases[position], length)
        for positions in make_batches(lengths, self.max_tokens, self.batch_size):
            found = self.search([encoded[p] for p in positions], [phrases[p] for p in positions])
            for position, (best, *_) in zip(positions, found, strict=True):
                tokens = best["tokens"].cpu()
                translations[position] = self.pipeline.decode(self.task.target_dictionary.string(tokens))
        return translations

    def _encode(self, line: Line) -> Optional[Tensor]:
        """Token ids of a line with the end-of-sentence mark, or None if the line is blank."""
        tokens = self.read_line(line)
        if not tokens:
            return None
        ids: Tensor = self.task.source_dictionary.encode_line(" ".join(tokens), add_if_not_exist=False)
        return ids.long()

    def read_line(self, line: Line) -> list[str]:
        """The tokens of a raw line, cut to what the model can read; none of a blank line."""
        text = clean_line(line.text)
        is_cut = len(text) > CHARACTERS_PER_TOKEN * self.max_source_tokens
        if is_cut:
            text = text[: CHARACTERS_PER_TOKEN * self.max_source_tokens]
        tokens = self.pipeline.encode_source(text).split()
        if len(tokens) >= self.max_source_tokens:  # one place is for the end-of-sentence mark
            tokens = tokens[: self.max_source_tokens - 1]
            is_cut = True
        if is_cut:
            logger.warning(
                "line %d is longer than the %d tokens that the model can read; only its beginning was translated.",
                line.number,
                self.max_source_tokens,
            )
        return tokens

    def _encode_phrases(self, number: int, phrases: Sequence[str]) -> list[Tensor]:
        """Token ids of the phrases behind a line; those with words that the model cannot write are left out."""
        dictionary = self.task.target_dictionary
        encoded = []
        for phrase in phrases:
            tokens = self.pipeline.encode_target(clean_line(phrase))
            ids: Tensor = dictionary.encode_line(tokens, append_eos=False, add_if_not_exist=False).long()
            if dictionary.unk() in ids.tolist():
                logger.warning(
                    "line %d: the phrase %r has words that the model does not know; it is left out.", number, phrase
                )
            elif len(ids) > 0:
                encoded.append(ids)
        return encoded

    def _fit_phrases(self, number: int, phrases: list[Tensor], length: int) -> list[Tensor]:
        """Those that fit one after the other into the longest translation of a sentence of ``length`` tokens."""
        most = min(int(MAX_LENGTH_FACTOR * length + MAX_LENGTH_EXTRA), self.models[0].max_decoder_positions() - 1)
        ends = itertools.accumulate(map(len, phrases))
        fitting = [phrase for phrase, end in zip(phrases, ends, strict=True) if end <= most]
        if len(fitting) < len(phrases):
            logger.warning(
                "line %d: its translation may have at most %d tokens, fewer than its phrases have; the last %d of its "
                "phrases are left out.",
                number, most, len(phrases) - len(fitting),
            )  # fmt: skip
        return fitting

    def search(self, sentences: list[Tensor], phrases: list[list[Tensor]]) -> list[list[dict[str, Any]]]:
        """All hypotheses of beam search for each sentence, the best first.

        Args:
            sentences: token ids of each, with the end-of-sentence mark.
            phrases: token ids that must occur in a sentence's hypotheses; not read without ``constraints``.
        """
        constraints = None if self.constraints is None else pack_constraints(phrases)
        lengths = [len(sentence) for sentence in sentences]
        dataset = self.task.build_dataset_for_inference(sentences, lengths, constraints=constraints)
        sample = dataset.collater([dataset[i] for i in range(len(sentences))])
        if self.use_cuda:
            sample = utils.move_to_cuda(sample)
        hypotheses = self.task.inference_step(
            self.generator, self.models, sample, constraints=sample.get("constraints")
        )
        found = dict(zip(sample["id"].tolist(), hypotheses, strict=True))
        return [found[i] for i in range(len(sentences))]


def _read_state(checkpoint: Path, path: Path, overrides: dict[str, str]) -> dict[str, Any]:
    state = read_state(path, overrides)
    name = state["cfg"]["task"]["_name"]
    if not issubclass(TASK_REGISTRY.get(name, object), TranslationTask):
        raise ValueError(
            f"this command needs a translation model, but {checkpoint} was trained with --task {name}; for labels, "
            "numbers and tags use muse-plugin predict."
        )
    return state


def _load_model(
    checkpoint: Path, folder: Path, pipeline: TextPipeline, state: dict[str, Any]
) -> tuple[torch.nn.Module, Any]:
    check_finite(checkpoint, state["model"])
    settings = state["cfg"]["task"]
    for side in ("source_lang", "target_lang"):
        trained, given = getattr(settings, side, None), getattr(pipeline, side)
        if trained is not None and trained != given:
            raise ValueError(
                f"the text pipeline must have the languages of the model, but {checkpoint} was trained with {side} "
                f"'{trained}' and {folder / FILE_NAME} has '{given}'; name the model's own folder by --data."
            )
        setattr(settings, side, given)  # without it, fairseq looks for the languages in the names of binary data
    return build_model(checkpoint, state, {"data": str(folder)}, folder)
