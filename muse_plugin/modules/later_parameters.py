"""Finds the parameters that outputs of heads do not depend on, from where the heads are in their encoder.

The parts of a module run in the order in which they are registered; a module of which that is not so says what comes
later in ``parameters_after``.
"""

from __future__ import annotations

from torch import nn

from muse_plugin.modules.attends import HeadSource


def find_later(encoder: nn.Module, source: HeadSource) -> list[nn.Parameter]:
    """The parameters of an encoder that are above the heads of one of its ``find_head_sources``, or next to them."""
    path = next(name for name, module in encoder.named_modules() if module is source.module).split(".")
    later = list(source.module.parameters()) if source.is_input else []
    module = encoder
    for depth, name in enumerate(path):
        if hasattr(module, "parameters_after"):
            later += module.parameters_after(path[depth:])  # type: ignore[operator]
        names = list(module._modules)
        for other in [] if hasattr(module, "parameters_after") else names[names.index(name) + 1 :]:
            part = module._modules[other]
            later += [] if part is None else part.parameters()
        module = getattr(module, name)
    return later
