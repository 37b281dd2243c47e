"""Registers a named size of a model: ``--arch NAME``."""

from collections.abc import Mapping
from dataclasses import make_dataclass
from typing import Any

from fairseq.models import ARCH_CONFIG_REGISTRY, register_model

from muse_plugin.contracts.flag import inherit_flags


def register_preset(name: str, base: Any, settings: Mapping[str, Any], module: dict[str, Any]) -> None:
    """Registers a model whose config has ``settings`` as its defaults.

    A model of its own, not only an architecture name: fairseq's hydra front end looks up defaults by model.

    Args:
        name: for ``--arch``.
        base: the model class, with ``config_class``.
        settings: flags by name and their values.
        module: ``globals()`` of the file of the preset, where pickle will look for the classes.
    """
    changed = [(key, kind, default) for key, (kind, default) in inherit_flags([base.config_class], settings).items()]
    # Named and kept in that module, so that pickle finds them again: muse_tiny -> MuseTiny, MuseTinyConfig.
    class_name = "".join(part.capitalize() for part in name.split("_"))
    namespace = {"__module__": module["__name__"], "__doc__": base.__doc__}
    config_class = make_dataclass(f"{class_name}Config", changed, bases=(base.config_class,), namespace=namespace)
    model_class = type(class_name, (base,), {**namespace, "config_class": config_class})
    module.update({config_class.__name__: config_class, class_name: model_class})
    register_model(name, dataclass=config_class)(model_class)

    def fill(args: Any) -> None:
        for key, value in settings.items():
            if not hasattr(args, key):
                setattr(args, key, value)

    ARCH_CONFIG_REGISTRY[name] = fill
