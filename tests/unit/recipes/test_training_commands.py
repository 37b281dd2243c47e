"""What each train.sh hands to fairseq-train, read by fairseq's own parser: are the settings the published ones?"""

import itertools
from types import SimpleNamespace

import pytest
import torch
from fairseq import optim
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_MODEL_REGISTRY
from support.helpers import assert_refused
from support.recipes import read_settings, run_recipe
from support.reference import make_dictionary
from torch import nn

import muse_plugin  # noqa: F401  (registers the models)
from muse_plugin.models.presets import PRESETS

RECIPES = ("multi30k", "iwslt14_de_en", "iwslt15_en_vi", "wmt14_en_de", "wmt14_en_fr", "tatoeba_de_en")
MODELS = ("muse", "muse_simple", "transformer")


def make_rates(args):
    """The learning rate of update n, from 1: a function."""
    cfg = convert_namespace_to_omegaconf(args)
    optimizer = optim.build_optimizer(cfg.optimizer, [nn.Parameter(nn.Linear(1, 1).weight.detach())])
    scheduler = optim.lr_scheduler.build_lr_scheduler(cfg.lr_scheduler, optimizer)
    # After n updates fairseq sets the rate of the next one.
    return lambda number: scheduler.step_update(number - 1)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_command_is_one_that_fairseq_accepts(tmp_path, recipe, model):
    args = read_settings(tmp_path, recipe, MODEL=model)
    assert args.arch.startswith(model)
    assert args.criterion == "label_smoothed_cross_entropy"
    assert args.label_smoothing == 0.1
    assert args.optimizer == "adam"
    assert args.adam_betas == "(0.9, 0.98)"
    assert args.adam_eps == 1e-8
    assert args.fp16
    assert args.seed == 1


@pytest.mark.parametrize(("model", "fused"), [("muse", True), ("transformer", True), ("dynamicconv", False)])
def test_on_a_cpu_label_smoothing_is_fused(tmp_path, model, fused):
    args = read_settings(tmp_path, "multi30k", MODEL=model, PROFILE="cpu", NUM_GPUS="0")
    assert args.criterion == "fused_" * fused + "label_smoothed_cross_entropy"
    assert args.label_smoothing == 0.1
    assert args.cpu


@pytest.mark.parametrize("model", ["muse", "transformer"])
@pytest.mark.parametrize("recipe", [name for name in RECIPES if not name.startswith("iwslt")])
def test_embeddings_are_shared_unless_subwords_are_separate(tmp_path, recipe, model):
    for joint in ("1", "0"):
        settings = convert_namespace_to_omegaconf(read_settings(tmp_path / joint, recipe, MODEL=model, JOINT=joint))
        assert settings.model.share_all_embeddings == (joint == "1")


def test_as_many_checkpoints_stay_as_are_averaged(tmp_path):
    for given, kept in (("25", 25), ("5", 10)):
        assert read_settings(tmp_path / given, "multi30k", AVERAGED=given).keep_last_epochs == kept
    settings = [{"AVERAGED": "25"}, {}, {"KEEP": "12"}, {"KEEP": "30"}]
    calls = [read_settings(tmp_path / f"wmt{i}", "wmt14_en_de", **given) for i, given in enumerate(settings)]
    assert [args.keep_interval_updates for args in calls] == [25, 20, 12, 30]


@pytest.mark.parametrize("settings", [{"JOINT": "0"}, {"DICTIONARY": "joined"}, {}])
def test_other_data_than_the_published_are_not_compared_with_these(tmp_path, settings):
    data = tmp_path / "work" / "data"
    data.mkdir(parents=True)
    for step in ("download", "unpack", "tokenize", "split", "segment", "binarise"):
        (data / f".{step}.done").touch()
    done = run_recipe("iwslt14_de_en", "prepare", WORK_DIR=str(tmp_path / "work"), **settings)
    assert (done.returncode == 0) == bool(settings)
    assert ("ready: " in done.stdout) == bool(settings)
    assert ("No such file or directory" in done.stderr) == (not settings)


@pytest.mark.parametrize("recipe", RECIPES)
def test_regularisers_are_what_their_variables_say(tmp_path, recipe):
    args = read_settings(tmp_path / "simcut", recipe, SIMCUT="1")
    assert (args.criterion, args.simcut_alpha, args.simcut_p) == ("label_smoothed_cross_entropy_with_simcut", 3, 0.05)
    args = read_settings(tmp_path / "rdrop", recipe, RDROP="1")
    assert (args.criterion, args.rdrop_alpha) == ("label_smoothed_cross_entropy_with_rdrop", 5)
    if recipe == "wmt14_en_fr":
        done = run_recipe(recipe, "train", WORK_DIR=str(tmp_path / "work"), BPE_DROPOUT="0.1")
        assert_refused(done, "BPE_DROPOUT must be unset, since pairs are cleaned here after they are cut into subwords")
    else:
        args = read_settings(tmp_path / "bpe", recipe, BPE_DROPOUT="0.1")
        assert (args.task, args.bpe_dropout) == ("translation_with_bpe_dropout", 0.1)
        assert args.train_text.endswith("/text/train")
        assert args.bpe_codes.endswith("/bpe.codes")


