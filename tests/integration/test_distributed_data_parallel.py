"""PyTorch's default distributed training works: every parameter takes part in every update."""

import pytest
import torch
from support.reference import NAMES, load_reference
from torch.nn.parallel import DistributedDataParallel


@pytest.fixture
def one_process_group(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("name", NAMES)
def test_no_parameter_is_left_without_a_gradient(name, one_process_group):
    reference = load_reference(name)
    model = DistributedDataParallel(reference.converted_model().train())
    batch = reference.batch("padded")
    inputs = [batch[key] for key in ("src_tokens", "src_lengths", "prev_output_tokens")]
    for _ in range(2):  # an unused parameter is reported by the forward pass after it
        model(*inputs)[0].float().pow(2).mean().backward()


def test_an_unused_parameter_would_be_noticed(one_process_group):
    model = load_reference(NAMES[0]).converted_model().train()
    model.unused = torch.nn.Parameter(torch.zeros(1))
    batch = load_reference(NAMES[0]).batch("padded")
    inputs = [batch[key] for key in ("src_tokens", "src_lengths", "prev_output_tokens")]
    parallel = DistributedDataParallel(model)
    parallel(*inputs)[0].float().pow(2).mean().backward()
    with pytest.raises(RuntimeError, match="Expected to have finished reduction"):
        parallel(*inputs)
