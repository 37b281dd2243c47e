"""What users of fairseq's Transformer ask of a model: dropout in generation, alignments, pruning, refused flags."""

import re
from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy_with_alignment import (
    LabelSmoothedCrossEntropyCriterionWithAlignment,
)
from support.helpers import assert_close
from support.muse_models import (
    PAD,
    VARIANTS,
    both,
    build,
    build_from_config,
    faults_of,
    lengths_of,
    logits_of,
    make_config,
    make_pair,
    make_task,
)

from muse_plugin.models.muse_config import MuseConfig
from muse_plugin.modules.parallel_layer import ParallelLayer
from muse_plugin.modules.retained_dropout import RetainsDropout

DROPOUTS = {
    "branch_dropout": "ParallelLayer",
    "input_dropout": "ParallelLayer",
    "attention_dropout": "SelfAttention",
    "activation_dropout": "FeedForward",
    "weight_dropout": "DynamicConv",
}


def generating(modules=None, retain=True, **flags):
    """A model as ``--retain-dropout [--retain-dropout-modules ...]`` prepares it, without any other dropout."""
    net = build(**{**dict.fromkeys(DROPOUTS, 0.0), **flags})
    net.make_generation_fast_(retain_dropout=retain, retain_dropout_modules=modules)
    return net


def differ(net):
    """Whether two passes over the same sentences give other numbers."""
    _, _, source, previous = make_pair()
    with torch.no_grad():
        return not torch.equal(logits_of(net, source, previous), logits_of(net, source, previous))


# ---- dropout in generation ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dropout", DROPOUTS)
def test_each_kind_of_dropout_stays_on_when_it_is_retained(dropout):
    assert differ(generating(**{dropout: 0.5}))
    assert not differ(generating(**{dropout: 0.5}, retain=False))


def test_cross_attention_and_static_convolutions_retain_theirs():
    assert differ(generating(["CrossAttention"], attention_dropout=0.5))
    assert differ(generating(["StaticConv"], weight_dropout=0.5, **both(conv_type="depthwise")))


@pytest.mark.parametrize(("dropout", "module"), DROPOUTS.items())
def test_named_modules_alone_retain_theirs(dropout, module):
    assert differ(generating([module], **{dropout: 0.5}))
    assert not differ(generating(["LightweightConv"], **{dropout: 0.5}))


@pytest.mark.parametrize("kind", ["multi_scale", "distance"])
def test_other_layers_of_an_encoder_retain_theirs(kind):
    """The decoder has no dropout of its own here."""
    chosen = {"multi_scale": "MultiScaleLayer", "distance": "FusionGate"}[kind]
    flags = {**VARIANTS[f"{kind}_layers"], "branch_dropout": 0.5, "decoder_branch_dropout": 0.0}
    for modules, retains in ((None, True), ([chosen], True), (["LightweightConv"], False)):
        net = generating(modules, **flags)
        _, _, source, _ = make_pair()
        with torch.no_grad():
            first, second = (net.encoder(source, lengths_of(source))["encoder_out"][0] for _ in range(2))
        assert torch.equal(first, second) != retains


def test_retained_dropout_is_that_of_training():
    net = generating(**dict.fromkeys(DROPOUTS, 0.4))
    layers = [module for module in net.modules() if isinstance(module, ParallelLayer)]
    assert all(layer.packed is None for layer in layers)
    assert all(module.drops for module in net.modules() if isinstance(module, RetainsDropout))
    _, _, source, previous = make_pair()
    with torch.no_grad():
        torch.manual_seed(7)
        retained = logits_of(net, source, previous)
        trained = build(**dict.fromkeys(DROPOUTS, 0.4)).train()
        torch.manual_seed(7)
        assert_close(retained, logits_of(trained, source, previous), atol=1e-5)


def test_without_dropout_in_it_a_layer_has_its_form_for_inference():
    net = generating(["FairseqDropout"], dropout=0.5)
    assert all(module.packed is not None for module in net.modules() if isinstance(module, ParallelLayer))