@pytest.mark.parametrize("recipe", ["iwslt14_de_en", "iwslt15_en_vi", "multi30k", "tatoeba_de_en"])
def test_more_checkpoints_stay_on_request(tmp_path, recipe):
    assert read_settings(tmp_path / "usual", recipe).keep_last_epochs == 10
    assert read_settings(tmp_path / "more", recipe, KEEP="30", AVERAGED="25").keep_last_epochs == 30


def test_a_trial_trains_as_many_updates_as_it_is_told(tmp_path):
    args = read_settings(tmp_path, "wmt14_en_de", TRIAL="1", UPDATES="10", KEEP="30", MODEL="muse_simple")
    assert (args.max_update, args.max_epoch, args.keep_interval_updates) == (10, 0, 30)
    assert "updates=10" in next((tmp_path / "work").glob("*/settings.txt")).read_text().splitlines()


def test_tatoeba_on_a_cpu_keeps_checkpoints_of_updates(tmp_path):
    args = read_settings(tmp_path / "cpu", "tatoeba_de_en", PROFILE="cpu", UPDATES="1000")
    assert (args.max_tokens, args.max_update, args.dropout) == (1024, 1000, 0.1)
    assert (args.encoder_embed_dim, args.no_epoch_checkpoints) == (256, True)
    assert (args.save_interval_updates, args.keep_interval_updates) == (100, 10)
    rate = make_rates(args)
    assert [rate(n) for n in (300, 650, 1000)] == pytest.approx([0.002, 0.001, 0], abs=1e-5)
    published = read_settings(tmp_path / "published", "tatoeba_de_en")
    assert (published.max_tokens, published.max_update, published.dropout) == (4096, 20000, 0.2)
    assert (published.lr_scheduler, published.no_epoch_checkpoints) == ("inverse_sqrt", False)


def test_arguments_come_last_and_win(tmp_path):
    args = read_settings(tmp_path, "iwslt14_de_en", "--dropout", "0.25", "--max-epoch", "3")
    assert (args.dropout, args.max_epoch) == (0.25, 3)


def test_iwslt14_is_the_published_setting(tmp_path):
    args = read_settings(tmp_path, "iwslt14_de_en")
    assert (args.max_tokens, args.update_freq, args.max_update) == (4000, [4], 20000)
    assert args.dropout == 0.4
    assert not {"attention_dropout", "input_dropout"}.intersection(vars(args))  # 0, the defaults of the model
    assert (args.weight_decay, args.clip_norm) == (1e-4, 25)
    assert not getattr(args, "share_all_embeddings", False)
    assert args.keep_last_epochs == 10
    rate = make_rates(args)
    assert rate(1) == pytest.approx(1e-7)
    assert rate(4001) == pytest.approx(1e-3)
    assert rate(16001) == pytest.approx(1e-3 / 2)


@pytest.mark.parametrize(("recipe", "dropout"), [("iwslt14_de_en", 0.4), ("iwslt15_en_vi", 0.3)])
def test_the_transformer_of_iwslt_has_the_settings_of_muse_and_the_usual_ones_by_name(tmp_path, recipe, dropout):
    paper = read_settings(tmp_path / "paper", recipe, MODEL="transformer")
    assert (paper.lr, paper.dropout, paper.clip_norm, paper.warmup_updates) == ([0.001], dropout, 25, 4000)
    usual = read_settings(tmp_path / "usual", recipe, MODEL="transformer_usual")
    assert usual.arch == paper.arch == "transformer_iwslt_de_en"
    assert (usual.lr, usual.dropout, usual.clip_norm, usual.warmup_updates) == ([0.0005], 0.3, 0, 4000)
    assert usual.save_dir != paper.save_dir


