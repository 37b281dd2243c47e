"""Every sentence model on a GPU, where recurrent networks read packed sentences, against the same model on the CPU."""

import copy

import pytest
from fairseq import utils
from support.helpers import assert_close
from support.sentence_models import VARIANTS, build, make_input, make_sentences

pytestmark = pytest.mark.gpu


def differentiate(net, inputs):
    """Logits (B, outputs) of a batch, and the gradients of their squares by the name of the parameter."""
    net.zero_grad()
    logits = net(**inputs).logits
    logits.square().sum().backward()
    gradients = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
    return logits.detach().cpu(), {name: gradient.cpu() for name, gradient in gradients.items()}


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_and_gradients_are_those_of_the_cpu(variant, cuda):
    flags = {"weight_dropout": 0.0} if "muse" in variant else {}  # other variants have no dropout
    here = build(**VARIANTS[variant], **flags).double().train()  # cuDNN has gradients in training alone
    there = copy.deepcopy(here).to(cuda)
    inputs = make_input(make_sentences(7, 1, 4, 9), **({"characters": True} if "character" in variant else {}))
    logits, gradients = differentiate(here, inputs)
    other_logits, other_gradients = differentiate(there, utils.move_to_cuda(inputs))
    assert_close(other_logits, logits, atol=1e-9)
    assert other_gradients.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert_close(other_gradients[name], gradient, atol=1e-8, why=name)