# ---- word alignments ----------------------------------------------------------------------------------------------


def build_supervised(**flags):
    """A model whose task has loaded alignments."""
    task = make_task()
    task.cfg = SimpleNamespace(load_alignments=True)
    config = make_config(**flags)
    torch.manual_seed(3)
    return build_from_config(config, task)


def alignment_loss(net):
    """The loss of fairseq's criterion for three links of the first and second sentence."""
    _, _, source, previous = make_pair()
    out = net(source, lengths_of(source), previous)
    width = previous.shape[1]
    start = int(source[0].eq(PAD).sum())
    links = torch.tensor([[start, 0], [start + 1, 1], [source.shape[1] - 1, width]])
    sample = {"alignments": links, "align_weights": torch.ones(3)}
    return LabelSmoothedCrossEntropyCriterionWithAlignment.compute_alignment_loss(None, sample, out)


@pytest.mark.parametrize(("layer", "supervised"), [(None, 2), (0, 0), (1, 1)])
def test_alignments_supervise_the_cross_attention_of_one_layer(layer, supervised):
    net = build_supervised(**both(layers=3), alignment_layer=layer).train()
    alignment_loss(net).backward()
    for number, part in enumerate(net.decoder.layers):
        # What is in front of the supervised layer gets gradients; its own output and what follows does not.
        gradient = part.out_proj_weight.grad
        assert (gradient is None or not gradient.any()) == (number >= supervised)
        queries = part.branches["cross_attention"].key_value_proj.weight.grad
        assert (queries is not None and bool(queries.any())) == (number <= supervised)


def test_alignments_supervise_fairseqs_decoder_whose_layer_it_chooses():
    net = build_supervised(decoder_layer_type="fairseq").train()
    alignment_loss(net).backward()
    assert net.decoder.layers[-1].encoder_attn.k_proj.weight.grad.any()
    for flag in ("alignment_layer", "alignment_heads"):
        with pytest.raises(
            ValueError, match=f"--{flag.replace('_', '-')} has no effect with --decoder-layer-type fairseq"
        ):
            build(decoder_layer_type="fairseq", **{flag: 1})


def test_alignments_supervise_the_first_heads():
    net = build_supervised(alignment_heads=1).train()
    alignment_loss(net).backward()
    layer = net.decoder.layers[-1]
    keys = layer.branches["cross_attention"].key_value_proj.weight.grad[: layer.embed_dim]
    first, second = keys.chunk(2)
    assert first.any()
    assert not second.any()


