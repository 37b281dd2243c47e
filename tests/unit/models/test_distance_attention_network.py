"""The Distance-based Self-Attention Network and DiSAN: sizes as published, what either direction sees, and flags."""

import pytest
import torch
from fairseq.models import MODEL_REGISTRY
from support.sentence_models import SYMBOLS, build, build_preset, faults_of, make_input, make_sentences, make_task
from torch import nn

from muse_plugin.models.sentence_config import SentenceModelConfig
from muse_plugin.modules.attention_bias import Direction, DistancePenalty
from muse_plugin.modules.directional_attention import DirectionalAttention
from muse_plugin.modules.distance_attention import DistanceAttentionBlock

DISTANCE, DIRECTIONAL = "distance_attention_network", "directional_attention_network"
NAMES = (DISTANCE, DIRECTIONAL)
LENGTHS = (7, 1, 12, 2)


def build_default(name, **flags):
    """The model as its defaults make it, for pairs in three classes."""
    return build_preset(name, make_task(pairs=True), **flags)


def count(modules):
    """Parameters, each once."""
    return sum(p.numel() for p in {id(p): p for module in modules for p in module.parameters()}.values())


def count_norms(net):
    """Those of layer norms."""
    return count(module for module in net.modules() if isinstance(module, nn.LayerNorm))


# ---- sizes --------------------------------------------------------------------------------------------------------


def test_parameters_are_as_many_as_published():
    """4,686,603 and 2,345,403 without word vectors and layer norms, for pairs in three classes."""
    net = build_default(DISTANCE)
    core = (net.encoder, net.pooling, net.classifier)
    assert [count([part]) for part in core] == [2_524_200 + 6_720, 721_200 + 2_400, 1_441_203]
    # Norms: q, k, v of 60 and four of 300 channels, and that of the output, twice; two of 600 in the pooling.
    assert count_norms(net) == 2 * (3 * 2 * 60 + 5 * 2 * 300) + 2 * 2 * 600 == 9_120
    assert count(core) == 4_686_603 + 9_120 == 4_695_723
    assert net.embedder.projection is None
    bare = build_default(DISTANCE, projection_norms="none")
    assert count_norms(bare) == 2 * 2 * 2 * 300  # those of gate and result in either direction stay
    assert count((bare.encoder, bare.pooling, bare.classifier)) == 4_686_603 + 2_400
    published = build_default(DISTANCE, projection_norms="none", no_block_norms=True)
    assert count((published.encoder, published.pooling, published.classifier)) == 4_686_603
    assert count_norms(published) == 0
    disan = build_default(DIRECTIONAL)
    assert count((disan.encoder, disan.pooling, disan.classifier)) == 2_345_403
    assert count_norms(disan) == 0
    assert disan.embedder.projection is None


def test_the_distance_mask_has_no_parameters():
    assert count([build(DISTANCE)]) == count([build(DISTANCE, distance_alpha=0.0)])


def test_defaults_are_those_of_the_papers():
    for net, blocks, activation, features in (
        (build_default(DISTANCE), DistanceAttentionBlock, nn.ReLU, "product"),
        (build_default(DIRECTIONAL), DirectionalAttention, nn.ELU, "signed_product"),
    ):
        forward, backward = net.encoder.forward_block, net.encoder.backward_block
        assert isinstance(forward, blocks)
        assert isinstance(backward, blocks)
        assert any(isinstance(module, activation) for module in net.classifier)
        assert net.pair_features == features
        width = {DistanceAttentionBlock: 1200, DirectionalAttention: 600}[blocks]
        assert net.represent(**make_input(make_sentences(3, 2))).shape == (2, width)
    config = MODEL_REGISTRY[DISTANCE].config_class()
    assert (config.distance_alpha, config.encoder_attention_heads, config.encoder_ffn_embed_dim) == (1.5, 5, 1200)
    assert (config.embedding_dropout, config.dropout, config.classifier_dropout) == (0.0, 0.1, 0.0)
    config = MODEL_REGISTRY[DIRECTIONAL].config_class()
    assert (config.embedding_dropout, config.dropout, config.classifier_dropout) == (0.25, 0.25, 0.25)


