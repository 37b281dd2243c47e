"""Kernels as they are shown, applied by slow loops, give what convolutions return; means leave padding out."""

import pytest
import torch
from support import muse_models
from support.helpers import assert_close

from muse_plugin.modules.kernel_weights import MeanKernel, find_kernels, list_offsets, watch_kernels

ATOL = 1e-5  # float32, sums in another order
VARIANTS = ["muse", "lightweight", "no_gate", "even_decoder_kernel", "conv_heads", "long_short_range"]


def run(net, receive, modules):
    *_, source, previous = muse_models.make_pair()
    with watch_kernels(modules, receive):
        net(source, muse_models.lengths_of(source), previous)
    return source, previous


def convolve_slowly(module, values, kernels, real):
    """Each size by itself: (sizes, B, T, C)."""
    batch, length, width = values.shape
    channels = width // module.num_heads
    out = torch.zeros(len(module.kernel_sizes), batch, length, width)
    start = 0
    for number, size in enumerate(module.kernel_sizes):
        for tap, offset in enumerate(list_offsets(module, size)):
            for b in range(batch):
                for t in range(length):
                    s = t + offset
                    if 0 <= s < length and real[b, s]:
                        weights = kernels[b, :, t, start + tap].repeat_interleave(channels)
                        out[number, b, t] += weights * values[b, s]
        start += size
    return out


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
def test_kernels_applied_to_values_are_what_convolutions_return(variant):
    net = muse_models.built(variant)
    modules = find_kernels(net)
    assert len(modules) == 4
    found, calls = {}, {}
    handles = [
        module.register_forward_hook(lambda m, args, output: calls.__setitem__(m, (args, output))) for module in modules
    ]
    source, previous = run(net, lambda number, *seen: found.__setitem__(number, seen), modules)
    for handle in handles:
        handle.remove()
    for number, module in enumerate(modules):
        (projected, _), output = calls[module]
        values = projected[module.projections[0].name]
        kernels, mask = found[number]
        for part in torch.split(kernels, list(module.kernel_sizes), dim=-1):
            assert_close(part.sum(-1), torch.ones(part.shape[:-1]), atol=ATOL)
        real = previous.ne(muse_models.PAD) if module.causal else source.ne(muse_models.PAD)
        assert (mask is None) == module.causal  # a decoder needs no mask
        if mask is not None:
            assert_close(mask, ~real, atol=0, rtol=0)
        slow = convolve_slowly(module, values, kernels, real)
        if module.gate is None:
            expected = torch.cat(list(slow), dim=-1)
        else:
            expected = (slow * module.gate_weights()[:, None, None, None]).sum(0)
        assert_close(output[real], expected[real], atol=ATOL)
    before = dict(found)
    net(source, muse_models.lengths_of(source), previous)
    assert found == before  # watching has ended


@torch.no_grad()
def test_static_convolutions_have_no_kernels_to_show():
    assert find_kernels(muse_models.built("depthwise")) == []


def test_means_are_those_of_a_slow_loop_without_padding():
    module = find_kernels(muse_models.built("even_decoder_kernel").decoder)[0]
    assert module.kernel_sizes == (2, 4)
    mean = MeanKernel(module)
    rows = []
    for batch, length in ((3, 5), (2, 4)):
        kernels = torch.rand(batch, 2, length, 6)
        real = torch.rand(batch, length) < 0.6
        mean.add(kernels, real)
        rows += [kernels[b, :, t] for b in range(batch) for t in range(length) if real[b, t]]
    assert mean.words == len(rows)
    expected = (sum(row.double() for row in rows) / len(rows)).split([2, 4], dim=-1)
    for found, right in zip(mean.means(), expected, strict=True):
        assert_close(found, right, atol=1e-6)


def test_a_mean_of_nothing_is_refused():
    mean = MeanKernel(find_kernels(muse_models.built("muse"))[0])
    with pytest.raises(ValueError, match="a mean kernel needs at least one word, but none was read; give more"):
        mean.means()


def test_offsets_are_centred_in_the_encoder_and_end_at_the_word_in_the_decoder():
    net = muse_models.built("muse")
    assert list_offsets(find_kernels(net.encoder)[0], 3) == [-1, 0, 1]
    assert list_offsets(find_kernels(net.decoder)[0], 3) == [-2, -1, 0]
