"""Models of pairs on disk, not trained, and files of sentences."""

from functools import cached_property

import pytest
import torch
from support.fairseq_commands import save_untrained
from support.sentence_checkpoints import prepare_text

from muse_plugin.matching.encode import encode_file
from muse_plugin.matching.pair_model import PairModel

WORDS = "a good film bad story indeed the plot of it was rather thin but fun".split()


def random_lines(count, seed=0, longest=7):
    """Sentences of random words, among them unknown ones."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=generator).tolist()
    vocabulary = [*WORDS, "Unseen"]
    return [
        " ".join(vocabulary[i] for i in torch.randint(0, len(vocabulary), (length,), generator=generator).tolist())
        for length in lengths
    ]


def save_checkpoint(folder, data, *flags, arch="sentence_bigru", seed=1, task="muse_sentence_classification"):
    """Writes a checkpoint as fairseq-train does."""
    words = [str(data), "--task", task, "--criterion", "muse_sentence_classification", "--arch", arch]
    words += ["--cpu", "--optimizer", "adam"]
    sizes = ["--max-words", "6"]
    if arch != "head_wise_match_translation":  # whose sizes are those of the translation model
        sizes += ["--encoder-embed-dim", "8", "--word-embed-dim", "8"]
    if not arch.startswith("head_wise_match"):
        sizes += ["--classifier-hidden-dim", "6"]
    if arch == "sentence_bigru":
        sizes += ["--encoder-hidden-size", "8"]

    def change(name, parameter):
        if name.startswith(("classifier", "matcher")):
            parameter.normal_(std=0.8)  # sentences must differ clearly
        elif name.startswith("embedder.words"):
            parameter.normal_()

    folder.mkdir(exist_ok=True)
    save_untrained(folder / "checkpoint_best.pt", *words, *sizes, *flags, seed=seed, change=change)
    return folder / "checkpoint_best.pt"


def prepare(folder, labels, *flags):
    """Prepares pairs with these labels."""
    lines = random_lines(12, seed=5)
    rows = [f"{a}\t{b}\t{labels[i % len(labels)]}" for i, (a, b) in enumerate(zip(lines, lines[::-1], strict=True))]
    rows.append(f"{' '.join(WORDS)}\t{WORDS[0]}\t{labels[0]}")
    text = "".join(f"{row}\n" for row in rows)
    return prepare_text(folder, text, "--format", "tsv:text=1,pair=2,label=3", "--lower-case", *flags)


class Shop:
    """Folders with data and a checkpoint, each made when it is first asked for.

    ``yes_no`` has two labels, ``three`` has three, ``number`` predicts one.
    """

    save_checkpoint = staticmethod(save_checkpoint)

    def __init__(self, root):
        self.root = root

    def make(self, name, labels, prepare_flags=(), flags=()):
        folder = self.root / name
        folder.mkdir()
        save_checkpoint(folder, prepare(folder, labels, *prepare_flags), *flags)
        return folder

    @cached_property
    def yes_no(self):
        return self.make("yes_no", ["no", "yes"])

    @cached_property
    def three(self):
        return self.make("three", ["left", "middle", "right"])

    @cached_property
    def number(self):
        return self.make("number", ["0.5", "2"], ["--numbers"], ["--numbers", "1"])


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """Models to choose from."""
    return Shop(tmp_path_factory.mktemp("matching"))


@pytest.fixture(scope="session")
def load(shop):
    """Loads a model of the shop; the same object each time."""
    models = {}

    def load_model(name="yes_no", batch_size=5):
        if (name, batch_size) not in models:
            models[name, batch_size] = PairModel.load(getattr(shop, name), None, batch_size, None, True)
        return models[name, batch_size]

    return load_model


@pytest.fixture
def make_lines():
    """Makes sentences of random words; see ``random_lines``."""
    return random_lines


@pytest.fixture
def make_cache(tmp_path, load):
    """Encodes lines, and returns the folder."""

    def make(name, lines, model=None, **options):
        source = tmp_path / f"{name}.txt"
        source.write_text("".join(f"{line}\n" for line in lines))
        encode_file(model or load(), source, tmp_path / name, **options)
        return tmp_path / name

    return make
