from types import SimpleNamespace

import pytest
import torch

from muse_plugin.benchmark import systems
from muse_plugin.benchmark.systems import ModelFactory, count_parameters

ALL = [value for name, value in vars(systems).items() if name.isupper() and isinstance(value, str)]
RIVALS = {
    "tiny": [systems.MUSE, systems.TRANSFORMER, systems.DYNAMIC_CONV],
    "base": [systems.MUSE, systems.TRANSFORMER, systems.DYNAMIC_CONV],
    "six_layers": [systems.SIMPLE, systems.TRANSFORMER],
}


@pytest.mark.parametrize("setting", RIVALS)
def test_rivals_have_the_same_number_of_parameters_within_half_a_percent(setting):
    factory = ModelFactory(1000)
    ours, *others = (count_parameters(factory.build(name, setting)) for name in RIVALS[setting])
    for count in others:
        assert abs(count - ours) <= 0.005 * ours, f"{count:,} and {ours:,} parameters"


def test_rivals_have_the_same_depth_and_width():
    factory = ModelFactory(50)
    for name in ALL:
        model = factory.build(name, "tiny")
        assert (len(model.encoder.layers), len(model.decoder.layers)) == (4, 4), name
        assert model.encoder.embed_tokens.weight.shape == (50, 128), name


def test_forms_of_a_model_have_the_same_weights():
    factory = ModelFactory(50)
    counts = {name: count_parameters(factory.build(name, "tiny")) for name in ALL}
    assert counts[systems.MUSE] == counts[systems.MUSE_INT8] == counts[systems.MUSE_UNFUSED]
    assert counts[systems.SIMPLE] == counts[systems.SIMPLE_INT8] == counts[systems.SIMPLE_ORDINARY]
    assert counts[systems.MUSE] != counts[systems.SIMPLE]


@pytest.mark.parametrize("name", ALL)
def test_every_contestant_computes_a_batch(name):
    factory = ModelFactory(50, share_all_embeddings=True)
    sample = factory.make_sample(3, 7)
    model = factory.build(name, "tiny").eval()
    scores, _ = model(**sample["net_input"])
    assert scores.shape == (3, 7, 50)
    assert torch.isfinite(scores).all()
    assert model.encoder.embed_tokens.weight is model.decoder.output_projection.weight


def test_batches_are_those_of_the_trainer():
    factory = ModelFactory(50)
    sample = factory.make_sample(3, 7)
    source, previous = (sample["net_input"][name] for name in ("src_tokens", "prev_output_tokens"))
    end = factory.dictionary.eos()
    assert (source[:, -1] == end).all()
    assert (sample["target"][:, -1] == end).all()
    assert (previous[:, 0] == end).all()
    assert torch.equal(previous[:, 1:], sample["target"][:, :-1])
    assert sample["ntokens"] == 21
    assert source[:, :-1].min() >= factory.dictionary.nspecial


def test_flags_of_models_are_passed_on():
    assert ModelFactory(50).build(systems.TRANSFORMER, "tiny", dropout=0.25).encoder.dropout_module.p == 0.25


def select(names, *left_out, device="cpu"):
    return systems.select(names, SimpleNamespace(without=left_out, device=SimpleNamespace(type=device)))


def test_contestants_can_be_left_out():
    assert select(["a", "b", "c int8"], "a") == ["b", "c int8"]
    names = ["a", systems.CTRANSLATE2, "b, onnxruntime", "c int8", "d, without CUDA graphs"]
    assert select(names, device="cuda") == ["a", systems.CTRANSLATE2, names[-1]]
    assert select(names) == names[:-1]
    with pytest.raises(ValueError, match=r"^--without must name contestants, but got 'd'; there are: a; b\.$"):
        select(["a", "b"], "d")
    with pytest.raises(ValueError, match=r"^--without must leave at least one contestant, but it names them all"):
        select(["a", "b"], "a", "b")


def test_a_vocabulary_that_is_too_small_is_refused():
    with pytest.raises(ValueError, match=r"^--vocabulary must be at least 5, but got 4\.$"):
        ModelFactory(4)
