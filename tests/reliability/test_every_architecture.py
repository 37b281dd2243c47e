"""Every registered architecture of this package builds from its defaults and survives pickle, copies and checkpoints.

The list is read from fairseq's registry: a new architecture is tested as soon as it is there. One that needs a file,
such as a pretrained encoder, is refused with a sentence and gets what it needs from ``NEEDS``.
"""

import copy
import json
import pickle
from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.dataclass import FairseqDataclass
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY, build_model
from fairseq.models.transformer import TransformerModelBase
from omegaconf import OmegaConf
from support.helpers import assert_close
from support.reference import make_dictionary
from support.sentence_models import make_input, make_sentences, make_task

from muse_plugin.checkpoints.safe_loading import load_checkpoint

SYMBOLS = 30
NAMES = sorted(name for name, model in ARCH_MODEL_REGISTRY.items() if model.__module__.split(".")[0] == "muse_plugin")

# Sizes to which those of a preset are cut down: what a preset consists of stays, and 240 divides into any of the heads.
LARGEST = {"layers": 2, "embed_dim": 240, "ffn_embed_dim": 60}

_BERT = {"vocab_size": SYMBOLS - 4, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 4}
_BERT = {**_BERT, "intermediate_size": 16, "max_position_embeddings": 64, "type_vocab_size": 2}
_TRANSLATION = {"encoder_embed_dim": 12, "encoder_ffn_embed_dim": 16, "encoder_layers": 2, "encoder_attention_heads": 4}
# What cannot have a default; the sizes of a pretrained model, as they are in the checkpoints of training with it.
NEEDS = {
    "head_wise_match": {"bert_sizes": json.dumps(_BERT)},
    "head_wise_match_translation": {"translation_flags": json.dumps({"_name": "muse", **_TRANSLATION})},
}


def make_config(name, cut_down):
    """The flags of an architecture as fairseq keeps them."""
    config_class = MODEL_DATACLASS_REGISTRY[ARCH_MODEL_NAME_REGISTRY[name]]
    config = config_class(_name=name, **NEEDS.get(name, {}))
    for flag in fields(config) if cut_down else ():
        value = getattr(config, flag.name)
        for ending, largest in LARGEST.items():
            if flag.name.endswith(ending) and isinstance(value, int):
                setattr(config, flag.name, min(value, largest))
    return OmegaConf.structured(config)


def is_translation(name):
    return issubclass(ARCH_MODEL_REGISTRY[name], TransformerModelBase)


def make_task_for(name):
    """The least that fairseq's loading of checkpoints and the model ask of a task."""
    dictionary = make_dictionary(SYMBOLS)
    if is_translation(name):
        task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    else:
        needs = name in NEEDS
        task = make_task(pairs="match" in name, source_dictionary=dictionary, loads_checkpoint=needs)
    if name == "head_wise_match":
        for number, piece in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]"), start=dictionary.nspecial):
            del dictionary.indices[dictionary.symbols[number]]
            dictionary.symbols[number] = piece
            dictionary.indices[piece] = number
    task.load_state_dict = lambda state: None
    task.build_model = lambda cfg, from_checkpoint=False: build_model(cfg, task, from_checkpoint)
    return task


def build(name, cut_down=True, device="cpu"):
    torch.manual_seed(1)
    with torch.device(device):
        return build_model(make_config(name, cut_down), make_task_for(name)).eval()


@torch.no_grad()
def output_of(net, name):
    if is_translation(name):
        tokens = torch.randint(4, SYMBOLS, (2, 7), generator=torch.Generator().manual_seed(2))
        return net(tokens, torch.tensor([7, 7]), tokens[:, :5])[0]
    sentences = [*make_sentences(7, 4), *make_sentences(3, 6, seed=1)]
    batch = make_input(sentences[:2])
    if "match" in name:
        batch.update(make_input(sentences[2:], prefix="pair"))
    return net(**batch).logits


def test_the_registry_is_not_empty():
    assert len(NAMES) >= 54
    assert set(NEEDS) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_builds_from_its_defaults_in_full_size(name):
    # Without memory for its parameters; sentence models, which are small, read some of theirs while they are built.
    net = build(name, cut_down=False, device="meta" if is_translation(name) else "cpu")
    assert type(net) is ARCH_MODEL_REGISTRY[name]
    assert sum(parameter.numel() for parameter in net.parameters()) > 0


@pytest.mark.parametrize("name", NAMES)
def test_gives_the_same_output_after_pickle_copy_and_checkpoint(name, tmp_path):
    net = build(name)
    expected = output_of(net, name)
    assert expected.isfinite().all()
    for twin in (pickle.loads(pickle.dumps(net)), copy.deepcopy(net)):
        assert type(twin) is type(net)
        assert_close(output_of(twin, name), expected, atol=0, rtol=0)
    # As fairseq hands it to the processes of a training; a dataclass of fairseq itself cannot be pickled in omegaconf.
    config = OmegaConf.to_container(make_config(name, cut_down=True), resolve=True, enum_to_str=True)
    assert pickle.loads(pickle.dumps(OmegaConf.create(config))) == config

    path = tmp_path / "checkpoint.pt"
    state = {
        "args": None,
        "cfg": {"_name": None, "model": config},
        "model": net.state_dict(),
        "optimizer_history": [
            {"criterion_name": "C", "optimizer_name": "O", "lr_scheduler_state": {}, "num_updates": 3}
        ],
        "task_state": {},
        "extra_state": {"train_iterator": {"epoch": 1}},
        "last_optimizer_state": None,
    }
    checkpoint_utils.torch_persistent_save(state, str(path))
    assert load_checkpoint(path)["model"].keys() == net.state_dict().keys()  # reads with weights_only
    torch.manual_seed(9)  # what is not in the checkpoint would differ
    (loaded,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)], task=make_task_for(name))
    assert type(loaded) is type(net)
    assert_close(output_of(loaded.eval(), name), expected, atol=0, rtol=0)


@pytest.mark.parametrize("name", NEEDS)
def test_what_has_no_default_is_asked_for_in_a_sentence(name, monkeypatch):
    monkeypatch.delitem(NEEDS, name)
    with pytest.raises(ValueError, match=rf"^--arch {name} needs --[a-z-]+"):
        build(name)


def test_every_flag_is_documented():
    for config_class in {MODEL_DATACLASS_REGISTRY[ARCH_MODEL_NAME_REGISTRY[name]] for name in NAMES}:
        assert issubclass(config_class, FairseqDataclass)
        flags = [flag for flag in fields(config_class) if flag.name != "_name"]
        assert [flag.name for flag in flags if not flag.metadata.get("help")] == [], config_class
