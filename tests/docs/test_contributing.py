"""The branch that CONTRIBUTING.md writes as an example works as it says."""

import re
import textwrap

import torch
from support.helpers import REPOSITORY, assert_close

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
    whole, _ = layer(x, causal=True)
    cache = LayerCache()
    steps = [layer(x[i : i + 1], cache=cache, causal=True)[0] for i in range(5)]
    assert_close(torch.cat(steps), whole, atol=1e-5)
    changed = x.clone()
    changed[3] += 1
    assert torch.equal(layer(changed, causal=True)[0][:3], whole[:3])
    assert not torch.equal(layer(changed, causal=True)[0][4], whole[4])
