"""Translation whose training text is segmented again, at random, for every epoch: BPE-dropout (arXiv:1910.13267).

Only training differs from fairseq's task ``translation``: validation and test sets, generation and everything that
loads a checkpoint use the binarised data as usual and never look at the training text. See ``bpe_dropout/`` for how
the text becomes token ids.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from fairseq import utils
from fairseq.data import data_utils, indexed_dataset
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import II

from muse_plugin.contracts.flag import check_values, flag, rate, size
from muse_plugin.tasks.bpe_dropout.background import BackgroundSegmenter, Side
from muse_plugin.tasks.bpe_dropout.resegmented_pairs import ResegmentedPairs
from muse_plugin.tasks.bpe_dropout.training_text import check_fit, check_parallel, find_codes, read_codes, read_text

logger = logging.getLogger(__name__)

_SIDES = ("source", "target")


@dataclass
class TranslationWithBpeDropoutConfig(TranslationConfig):
    """Flags of translation with BPE-dropout: those of fairseq's ``translation``, and these."""

    bpe_dropout: float = rate(
        0.1,
        "probability in [0, 1) of leaving out a merge when training text is segmented (0.1: the paper's); of a unigram "
        "model of SentencePiece, the smoothing of the sampling, 0 for none",
        advice="; 0.1 is usual",
    )
    source_bpe_dropout: Optional[float] = rate(
        None, "the same for the source alone (default: --bpe-dropout)", advice="; 0.1 is usual"
    )
    target_bpe_dropout: Optional[float] = rate(
        None, "the same for the target alone (default: --bpe-dropout)", advice="; 0.1 is usual"
    )
    train_text: Optional[str] = flag(
        None,
        "training text before BPE, tokenised: the files PREFIX.<source-lang> and PREFIX.<target-lang>, one sentence "
        "per line (default: the prefix train.tok in the folder of the binarised data)",
    )
    bpe_codes: Optional[str] = flag(
        None,
        "codes file of subword-nmt or .model of SentencePiece (default: those that muse-plugin prepare-translation "
        "left in the folder of the binarised data, such as bpe.codes)",
    )
    target_bpe_codes: Optional[str] = flag(None, "codes file of the target alone (default: --bpe-codes)")
    bpe_dropout_workers: int = size(
        1, "processes that segment the next epoch while one is trained, per GPU; their number changes no result"
    )
    seed: int = II("common.seed")