def test_generation_reads_the_supervised_layer_and_heads():
    net = build(**both(layers=3), alignment_layer=1, alignment_heads=1).eval()
    _, _, source, previous = make_pair()
    with torch.no_grad():
        attention = net(source, lengths_of(source), previous)[1]["attn"][0]
        encoded = net.encoder(source, lengths_of(source))
        expected = net.decoder(previous, encoded, alignment_layer=1, alignment_heads=1)[1]["attn"][0]
        last = net.decoder(previous, encoded, alignment_layer=2, alignment_heads=1)[1]["attn"][0]
    assert_close(attention, expected, atol=0, rtol=0)
    assert not torch.allclose(attention, last)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            {"alignment_layer": 2},
            "--alignment-layer must be one of the decoder's layers 0, 1, but got 2; change it, or leave it out for the "
            "last.",
        ),
        (
            {"alignment_layer": 0, "decoder_layers_to_keep": "1"},
            "--alignment-layer must be one of the decoder's layers 1, but got 0; change it, or leave it out for the "
            "last.",
        ),
        (
            {"alignment_heads": 3},
            "--alignment-heads must lie between 1 and the 2 heads of --decoder-attention-heads, but got 3; change one "
            "of them.",
        ),
        (
            {"alignment_heads": 0},
            "--alignment-heads must lie between 1 and the 2 heads of --decoder-attention-heads, but got 0; change one "
            "of them.",
        ),
    ],
)
def test_alignments_of_layers_and_heads_that_are_not_there_are_refused(flags, sentence):
    assert faults_of(**flags) == [sentence]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            {"decoder_branches": "self_attention,ffn"},
            "--load-alignments supervises cross-attention, but got --decoder-branches self_attention,ffn without it; "
            "add cross_attention or drop the flag.",
        ),
        (
            {"decoder_layerdrop": 0.5},
            "--load-alignments supervises one layer in every update, but got --decoder-layerdrop 0.5, which leaves "
            "layers out; drop one of them.",
        ),
    ],
)
def test_alignments_without_a_layer_to_supervise_are_refused(flags, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        build_supervised(**flags)


# ---- pruning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_one_side_alone_can_be_pruned(side):
    flags = {**both(layers=3), "alignment_layer": 2}
    full = build(**flags)
    config = make_config(**flags, **{f"{side}_layers_to_keep": "0,2"})
    pruned = build_from_config(config)
    pruned.load_state_dict(full.state_dict(), model_cfg=config)
    other = "decoder" if side == "encoder" else "encoder"
    kept = {side: (0, 2), other: (0, 1, 2)}
    for name, numbers in kept.items():
        layers = getattr(pruned, name).layers
        assert len(layers) == len(numbers)
        for layer, number in zip(layers, numbers, strict=True):
            for key, tensor in getattr(full, name).layers[number].state_dict().items():
                assert_close(layer.state_dict()[key], tensor, atol=0, rtol=0)
    assert (config.encoder_layers_to_keep, config.decoder_layers_to_keep) == (None, None)
    assert (getattr(config, f"{side}_layers"), getattr(config, f"{other}_layers")) == (2, 3)
    assert config.alignment_layer == pruned.decoder.alignment_layer == (1 if side == "decoder" else 2)
    again = build_from_config(config)
    again.load_state_dict(pruned.state_dict(), model_cfg=config)


# ---- flags of fairseq's Transformer ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_normalised_first", [True, False])
def test_the_last_norm_of_the_decoder_can_be_left_out(is_normalised_first):
    norms = both(normalize_before=is_normalised_first)
    names = {name for name in build(**norms).state_dict() if name.startswith("decoder.layer_norm")}
    assert bool(names) == is_normalised_first
    without = build(**norms, no_decoder_final_norm=True)
    assert build(**norms).state_dict().keys() - without.state_dict().keys() == names
    assert not differ(without.eval())


@pytest.mark.parametrize("flag", ["quant_noise_pq", "quant_noise_scalar"])
def test_noise_of_quantisation_is_refused(flag):
    assert faults_of(**{flag: 0.1}) == [
        f"--{flag.replace('_', '-')} is refused, since the matrices of all branches of a layer are slices of one "
        "parameter, which has no blocks to quantise, but got 0.1; drop it, or generate with 8-bit weights by "
        "--int8-inference."
    ]


def test_merged_dictionaries_are_refused():
    assert faults_of(merge_src_tgt_embed=True) == [
        "--merge-src-tgt-embed is refused, since fairseq merges the dictionaries when the data are binarised already, "
        "so that target words would get vectors of other words; preprocess with --joined-dictionary and use "
        "--share-all-embeddings."
    ]


def test_checkpoints_without_the_new_flags_load():
    config = make_config()
    for name in ("alignment_layer", "alignment_heads", "quant_noise_pq", "quant_noise_scalar", "merge_src_tgt_embed"):
        assert hasattr(MuseConfig, name)
        del config[name]
    build_from_config(config)


@pytest.mark.parametrize("part", ["model", "encoder", "decoder"])
def test_torchscript_is_refused_in_one_sentence(part):
    net = build()
    with pytest.raises(NotImplementedError, match=r"^torch\.jit\.script cannot compile a parallel layer: .*; run the"):
        torch.jit.script(net if part == "model" else getattr(net, part))
