"""Registers models under the name that ``--arch`` takes, each with a config class, whose fields are its flags."""

from collections.abc import Callable, Mapping
from dataclasses import make_dataclass
from typing import Any, TypeVar

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import (
    MODEL_DATACLASS_REGISTRY,
    MODEL_REGISTRY,
    register_model,
    register_model_architecture,
)
from hydra.core.config_store import ConfigNode, ConfigStore
from omegaconf import DictConfig, OmegaConf

from muse_plugin.contracts.flag import inherit_flags

Model = TypeVar("Model", bound=type)


def register(name: str, config_class: type) -> Callable[[Model], Model]:
    """Registers a model, which finds its config as ``config_class``.

    Presets have its flags: fairseq makes a switch that is on by default switch off when it is given.
    """

    def add_args(cls: type, parser: Any) -> None:
        gen_parser_from_dataclass(parser, config_class(), delete_default=True)  # presets fill what is not given

    def add(model: Model) -> Model:
        model.config_class, model.add_args = config_class, classmethod(add_args)
        return register_model(name, dataclass=config_class)(model)

    return add


def register_preset(
    name: str, base: str, settings: Mapping[str, Any], module: dict[str, Any], suffix: str = ""
) -> None:
    """Registers a model that differs from another in the defaults of flags alone.

    A model of its own, not only an architecture name: fairseq's hydra front end looks up defaults by model.

    Args:
        name: for ``--arch``.
        base: name of the other model.
        settings: flags by name and their values.
        module: ``globals()`` of the file of the preset, where pickle will look for the classes.
        suffix: ends the name of the class; caches of vectors know it.
    """
    parent: Any = MODEL_REGISTRY[base]
    changed = [(key, kind, default) for key, (kind, default) in inherit_flags([parent.config_class], settings).items()]
    # Named and kept in that module, so that pickle finds them again: muse_tiny -> MuseTiny, MuseTinyConfig.
    class_name = "".join(part.capitalize() for part in name.split("_"))
    namespace = {"__module__": module["__name__"], "__doc__": parent.__doc__}
    config_class = make_dataclass(
        # Its fields are those of the parent, whose other methods serve it; to make them takes most of the time.
        f"{class_name}Config",
        changed,
        bases=(parent.config_class,),
        namespace=namespace,
        repr=False,
        eq=False,
    )
    config_class.__module__ = module["__name__"]  # which Python 3.12 takes from here instead of the namespace
    model_class = type(class_name + suffix, (parent,), {**namespace, "config_class": config_class})
    module.update({config_class.__name__: config_class, model_class.__name__: model_class})

    def fill(args: Any) -> None:
        vars(args).update({key: value for key, value in settings.items() if not hasattr(args, key)})

    # What register_model does with a dataclass, but hydra's form of it is made when it is asked for.
    register_model(name)(model_class)
    setattr(model_class, "__dataclass", MODEL_DATACLASS_REGISTRY.setdefault(name, config_class))
    register_model_architecture(name, name)(fill)
    node = ConfigNode(f"{name}.yaml", _LaterConfig(config_class, name), "model", None, "muse_plugin")
    ConfigStore.instance().repo["model"][node.name] = node


class _LaterConfig:
    """A config that is made when it is copied alone: hydra copies its whole store first, then the config it needs.

    To make all of them takes half a second of every command's start.
    """

    def __init__(self, config_class: type, name: str) -> None:
        self._config_class, self._name = config_class, name

    def __deepcopy__(self, copied: dict[int, Any]) -> "DictConfig | _LaterConfig":
        if copied:  # as a part of the store
            return self
        config = self._config_class()
        config._name = self._name
        return OmegaConf.structured(config)
