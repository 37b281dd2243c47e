"""Small models of several families, a batch, and criterions as fairseq builds them."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY
from fairseq.models import build_model
from support.fairseq_commands import parse_training
from support.reference import make_dictionary

import muse_plugin  # noqa: F401  (registers models and criterions)

PAD, EOS = 1, 2
SYMBOLS = 20
DICTIONARY = make_dictionary(SYMBOLS)
TASK = SimpleNamespace(source_dictionary=DICTIONARY, target_dictionary=DICTIONARY)
NAMES = ("layers", "embed-dim", "ffn-embed-dim", "attention-heads")
TRANSFORMER = [
    f"--{side}-{name}={value}"
    for side in ("encoder", "decoder")
    for name, value in zip(NAMES, (2, 16, 24, 2), strict=True)
]
FAMILIES = {
    "muse_tiny": [*TRANSFORMER, "--weight-dropout=0"],
    "muse_simple_tiny": TRANSFORMER,
    "transformer_tiny": TRANSFORMER,
    "lightconv_iwslt_de_en": [
        *TRANSFORMER,
        *"--encoder-conv-dim 16 --decoder-conv-dim 16 --weight-dropout 0 --attention-dropout 0".split(),
        *"--encoder-kernel-size-list [3,5] --decoder-kernel-size-list [3,5]".split(),
    ],
    "lstm": "--encoder-embed-dim 16 --encoder-hidden-size 16 --encoder-bidirectional --decoder-embed-dim 16 "
    "--decoder-hidden-size 16 --decoder-out-embed-dim 16".split(),
    "fconv": "--encoder-embed-dim 16 --decoder-embed-dim 16 --decoder-out-embed-dim 16 "
    "--encoder-layers [(16,3)]*2 --decoder-layers [(16,3)]*2".split(),
}


@pytest.fixture
def make_model(device):
    """Builds a model in training mode, without dropout unless asked for; the same numbers every time."""

    def build(arch="muse_tiny", *flags):
        args = parse_training("data", "--arch", arch, "--max-tokens=1", "--dropout=0", *FAMILIES[arch], *flags)
        torch.manual_seed(5)
        model = build_model(args, TASK)
        if arch == "lstm":  # it starts with weights so small that it predicts almost the same whatever it reads
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter *= 8
        return model.to(device).train()

    return build


@pytest.fixture
def make_sample(device):
    """Builds a batch like fairseq's: source padded on the left, target on the right, longest source first."""

    def build(source_lengths=(7, 5, 5, 2), target_lengths=(4, 6, 2, 3), longer=0):
        generator = torch.Generator().manual_seed(7)

        def sentence(length):
            return [*torch.randint(4, SYMBOLS, (length - 1,), generator=generator).tolist(), EOS]

        sources, targets = ([sentence(n) for n in lengths] for lengths in (source_lengths, target_lengths))
        width, target_width = max(source_lengths) + longer, max(target_lengths) + longer
        source = [[PAD] * (width - len(row)) + row for row in sources]
        target = [row + [PAD] * (target_width - len(row)) for row in targets]
        previous = [[EOS, *row[:-1]] + [PAD] * (target_width - len(row)) for row in targets]

        def tensor(rows):
            return torch.tensor(rows, device=device)

        return {
            "id": tensor(list(range(len(sources)))),
            "nsentences": len(sources),
            "ntokens": sum(target_lengths),
            "net_input": {
                "src_tokens": tensor(source),
                "src_lengths": tensor(list(source_lengths)),
                "prev_output_tokens": tensor(previous),
            },
            "target": tensor(target),
        }

    return build


@pytest.fixture
def make_criterion():
    """Builds a criterion from its flags, as fairseq does."""

    def build(name, task=TASK, **flags):
        config = CRITERION_DATACLASS_REGISTRY[name](**{"sentence_avg": False, "label_smoothing": 0.1, **flags})
        return CRITERION_REGISTRY[name].build_criterion(config, task).train()

    return build


@pytest.fixture(params=FAMILIES)
def family(request):
    """An architecture of the plugin or of fairseq."""
    return request.param
