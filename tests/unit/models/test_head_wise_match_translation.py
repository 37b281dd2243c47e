"""Head-wise match on the encoder of a translation model: that encoder's own heads, from its own checkpoint."""

import json
import re
from argparse import Namespace

import pytest
import torch
from fairseq.models import build_model
from support.helpers import assert_close, save_checkpoint
from support.muse_models import EOS, PAD, SMALL, SYMBOLS
from support.reference import make_dictionary
from support.sentence_models import make_input, make_task

from muse_plugin.modules.attention import SelfAttention

ATOL = 1e-5  # float32, sums in another order


def make_translation(path, model="muse", seed=0, **flags):
    """A tiny translation model and its checkpoint."""
    torch.manual_seed(seed)
    dictionary = make_dictionary(SYMBOLS)
    args = Namespace(_name=model, arch=model, **SMALL, dropout=0.0, **flags)
    net = build_model(args, make_task(source_dictionary=dictionary, target_dictionary=dictionary)).eval()
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "bias" in name:
                parameter.normal_(std=0.3)
    write_checkpoint(path, net.state_dict(), vars(args))
    return net


def write_checkpoint(path, parameters, flags):
    """As fairseq-train writes it."""
    cfg = {"common": {}, "task": {"_name": "translation"}, "criterion": {"_name": "cross_entropy"}, "model": flags}
    save_checkpoint(path, parameters, args=None, cfg=cfg)


def build(seed=1, task=None, **flags):
    torch.manual_seed(seed)
    task = task or make_task(pairs=True, source_dictionary=make_dictionary(SYMBOLS))
    name = "head_wise_match_translation"
    return build_model(Namespace(_name=name, arch=name, **{"match_dropout": 0.0, "match_dim": 16, **flags}), task)


def make_words(*lengths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(4, SYMBOLS, (n,), generator=generator) for n in lengths]


@pytest.fixture
def checkpoint(tmp_path):
    return tmp_path / "checkpoint_best.pt"


@torch.no_grad()
@pytest.mark.parametrize("model", ["muse", "muse_simple", "plain_transformer"])
@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_vectors_are_the_heads_of_the_translation_models_encoder_over_words_and_end(checkpoint, model, pooling):
    translation = make_translation(checkpoint, model, encoder_normalize_before=True)
    net = build(translation_checkpoint=str(checkpoint), head_pooling=pooling).eval()
    heads = []
    for module in translation.encoder.modules():
        if isinstance(module, SelfAttention):
            module.register_forward_hook(lambda module, args, output: heads.append(output))
    sentence = make_words(6)[0]
    translation.encoder(torch.cat([sentence, torch.tensor([EOS])])[None], torch.tensor([7]))
    assert len(heads) == 2
    pool = {"mean": lambda x: x.mean(dim=1), "max": lambda x: x.amax(dim=1)}[pooling]
    assert_close(net.represent(**make_input([sentence])), torch.cat([pool(x) for x in heads], dim=1), atol=ATOL)


@torch.no_grad()
@pytest.mark.parametrize("match", ["element", "classic"])
def test_a_pair_alone_equals_itself_in_a_batch_however_padded(checkpoint, match):
    make_translation(checkpoint)
    net = build(translation_checkpoint=str(checkpoint), match=match).eval()
    first, second = make_words(7, 1, 4, seed=1), make_words(2, 9, 1, seed=2)

    def score(rows=slice(None), **padding):
        batch = make_input(first[rows], **padding), make_input(second[rows], prefix="pair", **padding)
        return net(**batch[0], **batch[1]).logits

    batch = score()
    assert_close(score(longer=3, filling=PAD), batch, atol=ATOL)
    assert_close(score(longer=3, filling=9), batch, atol=ATOL)
    for row in range(3):
        assert_close(score(slice(row, row + 1))[0], batch[row], atol=ATOL)


@pytest.mark.parametrize("branches", ["self_attention,conv,ffn", "self_attention/ffn", "long_short_range,ffn"])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("levels", ["0", "all"])
def test_all_that_is_trained_gets_a_gradient_and_all_that_is_not_changes_nothing(checkpoint, branches, before, levels):
    make_translation(checkpoint, encoder_branches=branches, encoder_normalize_before=before)
    check_training(checkpoint, levels)


