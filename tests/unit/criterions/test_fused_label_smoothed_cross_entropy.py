"""The fused loss as fairseq uses it: the numbers of fairseq's criterion, for every model that has what it takes."""

import pytest
import torch
from support.helpers import assert_close
from torch import nn

from muse_plugin.criterions.fused_label_smoothed_cross_entropy import NAME

PLAIN = "label_smoothed_cross_entropy"


def gradients_of(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("arch", ["muse_tiny", "muse_simple_tiny", "transformer_tiny"])
@pytest.mark.parametrize("flags", [(), ("--share-all-embeddings",)], ids=["own", "shared"])
def test_loss_gradients_and_log_are_those_of_fairseq(make_model, make_sample, make_criterion, arch, flags):
    model, sample = make_model(arch, *flags), make_sample()
    options = {"label_smoothing": 0.1, "report_accuracy": True, "ignore_prefix_size": 1}
    expected, expected_size, expected_log = make_criterion(PLAIN, **options)(model, sample)
    expected_gradients = gradients_of(model, expected)
    loss, size, log = make_criterion(NAME, **options)(model, sample)
    assert_close(loss, expected, atol=0, rtol=1e-6)
    assert size == expected_size
    assert set(log) == set(expected_log)
    for name, value in expected_log.items():
        assert_close(torch.as_tensor(log[name], dtype=torch.float32), float(value), atol=0, rtol=1e-6, why=name)
    gradients = gradients_of(model, loss)
    assert set(gradients) == set(expected_gradients)
    for name, gradient in gradients.items():
        assert_close(gradient, expected_gradients[name], atol=3e-6, rtol=1e-5, why=name)


def test_longer_padding_changes_nothing(make_model, make_sample, make_criterion):
    model, sample = make_model(), make_sample()
    criterion = make_criterion(NAME)
    loss = criterion(model, sample)[0]
    longer = {**sample, "target": torch.nn.functional.pad(sample["target"], (0, 3), value=1)}
    previous = torch.nn.functional.pad(sample["net_input"]["prev_output_tokens"], (0, 3), value=1)
    longer["net_input"] = {**sample["net_input"], "prev_output_tokens": previous}
    assert_close(criterion(model, longer)[0], loss, atol=0, rtol=1e-6)


def test_per_token_losses_are_left_to_fairseq(make_model, make_sample, make_criterion):
    model, sample = make_model(), make_sample()
    expected = make_criterion(PLAIN)(model, sample, reduce=False)[0]
    assert_close(make_criterion(NAME)(model, sample, reduce=False)[0], expected, atol=0, rtol=0)


def test_the_model_never_computes_all_scores(make_model, make_sample, make_criterion, monkeypatch):
    model, sample = make_model(), make_sample()

    def refuse(features):
        raise AssertionError("the output layer was called")

    monkeypatch.setattr(model.decoder, "output_layer", refuse)
    make_criterion(NAME)(model, sample)[0].backward()
    assert model.decoder.output_projection.weight.grad.abs().sum() > 0


def test_autocast_stays_near_float32(make_model, make_sample, make_criterion):
    model, sample = make_model(), make_sample()
    criterion = make_criterion(NAME)
    exact = criterion(model, sample)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = criterion(model, sample)[0]
    loss.backward()
    assert loss.dtype == torch.float32
    assert abs(loss - exact) < 0.05 * exact


def test_models_without_a_linear_output_projection_are_refused(make_model, make_sample, make_criterion):
    criterion = make_criterion(NAME)
    adaptive = make_model("transformer_tiny", "--adaptive-softmax-cutoff=8,14")
    with pytest.raises(NotImplementedError, match="does not know the adaptive softmax; drop --adaptive-softmax-cutoff"):
        criterion(adaptive, make_sample())
    with pytest.raises(ValueError, match=r"decoder.output_projection is linear, but FConvModel has NoneType; use"):
        criterion(make_model("fconv"), make_sample())
    with pytest.raises(ValueError, match=r"can stop before its output layer .*, which LightConvModel cannot; use"):
        criterion(make_model("lightconv_iwslt_de_en"), make_sample())


def test_models_whose_scores_need_more_than_the_states_are_refused(
    make_model, make_sample, make_criterion, monkeypatch
):
    model = make_model("transformer_tiny")
    monkeypatch.setattr(model.decoder, "output_layer", lambda features, attn, src_tokens: features)
    with pytest.raises(
        ValueError, match=r"output_layer of TransformerDecoderBase also reads attn, src_tokens; use --crit"
    ):
        make_criterion(NAME)(model, make_sample())


def test_a_search_for_unused_parameters_needs_a_shared_output_layer(make_model, make_sample, make_criterion):
    class Wrapper(nn.Module):  # as DistributedDataParallel with --find-unused-parameters
        find_unused_parameters = True

        def __init__(self, module):
            super().__init__()
            self.module, self.decoder = module, module.decoder

        def forward(self, *rest, **named):
            return self.module(*rest, **named)

    criterion = make_criterion(NAME)
    with pytest.raises(NotImplementedError, match="--find-unused-parameters takes it for unused; drop that flag"):
        criterion(Wrapper(make_model("muse_tiny")), make_sample())
    criterion(Wrapper(make_model("muse_tiny", "--share-decoder-input-output-embed")), make_sample())