@pytest.mark.parametrize(
    ("recipe", "model", "vocabulary", "parameters"),
    [
        # Those of the authors' logs, less the layer norms that their program makes and never uses.
        ("iwslt14_de_en", "muse", (8848, 6632), 48_193_584 - 12 * 2 * 384),
        ("iwslt14_de_en", "muse_simple", (8848, 6632), 43_991_040 - 12 * 2 * 384),
        ("iwslt14_de_en", "transformer", (8848, 6632), 42_864_640),
        ("wmt14_en_de", "muse", (32768,), 243_068_976 - 12 * 2 * 768),
        ("wmt14_en_de", "muse_simple", (32768,), 223_604_736 - 12 * 2 * 768),
        ("wmt14_en_de", "transformer", (32768,), 209_911_808),
        ("wmt14_en_fr", "muse", (44512,), 252_088_368 - 12 * 2 * 768),
        ("wmt14_en_fr", "muse_simple", (44512,), 232_624_128 - 12 * 2 * 768),
    ],
)
def test_models_have_the_published_numbers_of_parameters(tmp_path, recipe, model, vocabulary, parameters):
    args = read_settings(tmp_path, recipe, MODEL=model)
    dictionaries = [make_dictionary(size) for size in vocabulary]
    task = SimpleNamespace(source_dictionary=dictionaries[0], target_dictionary=dictionaries[-1])
    with torch.device("meta"):  # counted without memory
        built = ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)
    assert sum(parameter.numel() for parameter in built.parameters()) == parameters


def test_iwslt15_is_the_published_setting(tmp_path):
    args = read_settings(tmp_path, "iwslt15_en_vi")
    assert (args.max_tokens, args.update_freq, args.max_update) == (4000, [4], 10000)
    assert args.dropout == 0.3
    rate = make_rates(args)
    assert rate(4001) == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("recipe", "tokens", "most", "peak", "updates"),
    [("wmt14_en_de", 458752, 3584, 1e-3, 30000), ("wmt14_en_fr", 655360, 5120, 7e-4, 80000)],
)
def test_wmt_is_the_published_setting_and_the_cosine_does_not_restart(tmp_path, recipe, tokens, most, peak, updates):
    args = read_settings(tmp_path, recipe)
    assert args.max_tokens == most
    assert args.max_tokens * args.update_freq[0] == tokens
    assert args.max_update == updates
    assert args.dropout == {"wmt14_en_de": 0.3, "wmt14_en_fr": 0.1}[recipe]
    assert (args.attention_dropout, args.input_dropout) == (0.1, 0.1)
    assert (args.weight_decay, args.clip_norm) == (0.0, 0.0)
    assert args.share_all_embeddings
    rate = make_rates(args)
    warm_up, period = 10000, updates - 10000
    assert rate(1) == pytest.approx(1e-7)
    assert rate(warm_up // 2 + 1) == pytest.approx(peak / 2, rel=1e-3)
    assert rate(warm_up + 1) == pytest.approx(peak)
    assert rate(warm_up + period // 2 + 1) == pytest.approx((peak + 1e-7) / 2, rel=1e-3)
    assert rate(updates) == pytest.approx(1e-7, rel=1e-3)
    # The rate falls to the last update; the one after it would start at the peak again.
    falling = [rate(number) for number in range(warm_up + 1, updates + 1)]
    assert all(later < earlier for earlier, later in itertools.pairwise(falling))
    assert rate(updates + 1) == pytest.approx(peak)


def test_another_number_of_updates_does_not_restart_the_cosine_either(tmp_path):
    for updates in ("15000", "60000"):
        args = read_settings(tmp_path / updates, "wmt14_en_de", UPDATES=updates)
        assert args.max_update == int(updates)
        assert make_rates(args)(10001) == pytest.approx(1e-3)
        assert make_rates(args)(int(updates)) == pytest.approx(1e-7, rel=0.1)


def test_muse_simple_of_wmt14_en_de_is_as_published_by_its_authors(tmp_path):
    args = read_settings(tmp_path, "wmt14_en_de", MODEL="muse_simple")
    assert args.max_tokens * args.update_freq[0] == 3584 * 40 * 4
    assert args.lr_scheduler == "inverse_sqrt"
    assert make_rates(args)(4001) == pytest.approx(1e-3)
    assert (args.max_epoch, args.max_update) == (75, 0)


@pytest.mark.parametrize("model", ["plain_transformer", "muse"])
@pytest.mark.parametrize("kind", ["multi_scale", "distance"])
def test_encoders_of_other_layers_on_multi30k_are_those_of_the_presets(tmp_path, kind, model):
    args = read_settings(tmp_path, "multi30k", MODEL=model, ATTENTION=f"{kind.replace('_', '-')}-layers")
    settings = {name: value for name, value in PRESETS[f"{kind}_encoder_tiny"][1].items() if name.startswith("encoder")}
    if kind == "multi_scale":
        del settings["encoder_ffn_embed_dim"]  # it has no such network
    assert {name: getattr(args, name) for name in settings} == settings
    assert args.arch == f"{model}_tiny"
