"""fairseq's own R-Drop (Liang et al. 2021, arXiv:2106.14448) works with MUSE: two passes that differ by dropout."""

import pytest
import torch
from support.helpers import assert_close

NAME = "label_smoothed_cross_entropy_with_rdrop"
PAD = 1
ALPHA, SMOOTHING = 5.0, 0.1


def by_definition(model, sample, prefix):
    """Of two noisy passes in one batch: CE(p) + CE(q) + alpha * (KL(p || q) + KL(q || p)) / 2, that divergence, and the
    mean of their negative log-likelihoods; all from the position ``prefix`` on."""
    doubled = {name: torch.cat([tokens, tokens]) for name, tokens in sample["net_input"].items()}
    p, q = model(**doubled)[0].log_softmax(-1).chunk(2)
    target = sample["target"]
    real = target.ne(PAD)
    real[:, :prefix] = False
    wanted = torch.full_like(p, SMOOTHING / (p.shape[-1] - 1)).scatter(-1, target.unsqueeze(-1), 1 - SMOOTHING)
    ce = -(wanted * (p + q)).sum(-1)[real].sum()
    kl = ((p.exp() - q.exp()) * (p - q)).sum(-1)[real].sum() / 2
    nll = -((p + q) / 2).gather(-1, target.unsqueeze(-1)).squeeze(-1)[real].sum()
    return ce + ALPHA * kl, kl, nll


@pytest.mark.parametrize("arch", ["muse_tiny", "muse_simple_tiny"])
@pytest.mark.parametrize(("dropout", "prefix"), [(0.0, 0), (0.3, 0), (0.3, 2)])
def test_loss_of_muse_is_that_of_the_definition(arch, dropout, prefix, make_model, make_sample, make_criterion):
    model, sample = make_model(arch, f"--dropout={dropout}"), make_sample()
    torch.manual_seed(3)
    expected, kl, nll = by_definition(model, sample, prefix)
    settings = {"rdrop_alpha": ALPHA, "label_smoothing": SMOOTHING, "ignore_prefix_size": prefix}
    criterion = make_criterion(NAME, **settings)
    torch.manual_seed(3)
    loss, sample_size, log = criterion(model, sample)
    assert_close(loss, expected, atol=1e-4, why="sums over the batch, around 100")
    assert log["rdrop_kl_loss"] == pytest.approx(float(kl), abs=1e-4)
    assert_close(
        log["nll_loss"], nll, atol=1e-4, rtol=0, why="a sum as above; thanks to ``fairseq_repairs/rdrop_losses.py``"
    )
    assert (kl > 0.01) == (dropout > 0)
    assert (sample_size, criterion.ignore_prefix_size) == (15, prefix)
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_evaluation_is_the_plain_criterion_to_the_bit(make_model, make_sample, make_criterion):
    """Thanks to ``fairseq_repairs/rdrop_losses.py``."""
    model, sample = make_model().eval(), make_sample()
    criterion = make_criterion(NAME, rdrop_alpha=ALPHA, report_accuracy=True)
    results = [make_criterion("label_smoothed_cross_entropy", report_accuracy=True)(model, sample)]
    results.append(criterion(model, sample))
    assert str(results[0]) == str(results[1])
    assert criterion.rdrop_alpha == ALPHA
    assert len(sample["net_input"]["src_tokens"]) == 4