@register_task("translation_with_bpe_dropout", dataclass=TranslationWithBpeDropoutConfig)
class TranslationWithBpeDropoutTask(TranslationTask):
    """fairseq's translation task, with BPE-dropout on the training text.

    Source: Provilkov et al. 2020, arXiv:1910.13267. As there, a sentence is segmented at random each time it is
    trained on, and without dropout otherwise. Differs from the paper: a segmentation with symbols that the dictionary
    lacks is replaced, see ``LineSegmenter``. Without dropout the tokens are those of ``subword-nmt apply-bpe`` and
    ``fairseq-preprocess``, except for words with symbols that a shortened dictionary lacks: they are divided further
    where that helps, as by ``apply-bpe --vocabulary``. With a BPE model of SentencePiece its merges are left out; with
    a unigram model a segmentation is drawn, see ``PieceSampler``.

    The segmentation depends on ``--seed``, the epoch, and the number of the line; every data-parallel process makes
    the same one. Training that resumes, also in the middle of an epoch, continues with the batches of one that has
    never stopped.
    """

    cfg: TranslationWithBpeDropoutConfig

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Loads a split; for training, reads and checks the text and waits for its first segmentation.

        Args:
            split: name of the split.
            epoch: counted from 1.
            combine: see fairseq; of no effect on the training text, which is one.
            **kwargs: fairseq's validation and generation give ``task_cfg``; they want the binarised training data.

        Raises:
            ValueError: if a flag is out of its range, or text, codes and dictionaries do not fit together.
            FileNotFoundError: if text or codes are missing.
            NotImplementedError: if a flag of ``translation`` is given that BPE-dropout has no meaning for.
            RuntimeError: if the text could not be segmented.
        """
        if split != self.cfg.train_subset or "task_cfg" in kwargs:
            super().load_dataset(split, epoch=epoch, combine=combine, **kwargs)
            return
        self._check_flags()
        sides = self._read_sides()
        self._compare_with_binarised(split, sides[0].text.lines)
        self.datasets[split] = ResegmentedPairs(
            BackgroundSegmenter(sides, self.cfg.seed),
            epoch,
            self.src_dict,
            self.tgt_dict,
            self.cfg.max_source_positions if self.cfg.truncate_source else None,
            left_pad_source=self.cfg.left_pad_source,
            left_pad_target=self.cfg.left_pad_target,
            num_buckets=self.cfg.num_batch_buckets,
            pad_to_multiple=self.cfg.required_seq_len_multiple,
        )

    def _dropout(self, side: str) -> float:
        own = getattr(self.cfg, f"{side}_bpe_dropout")
        return self.cfg.bpe_dropout if own is None else own

    def _check_flags(self) -> None:
        check_values(self.cfg, TranslationWithBpeDropoutConfig)
        unbuilt = []
        if len(utils.split_paths(self.cfg.data)) > 1:
            unbuilt.append("several folders of data; give one, as all training text comes from --train-text")
        if self.cfg.load_alignments:
            unbuilt.append("--load-alignments; drop it, as alignments are of one fixed segmentation")
        if self.cfg.upsample_primary not in (-1, 1):
            unbuilt.append("--upsample-primary; repeat lines in --train-text instead")
        if unbuilt:
            raise NotImplementedError("\n".join(f"BPE-dropout does not work with {entry}." for entry in unbuilt))

    def _read_sides(self) -> tuple[Side, Side]:
        data, languages = Path(self.cfg.data), (self.cfg.source_lang, self.cfg.target_lang)
        prefix = self.cfg.train_text or str(data / "train.tok")
        texts = [Path(f"{prefix}.{lang}") for lang in languages]
        named = self.cfg.bpe_codes, self.cfg.target_bpe_codes or self.cfg.bpe_codes
        codes = [Path(path) if path else find_codes(data, side) for side, path in zip(_SIDES, named, strict=True)]
        missing = [
            f"the training text {path} does not exist; name by --train-text the prefix of the files that were "
            "segmented for the binarised data, as they were before BPE; muse-plugin prepare-translation leaves them in "
            "the folder of the data with --keep-train-text."
            for path in texts
            if not path.is_file()
        ]
        missing += [
            f"the BPE codes {path} do not exist; name by --bpe-codes the file that subword-nmt has learnt for the "
            "binarised data, or the .model of SentencePiece."
            for path in dict.fromkeys(codes)
            if not path.is_file()
        ]
        if missing:
            raise FileNotFoundError("\n".join(missing))
        contents = [read_codes(path) for path in codes]
        read = [read_text(path, self.cfg.bpe_dropout_workers) for path in texts]
        check_parallel(*read)
        sides = []
        for i, dictionary in enumerate((self.src_dict, self.tgt_dict)):
            indices = dict(dictionary.indices)
            check_fit(read[i], contents[i], codes[i], indices, languages[i])
            rest = dictionary.unk(), dictionary.eos(), self._dropout(_SIDES[i])
            sides.append(Side(_SIDES[i], read[i], contents[i], indices, *rest))
        return sides[0], sides[1]

    def _compare_with_binarised(self, split: str, lines: int) -> None:
        """Says so if the binarised training data, which is not used, has another number of sentences."""
        source, target = self.cfg.source_lang, self.cfg.target_lang
        for pair in (f"{source}-{target}", f"{target}-{source}"):
            path = str(Path(self.cfg.data) / f"{split}.{pair}.{source}")
            if indexed_dataset.dataset_exists(path, self.cfg.dataset_impl):
                binarised = len(data_utils.load_indexed_dataset(path, self.src_dict, self.cfg.dataset_impl))
                if binarised != lines:
                    logger.warning(
                        f"the training text has {lines} sentences, but the binarised training data in {self.cfg.data} "
                        f"has {binarised}; training uses the text. That is as it should be only if sentences were "
                        "removed after BPE."
                    )
