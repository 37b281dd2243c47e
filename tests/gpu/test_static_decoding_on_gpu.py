"""CUDA graphs of a decoding step: used, and the same translations as ordinary steps."""

import copy

import pytest
import torch
from support.helpers import assert_close
from support.muse_models import VARIANTS, build, make_batch, make_sentence, search

pytestmark = pytest.mark.gpu
LENGTHS = (40, 33, 9, 7, 5)


def prepared(variant, device, dtype, mode):
    longer = {"static_decoding": mode, "max_source_positions": 300, "max_target_positions": 300}
    net = build(**{**VARIANTS[variant], **longer})
    net = net.eval().to(device, dtype)
    net.make_generation_fast_()
    return net


def translate(net, device, beam=4, lengths=LENGTHS, **options):
    source = make_batch([make_sentence(n, seed=n) for n in lengths], left=True).to(device)
    options = {"max_len_b": 80, **options}
    with torch.no_grad():
        return search([net], source, beam_size=beam, **options)


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v not in ("encoder_ffn_shared", "encoder_without_conv")])
def test_a_graph_gives_the_translations_of_ordinary_steps(variant, cuda):
    net = prepared(variant, cuda, torch.float32, "auto")
    ordinary = translate(prepared(variant, cuda, torch.float32, "never"), cuda)
    for _ in range(2):  # made, and used again
        actual = translate(net, cuda)
        assert net.decoder.packed.steps.captured > 0
        for quick, slow in zip(actual, ordinary, strict=True):
            scores = [torch.stack([h["score"].float() for h in own]) for own in (quick, slow)]
            assert_close(*scores, atol=1e-3)  # other kernels, and TF32 where the user allows it
            assert quick[0]["tokens"].tolist() == slow[0]["tokens"].tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "variant", ["muse", "muse_simple", "plain_transformer", "lightweight", "multi_scale", "distance"]
)
def test_half_precision_gives_scores_near_those_of_float32(variant, dtype, cuda):
    net = prepared(variant, cuda, dtype, "auto")
    whole = prepared(variant, cuda, torch.float32, "never")
    options = {"min_len": 20, "max_len_a": 0, "max_len_b": 20}
    actual, expected = (translate(own, cuda, beam=1, **options) for own in (net, whole))
    assert net.decoder.packed.steps.captured > 0
    for near, exact in zip(actual, expected, strict=True):
        assert torch.isfinite(near[0]["score"])
        assert_close(near[0]["score"].float(), exact[0]["score"].float(), atol=0.3)  # other words may be chosen


def test_graphs_of_all_sizes_share_their_memory(cuda):
    net = prepared("muse", cuda, torch.float32, "auto")
    first = translate(net, cuda, min_len=70)
    again = [translate(copy.deepcopy(net), cuda, min_len=70), translate(net, cuda, min_len=70)]
    assert net.decoder.packed.steps.captured == 2  # histories grow
    translate(net, cuda, lengths=LENGTHS[:2], min_len=70)
    assert net.decoder.packed.steps.captured == 4  # fewer sentences
    again.append(translate(net, cuda, min_len=70))
    for other in again:
        for one, two in zip(first, other, strict=True):
            assert [h["tokens"].tolist() for h in one] == [h["tokens"].tolist() for h in two]