def test_layers_that_were_dropped_in_its_training_are_all_there(checkpoint):
    make_translation(checkpoint, encoder_layerdrop=0.9)
    check_training(checkpoint, "all")


def test_layers_that_its_training_left_out_are_none(checkpoint):
    net = make_translation(checkpoint, encoder_layers_to_keep="1")
    assert len(net.encoder.layers) == len(build(translation_checkpoint=str(checkpoint)).encoder.layers) == 1


def check_training(checkpoint, levels):
    net = build(translation_checkpoint=str(checkpoint), match_levels=levels)
    words = {**make_input(make_words(*[5] * 20)), **make_input(make_words(*[4] * 20, seed=3), prefix="pair")}
    net(**words).logits.square().sum().backward()
    assert [name for name, p in net.named_parameters() if p.requires_grad == (p.grad is None)] == []
    net.eval()
    with torch.no_grad():
        expected = net(**words).logits
        for parameter in net.parameters():
            parameter.add_(0.0 if parameter.requires_grad else 1.0)
        assert torch.equal(net(**words).logits, expected)


@pytest.mark.parametrize("levels", ["0", "all"])
@pytest.mark.parametrize("layers", ["multi_scale", "distance"])
def test_encoders_of_other_layers_are_trained_below_the_heads_alone(checkpoint, layers, levels):
    make_translation(checkpoint, encoder_layer_type=layers)
    check_training(checkpoint, levels)


@pytest.mark.parametrize("frozen", [True, False])
def test_the_encoder_is_trained_unless_frozen(checkpoint, frozen):
    make_translation(checkpoint)
    net = build(translation_checkpoint=str(checkpoint), freeze_encoder=frozen)
    words = make_input(make_words(*[5] * 20)), make_input(make_words(*[4] * 20, seed=3), prefix="pair")
    net(**words[0], **words[1]).logits.square().sum().backward()
    assert [name for name, p in net.named_parameters() if p.requires_grad and p.grad is None] == []
    trained = [name for name, p in net.named_parameters() if p.requires_grad and name.startswith("encoder.")]
    assert bool(trained) != frozen


@torch.no_grad()
def test_a_checkpoint_needs_no_translation_model_any_more(checkpoint):
    make_translation(checkpoint)
    flags = Namespace(
        _name="head_wise_match_translation", arch="head_wise_match_translation", translation_checkpoint=str(checkpoint)
    )
    task = make_task(pairs=True, source_dictionary=make_dictionary(SYMBOLS))
    net = build_model(flags, task).eval()
    checkpoint.unlink()
    assert json.loads(net.remembered["translation_flags"])["_name"] == "muse"
    again = build_model(
        Namespace(**vars(flags), **net.remembered), make_task(**{**vars(task), "loads_checkpoint": True})
    ).eval()
    again.load_state_dict(net.state_dict())
    (sentence,) = make_words(6)
    assert torch.equal(again.represent(**make_input([sentence])), net.represent(**make_input([sentence])))


def test_another_dictionary_is_refused(checkpoint):
    make_translation(checkpoint)
    task = make_task(pairs=True, source_dictionary=make_dictionary(SYMBOLS + 8))
    sentence = (
        "the data must have the dictionary of the translation model's source language, of 20 entries, but theirs has "
        f"28; binarise them with that model's dict.txt ({checkpoint})."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        build(task=task, translation_checkpoint=str(checkpoint))


def test_what_is_no_translation_checkpoint_of_this_package_is_refused(checkpoint):
    with pytest.raises(FileNotFoundError, match=r"^--translation-checkpoint must name a checkpoint, but there is no"):
        build(translation_checkpoint=str(checkpoint))
    checkpoint.write_bytes(b"no checkpoint")
    with pytest.raises(ValueError, match=r"^--translation-checkpoint must name a checkpoint of fairseq, but reading"):
        build(translation_checkpoint=str(checkpoint))
    write_checkpoint(checkpoint, {}, {"_name": "transformer"})
    with pytest.raises(ValueError, match=r"must be of a translation model of this package, such as muse, but"):
        build(translation_checkpoint=str(checkpoint))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({}, "--arch head_wise_match_translation needs --translation-checkpoint"),
        (
            {"translation_flags": '{"_name": "lstm"}'},
            "a checkpoint of head_wise_match_translation must hold the flags of its",
        ),
    ],
)
def test_flags_without_a_model_are_refused(flags, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        build(**flags)
