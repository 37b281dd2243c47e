"""Named sizes: registration, exact parameter counts, flags over presets."""

import math
from argparse import Namespace
from dataclasses import fields
from functools import cache
from types import SimpleNamespace

import pytest
import torch
from fairseq import options
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import (
    ARCH_MODEL_NAME_REGISTRY,
    ARCH_MODEL_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
    MODEL_REGISTRY,
    build_model,
)
from hydra import compose, initialize_config_module
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf
from support.reference import make_dictionary

from muse_plugin.models import presets, registration
from muse_plugin.models.muse import MuseModel
from muse_plugin.models.muse_config import MuseConfig, flat_flags
from muse_plugin.modules.attention import SelfAttention

# Those whose encoder has other layers are in test_encoder_layers.py.
PRESETS = {
    name: entry
    for name, entry in presets.PRESETS.items()
    if issubclass(ARCH_MODEL_REGISTRY[name], MuseModel) and "encoder_layer_type" not in entry[1]
}
IWSLT = (8848, 6632)  # symbols of the authors' German and English dictionaries
ASKED_FOR = (
    "muse_base muse_large muse_simple_base muse_simple_large muse_iwslt_de_en muse_iwslt_en_vi muse_wmt_en_de "
    "muse_wmt_en_fr muse_simple_6l muse_tiny"
).split()

# The settings of the presets, written down a second time.
SIZES = {"base": (384, 768, 12, 4), "large": (768, 3072, 12, 16), "tiny": (128, 256, 4, 4), "6l": (512, 1024, 6, 4)}
IWSLT_DE_EN = {"size": "base", "dropout": 0.4, "attention_dropout": 0.0, "input_dropout": 0.0, "share": False}
IWSLT_EN_VI = {**IWSLT_DE_EN, "dropout": 0.3}
WMT_EN_DE = {"size": "large", "dropout": 0.3, "attention_dropout": 0.1, "input_dropout": 0.1, "share": True}
WMT_EN_FR = {**WMT_EN_DE, "dropout": 0.1}
SETTINGS = {
    "muse_base": {"size": "base"},
    "muse_large": {"size": "large"},
    "muse_tiny": {"size": "tiny"},
    "muse_iwslt_de_en": IWSLT_DE_EN,
    "muse_iwslt_en_vi": IWSLT_EN_VI,
    "muse_wmt_en_de": WMT_EN_DE,
    "muse_wmt_en_fr": WMT_EN_FR,
    "muse_simple_base": {"size": "base"},
    "muse_simple_large": {"size": "large"},
    "muse_simple_tiny": {"size": "tiny"},
    "muse_simple_6l": {"size": "6l"},
    "muse_simple_iwslt_de_en": IWSLT_DE_EN,
    "muse_simple_iwslt_en_vi": IWSLT_EN_VI,
    "muse_simple_wmt_en_de": WMT_EN_DE,
    "muse_simple_wmt_en_fr": WMT_EN_FR,
    "muse_multi_scale_iwslt_de_en": {**IWSLT_DE_EN, "encoder_heads": 12},
    "muse_distance_iwslt_de_en": IWSLT_DE_EN,
    "muse_multi_scale_wmt_en_de": WMT_EN_DE,
    "muse_distance_wmt_en_de": WMT_EN_DE,
    "transformer_multi_scale_wmt_en_de": WMT_EN_DE,
    "transformer_distance_wmt_en_de": WMT_EN_DE,
    "muse_multi_scale_tiny": {"size": "tiny"},
    "muse_distance_tiny": {"size": "tiny"},
    "plain_transformer_tiny": {"size": "tiny"},
    "plain_transformer_iwslt_de_en": IWSLT_DE_EN,
    "transformer_multi_scale_iwslt_de_en": {**IWSLT_DE_EN, "encoder_heads": 12},
    "transformer_distance_iwslt_de_en": IWSLT_DE_EN,
    "transformer_multi_scale_tiny": {"size": "tiny"},
    "transformer_distance_tiny": {"size": "tiny"},
}

