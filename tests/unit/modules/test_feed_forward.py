"""The feed-forward branch: by hand, on its own slice and on the shared values."""

import torch
from support.helpers import assert_close

from muse_plugin.modules.branch import LayerContext
from muse_plugin.modules.feed_forward import FeedForward


def test_hidden_layer_by_hand():
    branch = FeedForward(2, 3, torch.relu)
    hidden = torch.tensor([[[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0]]])
    out = branch({"ffn_hidden": hidden}, LayerContext(length=2))
    assert out.tolist() == [[[1.0, 0.0, 3.0], [0.0, 5.0, 0.0]]]


def test_own_projection_is_of_the_hidden_width_and_neither_noisy_nor_cached():
    branch = FeedForward(8, 24, torch.relu)
    (slice_,) = branch.projections
    assert (slice_.name, slice_.size, slice_.noisy, slice_.cached) == ("ffn_hidden", 24, False, False)
    assert branch.output_size == 24


def test_shared_projection_reads_the_values_and_has_the_width_of_the_model():
    branch = FeedForward(8, 24, torch.relu, reads="value")
    (slice_,) = branch.projections
    assert (slice_.name, slice_.size, slice_.noisy, slice_.cached) == ("value", 8, True, True)
    assert branch.output_size == 8
    values = torch.randn(2, 5, 8)
    assert_close(branch({"value": values}, LayerContext(length=5)), values.relu(), atol=0, rtol=0)


def test_it_reads_the_projection_of_a_convolution_by_name():
    branch = FeedForward(8, 24, torch.relu, reads="conv_value")
    values = torch.randn(2, 5, 8)
    both = {"value": torch.randn(2, 5, 8), "conv_value": values}
    assert_close(branch(both, LayerContext(length=5)), values.relu(), atol=0, rtol=0)


def test_shared_projection_with_history_returns_the_new_positions_only():
    branch = FeedForward(8, 24, torch.relu, reads="value")
    values = torch.randn(2, 5, 8)
    assert_close(branch({"value": values}, LayerContext(length=2)), values[:, 3:].relu(), atol=0, rtol=0)


def test_activation_is_the_one_that_was_given():
    hidden = torch.randn(2, 5, 24)
    branch = FeedForward(8, 24, torch.nn.functional.gelu)
    expected = torch.nn.functional.gelu(hidden)
    assert_close(branch({"ffn_hidden": hidden}, LayerContext(length=5)), expected, atol=0, rtol=0)


def test_activation_dropout_drops_hidden_units_in_training_only():
    branch = FeedForward(8, 24, torch.relu, activation_dropout=0.5)
    hidden = torch.ones(4, 50, 24)
    out = branch.train()({"ffn_hidden": hidden}, LayerContext(length=50))
    assert set(out.unique().tolist()) == {0.0, 2.0}
    assert 0.45 < (out == 0).float().mean() < 0.55
    assert_close(branch.eval()({"ffn_hidden": hidden}, LayerContext(length=50)), hidden, atol=0, rtol=0)


def test_it_has_no_parameters_of_its_own():
    assert list(FeedForward(8, 24, torch.relu).parameters()) == []
