"""Models on disk, not trained, with their data, and what figures show."""

from functools import cached_property

import pytest
import torch
from support.analysis_results import skip_drawing
from support.fairseq_commands import SMALL, make_data, save_untrained, sharpen
from support.sentence_models import write_data

WORDS = "a good film bad story indeed the plot of it was rather thin but fun $5 <i>".split()
TRANSLATE = ["--source-lang", "de", "--target-lang", "en"]
CLASSIFY = ["--task", "muse_sentence_classification", "--criterion", "muse_sentence_classification"]
TRUNK = ["--word-embed-dim=8", "--encoder-embed-dim=12", "--classifier-hidden-dim=6"]


def save_checkpoint(folder, data, arch, *flags, seed=1):
    """Writes a checkpoint as fairseq-train does, in which heads look at something."""
    folder.mkdir(exist_ok=True)
    words = [data, "--arch", arch, "--cpu", "--optimizer", "adam", *flags]
    save_untrained(folder / "checkpoint_best.pt", *words, seed=seed, change=sharpen, num_updates=7)
    return folder


def make_lines(count, seed=0, longest=9):
    """Sentences of random words."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=generator).tolist()
    return [" ".join(WORDS[i] for i in torch.randint(0, len(WORDS), (n,), generator=generator)) for n in lengths]


class Shop:
    """Folders with data and checkpoints, each made when it is first asked for."""

    save_checkpoint = staticmethod(save_checkpoint)
    make_lines = staticmethod(make_lines)
    translate = TRANSLATE
    small = SMALL
    classify = [*CLASSIFY, *TRUNK]

    def __init__(self, root):
        self.root = root

    @cached_property
    def parallel(self):
        """Binarised data of translation."""
        return make_data(self.root / "parallel", {"train": 30, "valid": 25})

    @cached_property
    def labelled(self):
        """Data of sentences with labels."""
        rows = [(line, ("bad", "good")[i % 2]) for i, line in enumerate(make_lines(21))]
        return write_data(self.root / "labelled", {"train": rows, "valid": rows})

    @cached_property
    def paired(self):
        """Data of pairs with labels."""
        rows = [
            (*pair, "yes" if len(pair[0]) % 2 else "no") for pair in zip(make_lines(9), make_lines(9, 1), strict=True)
        ]
        return write_data(self.root / "paired", {"train": rows, "valid": rows}, ("input0", "input1", "label"))

    @cached_property
    def muse(self):
        return save_checkpoint(self.root / "muse", self.parallel, "muse", *TRANSLATE, *SMALL)

    @cached_property
    def transformer(self):
        return save_checkpoint(self.root / "transformer", self.parallel, "transformer", *TRANSLATE, *SMALL)

    @cached_property
    def multi_scale(self):
        sizes = ["--encoder-layers=2", "--encoder-attention-heads=6", "--encoder-head-dim=3"]
        sizes.append("--encoder-attention-scales=1,3,N/4,all")
        folder = self.root / "multi_scale"
        return save_checkpoint(folder, self.labelled, "multi_scale_transformer", *CLASSIFY, *TRUNK, *sizes)

    @cached_property
    def distance(self):
        sizes = ["--encoder-attention-heads=3", "--encoder-ffn-embed-dim=16", "--distance-alpha=0.5"]
        folder = self.root / "distance"
        return save_checkpoint(folder, self.labelled, "distance_attention_network", *CLASSIFY, *TRUNK, *sizes)

    @cached_property
    def distance_encoder(self):
        return save_checkpoint(self.root / "encoder", self.parallel, "distance_encoder_tiny", *TRANSLATE, *SMALL)

    @cached_property
    def recurrent(self):
        sizes = ["--encoder-hidden-size=5"]
        return save_checkpoint(self.root / "recurrent", self.labelled, "sentence_bigru", *CLASSIFY, *TRUNK, *sizes)

    @cached_property
    def lama(self):
        sizes = ["--encoder-hidden-size=5", "--pooling-heads=3", "--max-words=6"]
        return save_checkpoint(self.root / "lama", self.labelled, "lama_context", *CLASSIFY, *TRUNK, *sizes)

    @cached_property
    def structured(self):
        sizes = ["--encoder-hidden-size=5", "--pooling-heads=2", "--pooling-hidden-dim=7", "--max-words=6"]
        arch = "sentence_structured_attention"
        return save_checkpoint(self.root / "structured", self.labelled, arch, *CLASSIFY, *TRUNK, *sizes)

    @cached_property
    def pooled_pairs(self):
        sizes = ["--encoder-layers=1", "--encoder-attention-heads=2", "--encoder-ffn-embed-dim=16", "--pooling-heads=3"]
        sizes.append("--pooling=low_rank_attention")
        folder = self.root / "pooled_pairs"
        return save_checkpoint(folder, self.paired, "sentence_transformer", *CLASSIFY, *TRUNK, *sizes)

    @cached_property
    def pooled_numbers(self):
        rows = [(line, str(len(line))) for line in make_lines(5)]
        data = write_data(self.root / "numbers", {"train": rows, "valid": rows}, numbers=True)
        flags = ["--task=muse_sentence_classification", "--criterion=muse_sentence_regression", "--numbers=1"]
        folder = self.root / "pooled_numbers"
        return save_checkpoint(folder, data, "lama_encoder", *flags, *TRUNK, "--pooling-heads=3")


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """Models to choose from."""
    return Shop(tmp_path_factory.mktemp("analysis"))


@pytest.fixture
def undrawn(monkeypatch):
    """The figures are empty files."""
    skip_drawing(monkeypatch)