# Parameters by the authors' logs and formula, without the layer norm of 2 * width that each of their decoder layers
# constructs and never uses.
PUBLISHED = {
    "muse_base": (IWSLT, 48_193_584 - 12 * 2 * 384),
    "muse_iwslt_de_en": (IWSLT, 48_193_584 - 12 * 2 * 384),
    "muse_wmt_en_fr": ((44_512,), 252_088_368 - 12 * 2 * 768),
    "muse_wmt_en_de": ((32_768,), 243_068_976 - 12 * 2 * 768),
    "muse_simple_base": (IWSLT, 43_991_040 - 12 * 2 * 384),
    "muse_simple_iwslt_de_en": (IWSLT, 43_991_040 - 12 * 2 * 384),
    "muse_simple_wmt_en_fr": ((44_512,), 232_624_128 - 12 * 2 * 768),
    "muse_simple_wmt_en_de": ((32_768,), 223_604_736 - 12 * 2 * 768),
}


@cache
def dictionary(size):
    return make_dictionary(size)


def parse(*words):
    """What ``fairseq-train data WORDS`` reads from its command line."""
    return options.parse_args_and_arch(options.get_training_parser(), input_args=["data", *words])


def configure(*words):
    """What it hands to the model and the task; a second slower than ``parse``."""
    return convert_namespace_to_omegaconf(parse(*words))


def build(config, symbols=IWSLT, device="meta"):
    """A model, without memory for its parameters unless a device is given."""
    source, target = dictionary(symbols[0]), dictionary(symbols[-1])
    with torch.device(device):
        return build_model(config, SimpleNamespace(source_dictionary=source, target_dictionary=target))


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def find_self_attention(layer):
    return next(module for module in layer.modules() if isinstance(module, SelfAttention))


def expected_count(width, ffn, layers, heads, kernels, embeddings):
    """The paper's formula, without the unused layer norms."""
    conv = width * width + sum(width * heads * k for k in kernels) + (len(kernels) if len(kernels) > 1 else 0)
    encoder = 4 * width**2 + 4 * width + 2 * width + 2 * width * ffn + ffn + width + (conv if kernels else 0)
    return layers * (2 * encoder + 4 * width**2 + 4 * width) + embeddings * width


def test_every_asked_for_name_is_there():
    assert len(ASKED_FOR) == 10
    assert set(ASKED_FOR) <= set(PRESETS)
    assert set(PRESETS) == set(SETTINGS)


def test_registered_names_map_to_our_classes():
    for name in ("muse", "muse_simple", "plain_transformer", *SETTINGS):
        check_registration(name)


def check_registration(name):
    # fairseq keeps the first class that was registered under a name, without a word.
    model = ARCH_MODEL_REGISTRY[name]
    assert issubclass(model, presets.MuseSimpleModel) == name.startswith("muse_simple")
    assert issubclass(model, presets.PlainTransformerModel) == ("transformer" in name)
    assert issubclass(model, MuseModel)
    assert model.__module__.startswith("muse_plugin.models.")
    registered = ARCH_MODEL_NAME_REGISTRY[name]
    assert MODEL_REGISTRY[registered] is model
    assert MODEL_DATACLASS_REGISTRY[registered] is model.config_class
    assert issubclass(model.config_class, MuseConfig)


def test_presets_name_only_known_flags_and_nothing_of_the_branches():
    for name, (model, settings) in PRESETS.items():
        expected = "plain_transformer" if "transformer" in name else "muse_simple" if "simple" in name else "muse"
        assert model == expected, name
        assert set(settings) <= {field.name for field in fields(MuseConfig)}, name
        assert not [key for key in settings if "branch" in key or "kernel" in key or "conv_type" in key], name