def test_flags_reach_both_directions():
    net = build(DISTANCE, distance_alpha=0.5, dropout=0.2, encoder_ffn_embed_dim=7, encoder_attention_heads=4)
    for block, direction in ((net.encoder.forward_block, "forward"), (net.encoder.backward_block, "backward")):
        side, distance = block.attention.bias.biases
        assert isinstance(side, Direction)
        assert side.directions == (direction,) * 4
        assert side.masks_diagonal
        assert isinstance(distance, DistancePenalty)
        assert distance.first_alphas == (0.5,) * 4
        assert (block.dropout, block.gate.dropout, block.ffn[0].out_features) == (0.2, 0.2, 7)
    assert len(build(DISTANCE, distance_alpha=0.0).encoder.forward_block.attention.bias.biases) == 1
    net = build(DIRECTIONAL, dropout=0.2)
    assert [net.encoder.forward_block.direction, net.encoder.backward_block.direction] == ["forward", "backward"]
    assert [net.encoder.forward_block.dropout, net.encoder.backward_block.dropout] == [0.2, 0.2]


def test_the_norms_of_the_trunk_are_off_unless_asked_for():
    assert str(SentenceModelConfig().projection_norms) == "none"
    for norms in ("none", "all"):
        net = build("sentence_average", pooling="source_to_token", projection_norms=norms)
        assert (count_norms(net.pooling) > 0) == (norms == "all")


def test_norms_that_the_encoder_reads_are_not_said_to_be_without_effect(caplog):
    build(DISTANCE, pooling="max", projection_norms="none")
    assert caplog.messages == []


# ---- what a direction sees ----------------------------------------------------------------------------------------


def states_of(net, *sentences):
    states, _ = net.encode(**make_input(sentences))
    return states.chunk(2, dim=-1)  # forward, backward


@torch.no_grad()
@pytest.mark.parametrize("name", NAMES)
def test_before_pooling_forward_never_sees_later_words_and_backward_never_earlier_ones(name):
    net = build(name).eval()
    (sentence,) = make_sentences(8)
    before = states_of(net, sentence)
    for at in range(8):
        changed = sentence.clone()
        changed[at] = 4 + (changed[at] - 3) % (SYMBOLS - 4)
        after = states_of(net, changed)
        for (old, new), reaches in zip(
            zip(before, after, strict=True), (lambda i, at=at: i >= at, lambda i, at=at: i <= at), strict=True
        ):
            same = (old == new).all(-1)[0].tolist()
            assert same == [not reaches(i) for i in range(8)]


@torch.no_grad()
@pytest.mark.parametrize("name", NAMES)
def test_directions_have_parameters_of_their_own(name):
    net = build(name)
    first, second = net.encoder.forward_block, net.encoder.backward_block
    assert not {id(p) for p in first.parameters()} & {id(p) for p in second.parameters()}
    assert not any(
        torch.equal(p, q) for p, q in zip(first.parameters(), second.parameters(), strict=True) if not (p == 1).all()
    )


# ---- storage and errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_holds_no_masks(name):
    net = build(name, make_task(pairs=True))
    assert set(net.state_dict()) == {key for key, _ in net.named_parameters()}


@pytest.mark.parametrize("alpha", [-1.5, float("nan")])
def test_an_alpha_that_is_no_cost_is_refused(alpha):
    assert faults_of(DISTANCE, distance_alpha=alpha) == [
        f"--distance-alpha must be a finite number of at least 0, but got {alpha}; 0 switches the distance mask off."
    ]


def test_all_faults_are_reported_together():
    first, second = faults_of(DISTANCE, dropout=-1.0, distance_alpha=float("inf"))
    assert first.startswith("--dropout must lie")
    assert second.startswith("--distance-alpha must be")
