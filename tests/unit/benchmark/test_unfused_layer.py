"""The plain form of the layer against the fused one: the same numbers from the same parameters."""

import pytest
import torch
from support.helpers import assert_close
from support.muse_models import build

from muse_plugin.benchmark.unfused_layer import unfuse_

# float32, sums in another order; logits are of size 4.
ATOL = 2e-5
FLAGS = {
    "muse": {},
    "muse_simple": {"model": "muse_simple"},
    "one_size": {"encoder_kernel_sizes": "5", "decoder_kernel_sizes": "4"},
    "separate_projection": {"encoder_conv_projection": "separate", "decoder_conv_projection": "separate"},
    "normalize_before": {"encoder_normalize_before": True, "decoder_normalize_before": True},
}


def make_batch():
    source, previous = torch.randint(4, 20, (3, 9)), torch.randint(4, 20, (3, 7))
    source[1, 6:] = source[2, 2:] = 1
    previous[1, 5:] = 1
    return source, previous


@pytest.mark.parametrize("name", FLAGS)
def test_scores_and_gradients_are_those_of_the_fused_form(name):
    source, previous = make_batch()
    results = []
    for make in (lambda model: model, unfuse_):
        model = make(build(**{"weight_dropout": 0.0, **FLAGS[name]})).train()
        parameters = dict(model.named_parameters())
        scores, _ = model(source, None, previous)
        real = scores[previous != 1]
        real.logsumexp(-1).sum().backward()
        gradients = {key.replace("layer.", ""): p.grad for key, p in parameters.items()}
        results.append((real.detach(), gradients))
    (fused, fused_gradients), (plain, plain_gradients) = results
    assert_close(plain, fused, atol=ATOL)
    fused_gradients = {key.replace("layer.", ""): value for key, value in fused_gradients.items()}
    assert set(plain_gradients) == set(fused_gradients)
    for key, value in fused_gradients.items():
        assert_close(plain_gradients[key], value, atol=1e-4, rtol=1e-4, why=key)


def test_it_is_plain(monkeypatch):
    """No fused product, no kernel of PyTorch for attention, no back end but the reference."""
    from muse_plugin.modules import parallel_layer
    from muse_plugin.ops import dynamic_conv as op

    used = []
    run = op._run
    monkeypatch.setattr(op, "_run", lambda backend, *rest: used.append(backend) or run(backend, *rest))
    monkeypatch.setattr(parallel_layer.ParallelLayer, "forward", None)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", None)
    model = unfuse_(build())
    source, previous = make_batch()
    model(source, None, previous)
    sizes = [len(layer.layer.branches["conv"].kernel_sizes) for layer in (*model.encoder.layers, *model.decoder.layers)]
    assert used == ["reference"] * sum(sizes)


def test_dropout_acts_in_training():
    model = unfuse_(build(dropout=0.3)).train()
    source, previous = make_batch()
    assert not torch.equal(model(source, None, previous)[0], model(source, None, previous)[0])