@pytest.mark.parametrize("name", SETTINGS)
def test_preset_sets_what_the_paper_says(name):
    config = vars(flat_flags(parse("--arch", name), ARCH_MODEL_REGISTRY[name].config_class))
    assert config["decoder_attention_bias"] == "none"  # decoders see all the past
    settings = SETTINGS[name]
    width, ffn, layers, heads = SIZES[settings["size"]]
    for side in ("encoder", "decoder"):
        assert config[f"{side}_embed_dim"] == width
        assert config[f"{side}_ffn_embed_dim"] == ffn
        assert config[f"{side}_layers"] == layers
        assert config[f"{side}_attention_heads"] == settings.get(f"{side}_heads", heads)
        assert ("conv" in config[f"{side}_branches"].split(",")) == ("simple" not in name and "transformer" not in name)
        assert ("/" in config[f"{side}_branches"]) == ("transformer" in name)
        assert config[f"{side}_kernel_sizes"] == "3,15"
        assert not config[f"{side}_normalize_before"]
    assert config["activation_fn"] == "relu"
    assert config["weight_dropout"] == 0.1
    assert config["conv_padding"] == "masked"
    for rate in ("dropout", "attention_dropout", "input_dropout"):
        if rate in settings:
            assert config[rate] == settings[rate], rate
    if "share" in settings:
        assert config["share_all_embeddings"] == settings["share"]
        assert not config["share_decoder_input_output_embed"]


