"""The branch that CONTRIBUTING.md writes as an example works as it says."""

import re
import textwrap

import torch
from support import muse_models, sentence_models
from support.helpers import REPOSITORY, assert_close
from support.layers import run_layer

from muse_plugin.models import layer_builder
from muse_plugin.modules.feed_forward import FeedForward
from muse_plugin.modules.layer_cache import LayerCache
from muse_plugin.modules.parallel_layer import ParallelLayer


@torch.no_grad()
def test_example_branch_decodes_step_by_step_as_in_one_pass():
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^ +```python\n(.*?)^ +```", text, re.MULTILINE | re.DOTALL)
    names: dict = {}
    exec(textwrap.dedent(code), names)
    layer = ParallelLayer(8, {"running_mean": names["RunningMean"](8), "ffn": FeedForward(8, 16, torch.relu)}).eval()
    x = torch.randn(5, 2, 8)
    whole, _ = run_layer(layer, x, causal=True)
    cache = LayerCache()
    steps = [run_layer(layer, x[i : i + 1], cache=cache, causal=True)[0] for i in range(5)]
    assert_close(torch.cat(steps), whole, atol=1e-5)
    changed = x.clone()
    changed[3] += 1
    assert torch.equal(run_layer(layer, changed, causal=True)[0][:3], whole[:3])
    assert not torch.equal(run_layer(layer, changed, causal=True)[0][4], whole[4])


def test_example_line_adds_the_branch_to_translation_and_sentence_models(monkeypatch):
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^ +```python\n(.*?)^ +```", text, re.MULTILINE | re.DOTALL)
    (line,) = re.findall(r"^ +`(\"running_mean\": .*),`$", text, re.MULTILINE)
    names: dict = {"BranchKind": layer_builder.BranchKind}
    exec(textwrap.dedent(code), names)
    exec(f"line = {{{line}}}", names)
    for name, kind in names["line"].items():
        monkeypatch.setitem(layer_builder.BRANCHES, name, kind)
    translation = muse_models.build(decoder_branches="self_attention,conv,running_mean,cross_attention,ffn")
    sentence = sentence_models.build("sentence_muse", encoder_branches="self_attention,conv,running_mean,ffn")
    for layer in [*translation.decoder.layers, *sentence.encoder.layers]:
        assert isinstance(layer.branches["running_mean"], names["RunningMean"])
    _, _, source, previous = muse_models.make_pair()
    before = muse_models.logits_of(translation.eval(), source, previous)
    batch = sentence_models.make_input(sentence_models.make_sentences(5, 2))
    assert sentence.eval()(**batch).logits.isfinite().all()
    later = previous.clone()
    later[:, -1] = 5
    assert torch.equal(muse_models.logits_of(translation, source, later)[:, :-1], before[:, :-1])