@pytest.mark.parametrize("name", [name for name in SETTINGS if "distance" in name])
def test_distance_costs_what_is_published_and_heads_look_one_way(name):
    for layer in build(parse("--arch", name), (1000,)).encoder.layers:
        direction, distance = find_self_attention(layer).bias.biases
        heads = len(direction.directions)
        assert direction.directions == ("forward", "backward") * (heads // 2)
        assert direction.masks_diagonal
        assert not distance.learned
        assert distance.first_alphas == (1.5,) * heads


@pytest.mark.parametrize("limited", ["multi_scale", "distance"])
def test_windows_and_distance_cost_no_parameters(limited):
    assert count(build(parse("--arch", f"muse_{limited}_tiny"))) == count(build(parse("--arch", "muse_tiny")))
    transformer = count(build(parse("--arch", "plain_transformer_tiny")))
    assert count(build(parse("--arch", f"transformer_{limited}_tiny"))) == transformer


def test_the_plain_transformer_has_the_size_of_fairseqs():
    words = "--encoder-layers 4 --decoder-layers 4 --encoder-embed-dim 128 --decoder-embed-dim 128 "
    words += "--encoder-ffn-embed-dim 256 --decoder-ffn-embed-dim 256 --encoder-attention-heads 4 "
    words += "--decoder-attention-heads 4"
    expected = count(build(parse("--arch", "transformer", *words.split())))
    assert count(build(parse("--arch", "plain_transformer_tiny"))) == expected


@pytest.mark.parametrize("name", PUBLISHED)
def test_number_of_parameters_is_the_published_one(name):
    symbols, expected = PUBLISHED[name]
    assert count(build(parse("--arch", name), symbols)) == expected


@pytest.mark.parametrize("name", ["muse_tiny", "muse_simple_tiny", "muse_simple_6l", "muse_large", "muse_simple_large"])
def test_number_of_parameters_follows_the_published_formula(name):
    kernels = () if "simple" in name else (3, 15)
    expected = expected_count(*SIZES[name.split("_")[-1]], kernels, embeddings=8848 + 2 * 6632)
    assert count(build(parse("--arch", name))) == expected


def test_six_layers_have_the_size_of_the_transformer_they_are_compared_with():
    # Table 5: 41M, as fairseq's 512-wide six-layer Transformer of 42,864,640 parameters, which has one layer norm more
    # per encoder layer and two more per decoder layer.
    assert count(build(parse("--arch", "muse_simple_6l"))) == 42_864_640 - 6 * 3 * 2 * 512


def test_six_layers_start_as_the_authors_speed_model():
    bounds = {
        "muse_simple_6l": (math.sqrt(1.5 / 512), 2.0 / 32),
        "muse_simple_base": (1 / math.sqrt(384), 1 / math.sqrt(128)),
    }
    for name, (bound_in, bound_out) in bounds.items():
        words = f"--arch {name} --encoder-layers 1 --decoder-layers 1"
        (layer,) = build(parse(*words.split()), (99, 99), "cpu").encoder.layers
        assert 0.95 * bound_in < layer.in_proj_weight.abs().max() <= bound_in
        assert 0.95 * bound_out < layer.out_proj_weight.abs().max() <= bound_out


@pytest.mark.parametrize("name", ["muse_iwslt_de_en", "muse_simple_wmt_en_de"])
def test_flags_given_by_the_user_win_over_the_preset(name):
    words = "--dropout 0.25 --encoder-layers 3 --decoder-ffn-embed-dim 100 --attention-dropout 0.05 --input-dropout 0"
    config = configure("--arch", name, *words.split()).model
    assert config.dropout == 0.25
    assert config.encoder_layers == 3
    assert config.decoder_layers == 12
    assert config.decoder_ffn_embed_dim == 100
    assert config.attention_dropout == 0.05
    assert config.input_dropout == 0
    model = build(config, (1000,))
    assert len(model.encoder.layers) == 3
    assert model.decoder.layers[0].branch_dropout == 0.25  # follows --dropout
    assert model.decoder.layers[0].input_dropout == 0
    assert model.decoder.layers[0].branches["ffn"].output_size == 100


def test_branch_dropout_of_its_own_leaves_the_embedding_dropout_alone():
    model = build(parse("--arch", "muse_tiny", "--dropout", "0.3", "--branch-dropout", "0.1"))
    assert model.encoder.dropout_module.p == 0.3
    assert {layer.branch_dropout for layer in [*model.encoder.layers, *model.decoder.layers]} == {0.1}


def test_length_limits_reach_the_model_and_the_task():
    config = configure("--arch", "muse_tiny", "--max-source-positions", "77", "--max-target-positions", "88")
    assert (config.task.max_source_positions, config.task.max_target_positions) == (77, 88)
    assert build(config.model).max_positions() == (77, 88)


def test_noise_reaches_every_part_of_the_model():
    model = build(parse("--arch", "muse_wmt_en_de", "--activation-dropout", "0.2", "--weight-dropout", "0.3"), (99,))
    for side in (model.encoder, model.decoder):
        assert side.dropout_module.p == 0.3
        for layer in side.layers:
            assert (layer.branch_dropout, layer.input_dropout) == (0.3, 0.1)
            assert layer.branches["self_attention"].dropout == 0.1
            assert layer.branches["conv"].weight_dropout == 0.3
            assert layer.branches["ffn"].activation_dropout == 0.2
    assert all(layer.branches["cross_attention"].dropout == 0.1 for layer in model.decoder.layers)


def test_a_checkpoint_of_an_older_version_gets_defaults_for_flags_it_does_not_know():
    old = Namespace(_name="muse_tiny", arch="muse_tiny", encoder_layers=1)
    model = build(old)
    assert len(model.encoder.layers) == 1
    assert len(model.decoder.layers) == 4


# ---- hydra --------------------------------------------------------------------------------------------------------


def compose_config(*overrides):
    """What ``fairseq-hydra-train OVERRIDES`` makes of its command line."""
    hydra_init("config")
    GlobalHydra.instance().clear()
    with initialize_config_module("fairseq.config", version_base="1.1"):
        config = compose("config", overrides=["task=translation", *overrides])
    add_defaults(config)
    config = OmegaConf.create(OmegaConf.to_container(config, resolve=True, enum_to_str=True))
    OmegaConf.set_struct(config, True)
    return config


def test_hydra_knows_every_preset():
    for name in ("muse", "muse_simple", "plain_transformer", *SETTINGS):
        node = ConfigStore.instance().load(f"model/{name}.yaml").node
        assert node._name == name
        settings = PRESETS[name][1] if name in PRESETS else {}
        assert {key: node[key] for key in settings} == settings, name


def test_hydra_makes_only_the_preset_that_is_asked_for(monkeypatch):
    made = []  # to make all takes half a second of every command's start
    counting = SimpleNamespace(structured=lambda config: made.append(config._name) or OmegaConf.structured(config))
    monkeypatch.setattr(registration, "OmegaConf", counting)
    assert compose_config("model=muse_tiny").model._name == "muse_tiny"
    assert {*made} == {"muse_tiny"}


@pytest.mark.parametrize("name", ["muse", "muse_simple", "muse_tiny", "muse_simple_wmt_en_de"])
def test_hydra_and_the_classic_command_line_build_the_same_model(name):
    composed, parsed = compose_config(f"model={name}").model, configure("--arch", name).model
    assert OmegaConf.to_container(composed) == OmegaConf.to_container(parsed)
    assert str(build(composed, (99,))) == str(build(parsed, (99,)))


def test_hydra_flags_win_over_the_preset():
    overrides = "model=muse_tiny model.dropout=0.25 model.encoder_layers=2 model.encoder_kernel_sizes='5,7'".split()
    model = build(compose_config(*overrides).model)
    assert len(model.encoder.layers) == 2
    assert len(model.decoder.layers) == 4
    assert model.encoder.layers[0].branch_dropout == 0.25
    assert model.encoder.layers[0].branches["conv"].kernel_sizes == (5, 7)
    assert model.decoder.layers[0].branches["conv"].kernel_sizes == (3, 15)


# ---- what flags change (the rows of the paper's tables: tests/unit/recipes/test_rows.py) ---------------------------

D, HEADS, LAYERS = 384, 4, 12
SIMPLE = 43_991_040 - 12 * 2 * 384
OUT = D * D  # the output matrix's second half, of a layer with a convolution
CHANGES = {
    "no gate: results side by side": (
        "--arch muse_iwslt_de_en --no-conv-gate",
        2 * LAYERS * (2 * OUT + D * HEADS * 18),
    ),
    "lightweight": (
        "--arch muse_iwslt_de_en --encoder-conv-type lightweight --decoder-conv-type lightweight",
        2 * LAYERS * (OUT + HEADS * 18 + 2),
    ),
    "depth-wise": (
        "--arch muse_iwslt_de_en --encoder-conv-type depthwise --decoder-conv-type depthwise",
        2 * LAYERS * (OUT + D * 18 + 2),
    ),
    "conv heads": (
        "--arch muse_iwslt_de_en --encoder-conv-heads 8 --decoder-conv-heads 16",
        LAYERS * (2 * OUT + D * (8 + 16) * 18 + 4),
    ),
    "padding as published": ("--arch muse_iwslt_de_en --conv-padding leaky", 2 * LAYERS * (OUT + D * HEADS * 18 + 2)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_flag_changes_the_number_of_parameters_as_counted_by_hand(change):
    words, more = CHANGES[change]
    assert count(build(parse(*words.split()))) == SIMPLE + more


@pytest.mark.parametrize("words", [[], ["--share-all-embeddings"]], ids=["not given", "given"])
@pytest.mark.parametrize("name", ["muse_wmt_en_de", "muse_simple_wmt_en_fr"])
def test_a_switch_that_a_preset_turns_on_stays_on_when_it_is_given(name, words):
    assert parse("--arch", name, *words).share_all_embeddings is True
    way_out = r"preprocess with --joined-dictionary or take an --arch that does not share them, such as muse_large\.$"
    with pytest.raises(ValueError, match=way_out):
        build(parse("--arch", name, *words), (90, 99))
    assert not MODEL_DATACLASS_REGISTRY["muse_large"].share_all_embeddings
