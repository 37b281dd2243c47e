"""Recipes of sentence models: their commands as fairseq reads them, and their Python programs on made-up files."""

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.helpers import assert_refused, load_program
from support.recipes import (
    EXAMPLES,
    WRITE_DOWN,
    mark_prepared,
    parse_call,
    read_calls,
    read_flag,
    run_main,
    run_pairs,
    run_written_down,
)

import muse_plugin  # noqa: F401  (registers the models)
from muse_plugin.models.attention_bias_flags import parse_scales

RECIPES = ("mtl16", "sst", "snli", "pos_tagging", "ner")
MODELS = (
    "multi_scale_transformer",
    "sentence_transformer",
    "sentence_muse",
    "sentence_bigru",
    "sentence_cnn",
    "sentence_average",
)
TAGGERS = MODELS[:4]
# Where prepare.sh leaves the data of a recipe, in its work folder, by default.
DATA_FOLDERS = {
    "mtl16": "apparel/data",
    "sst": "fine/data",
    "snli": "sick/data",
    "pos_tagging": "xpos/data",
    "ner": "data",
}


def run_script(folder, recipe, *arguments, script="train", **settings):
    """Runs a script with a fairseq-train that only writes down its arguments, call by call."""
    return run_written_down(folder, recipe, script, *arguments, programs={"fairseq-train": WRITE_DOWN}, **settings)


def test_settings_of_subwords_mean_nothing_to_a_sentence_recipe(tmp_path):
    run_script(tmp_path, "sst", script="prepare", SUBWORDS="sentencepiece", JOINT="0")
    settings = tmp_path / "work" / "fine" / "data" / "settings.txt"
    assert not {"subwords", "joint"} & {line.split("=")[0] for line in settings.read_text().splitlines()}


def read_commands(folder, recipe, *arguments, data_folder=None, **settings):
    """The calls of fairseq-train that train.sh makes, each as fairseq's own parser reads it."""
    if recipe in DATA_FOLDERS:
        mark_prepared(folder / "work" / (data_folder or DATA_FOLDERS[recipe]))
    if recipe == "mtl16":
        settings.setdefault("DOMAIN", "apparel")
    done = run_script(folder, recipe, *arguments, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return [parse_call(words) for words in read_calls(folder)]


# Commands


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_model_is_trained_alike(tmp_path, recipe):
    models = TAGGERS if recipe in ("pos_tagging", "ner") else MODELS
    commands = read_commands(tmp_path, recipe, MODELS=" ".join(models))
    assert len(commands) == len(models)
    same = "task criterion optimizer lr lr_scheduler batch_size max_epoch patience seed embedding_dropout dropout"
    for name in [*same.split(), "classifier_dropout", "best_checkpoint_metric", "maximize_best_checkpoint_metric"]:
        assert len({str(getattr(args, name)) for args in commands}) == 1, name
    for args, model in zip(commands, models, strict=True):
        assert args.arch.startswith(model)
        assert args.maximize_best_checkpoint_metric
        assert args.cpu
        if hasattr(args, "attention_dropout"):
            assert args.attention_dropout == {"mtl16": 0.1, "snli": 0, "ner": 0.1}.get(recipe, 0.3)
        if recipe == "snli":
            assert (args.encoder_embed_dim, args.pair_features) == (200, "difference_twice")


PUBLISHED = {
    "mtl16": (300, 10, 30, 0.5, "1,3,N/16,N/8,N/4"),
    "sst": (300, 10, 30, 0.5, "1,3,N/16,N/8,N/4"),
    "snli": (600, 5, 64, 0.5, "1,3,N/16,N/8,N/4"),
    "pos_tagging": (300, 10, 30, 1.0, "1,3,5,7,9"),
    "ner": (300, 10, 30, 1.0, "1,3,5,7,9"),
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_multi_scale_transformer_has_the_published_sizes(tmp_path, recipe):
    (args,) = read_commands(tmp_path, recipe, **({"PROFILE": "published"} if recipe in ("snli", "ner") else {}))
    names = "embed_dim attention_heads head_dim attention_scale_alpha attention_scales"
    assert tuple(read_flag(args, f"encoder_{name}") for name in names.split()) == PUBLISHED[recipe]
    assert read_flag(args, "encoder_layers") == 3
    assert read_flag(args, "pooling") == "cls_max"


def test_domains_models_and_seeds_are_all_trained_and_none_twice(tmp_path):
    settings = {"DOMAIN": "MR", "MODELS": "multi_scale_transformer sentence_bigru", "SEEDS": "1 2"}
    commands = read_commands(tmp_path, "mtl16", "--max-epoch", "7", data_folder="MR/data", **settings)
    assert [(args.arch, args.seed) for args in commands] == [
        ("multi_scale_transformer_mtl16", 1),
        ("multi_scale_transformer_mtl16", 2),
        ("sentence_bigru", 1),
        ("sentence_bigru", 2),
    ]
    assert {args.max_epoch for args in commands} == {7}
    assert {args.max_words for args in commands} == {256}
    assert len({args.save_dir for args in commands}) == 4
    again = read_commands(tmp_path, "mtl16", "--max-epoch", "7", data_folder="MR/data", **settings)
    assert len(again) == 4


def test_one_gpu_trains_one_model(tmp_path):
    (args,) = read_commands(tmp_path, "sst", NUM_GPUS="4")
    assert (args.distributed_world_size, args.cpu, args.fp16) == (1, False, False)


DISTANCE_NETWORK = {
    "lr": [0.001],
    "batch_size": 64,
    "max_epoch": 20,
    "encoder_embed_dim": 300,
    "encoder_ffn_embed_dim": 1200,
}
SMALL_PAIRS = {"encoder_embed_dim": 200, "embedding_dropout": 0.1, "lr": [0.001], "batch_size": 32}
LARGE_PAIRS = {"encoder_embed_dim": 600, "embedding_dropout": 0.5, "lr": [0.00025], "batch_size": 128}


@pytest.mark.parametrize(
    ("recipe", "settings", "run", "flags"),
    [
        ("sst", "", "fine/multi_scale_transformer", {"word_dropout": 0.1}),
        ("sst", "WORD_DROPOUT=0", "fine/multi_scale_transformer-dropped0", {"word_dropout": 0}),
        ("sst", "ALPHA=-0.5", "fine/multi_scale_transformer-alpha-0.5", {"encoder_attention_scale_alpha": -0.5}),
        ("sst", "SCALES=N/16", "fine/multi_scale_transformer-scalesN_16", {"encoder_attention_scales": "N/16"}),
        ("sst", "DECAY=0.15", "fine/multi_scale_transformer", {"force_anneal": 2, "lr_shrink": 0.85}),
        ("sst", "DECAY=0", "fine/multi_scale_transformer", {"force_anneal": None}),
        ("sst", "MODEL=sentence_average", "fine/sentence_average", {}),
        ("mtl16", "MODEL=sentence_average", "apparel/sentence_average", {}),
        *(
            (
                recipe,
                "MODEL=sentence_average WORD_DROPOUT=0.3 HIDDEN=0",
                f"{folder}/sentence_average-dropped0.3-hidden0",
                {"word_dropout": 0.3, "classifier_hidden_dim": 0},
            )
            for recipe, folder in (("sst", "fine"), ("mtl16", "apparel"))
        ),
        ("snli", "MODEL=sentence_transformer", "sick/sentence_transformer", {"encoder_normalize_before": False}),
        (
            "snli",
            "MODEL=sentence_transformer PRE_NORM=1",
            "sick/sentence_transformer-pre-norm",
            {"encoder_normalize_before": True},
        ),
        (
            "snli",
            "MODEL=distance_attention_network",
            "sick/distance_attention_network",
            {**DISTANCE_NETWORK, "arch": "distance_attention_network", "distance_alpha": 1.5},
        ),
        (
            "snli",
            "MODEL=distance_attention_network DISTANCE_ALPHA=0",
            "sick/distance_attention_network-alpha0",
            {"distance_alpha": 0},
        ),
        ("snli", "MODEL=sentence_bigru DATASET=sick", "sick/sentence_bigru", SMALL_PAIRS),
        ("snli", "MODEL=sentence_bigru DATASET=scitail-small", "scitail-small/sentence_bigru", SMALL_PAIRS),
        (
            "snli",
            "MODEL=sentence_bigru DATASET=sick PROFILE=published",
            "sick/sentence_bigru-published",
            {**LARGE_PAIRS, "batch_size": 32},
        ),
        ("snli", "MODEL=sentence_bigru DATASET=snli", "snli/sentence_bigru", LARGE_PAIRS),
        ("snli", "MODEL=sentence_bigru DATASET=snli PROFILE=published", "snli/sentence_bigru", LARGE_PAIRS),
        ("snli", "MODEL=sentence_bigru DATASET=snli PROFILE=small", "snli/sentence_bigru-small", SMALL_PAIRS),
    ],
)
def test_settings_reach_the_training_and_have_runs_of_their_own(tmp_path, recipe, settings, run, flags):
    settings = dict(word.split("=") for word in settings.split())
    (args,) = read_commands(tmp_path, recipe, data_folder=f"{run.split('/')[0]}/data", **settings)
    assert {name: read_flag(args, name) for name in flags} == flags
    assert args.save_dir.endswith(f"{run}-seed1/checkpoints")
    kept = (Path(args.save_dir).parent / "settings.txt").read_text(encoding="utf-8").splitlines()
    names = {"WORD_DROPOUT", "HIDDEN", "DECAY"}.intersection(settings)
    assert {f"{name.lower()}={settings[name]}" for name in names} - {"decay=0"} <= {*kept}  # which is no setting


def test_the_ladder_of_taggers(tmp_path):
    (args,) = read_commands(tmp_path / "plain", "pos_tagging")
    assert (args.task, args.character_encoder, read_flag(args, "crf")) == ("muse_sequence_tagging", "none", False)
    assert (getattr(args, "entities", False), args.best_checkpoint_metric) == (False, "accuracy")
    (args,) = read_commands(tmp_path / "characters", "ner", CHARACTERS="cnn")
    assert (args.character_encoder, read_flag(args, "crf")) == ("cnn", False)
    assert (getattr(args, "entities", False), args.best_checkpoint_metric) == (True, "entity_f1")
    flags = {"CHARACTERS": "cnn", "FEATURES": "1", "WORD_DROPOUT": "0.1", "LOWER_CASE": "1"}
    (args,) = read_commands(tmp_path / "features", "ner", data_folder="data-lower", **flags)
    assert (args.character_encoder, args.word_features, args.word_dropout) == ("cnn", "case,shape,affixes", 0.1)
    assert args.save_dir.endswith("multi_scale_transformer-cnn-features-dropped0.1-lower-seed1/checkpoints")
    (args,) = read_commands(tmp_path / "crf", "ner", CHARACTERS="cnn", CRF="1")
    assert (args.character_encoder, read_flag(args, "crf")) == ("cnn", True)


@pytest.mark.parametrize(
    ("recipe", "floor", "run", "longest"),
    [
        ("mtl16", "linear", "apparel/linear-seed1", ["--max-words", "256"]),
        ("snli", "linear", "sick/linear-seed1", []),
        ("ner", "crf", "crf-seed1", []),
    ],
)
def test_a_floor_stands_in_for_a_model(tmp_path, recipe, floor, run, longest):
    read_commands(tmp_path / "prepared", recipe)
    data = tmp_path / "work" / DATA_FOLDERS[recipe]
    shutil.copytree(tmp_path / "prepared" / "work" / DATA_FOLDERS[recipe], data)
    settings = {"BASELINE": floor, "DOMAIN": "apparel"} if recipe == "mtl16" else {"BASELINE": floor}
    # Any other python of the recipe is the real one.
    program = (
        'case "$1" in *baseline.py) printf "%s\\n" "$@" "" >>"$ARGUMENTS_FILE";; *) exec '
        + f'{sys.executable} "$@";; esac'
    )
    done = run_written_down(tmp_path, recipe, "train", programs={"python": program}, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "work" / run
    tool = str(EXAMPLES / "recipe" / "baseline.py")
    assert read_calls(tmp_path) == [[tool, floor, str(data / "bin"), str(folder), *longest]]
    assert f"model={floor}" in (folder / "settings.txt").read_text().splitlines()
    assert "baseline.py" in (folder / "train-command.txt").read_text()
    refused = run_script(tmp_path, recipe, MODEL="sentence_bigru", **settings)
    assert refused.returncode == 2
    sentence = (
        f"BASELINE={floor} stands for a model without word vectors, so MODEL, MODELS and WORD_VECTORS must not be set"
    )
    assert sentence in refused.stderr


def test_word_vectors_are_those_that_were_prepared(tmp_path):
    vectors = tmp_path / "glove.txt"
    vectors.write_text("the 1 2 3 4\n", encoding="utf-8")
    prepared = tmp_path / "work" / "fine" / "data-frozen-vectors" / "bin" / "word_vectors.txt"
    prepared.parent.mkdir(parents=True)
    prepared.write_text("the 1 2 3 4\nfilm 1 2 3 4\n", encoding="utf-8")
    settings = {"WORD_VECTORS": str(vectors), "FREEZE_VECTORS": "1"}
    (args,) = read_commands(tmp_path, "sst", data_folder="fine/data-frozen-vectors", **settings)
    assert (args.word_vectors, args.word_embed_dim) == (str(prepared), 4)
    assert args.freeze_word_vectors


def test_data_of_other_vectors_are_refused(tmp_path):
    (tmp_path / "glove.txt").write_text("the 1 2 3 4\n", encoding="utf-8")
    mark_prepared(tmp_path / "work" / "fine" / "data-vectors", "word_vectors=other.txt@123\n")
    done = run_script(tmp_path, "sst", WORD_VECTORS=str(tmp_path / "glove.txt"))
    assert_refused(done, "are of the vectors other.txt@123, but WORD_VECTORS is glove.txt@", "prepare other data by")


def run_functions(folder, text):
    """Runs shell text with the functions of the recipes of sentences, in a folder."""
    program = f"set -euo pipefail\n. {EXAMPLES}/recipe/sentence_recipe.sh\nrecipe=test work_dir=$1 run=$1\n{text}"
    command = ["bash", "-c", program, "bash", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_what_is_predicted_again_is_scored_again(tmp_path):
    (tmp_path / ".train.done").touch()
    text = """
    record_run() { record=(); }
    predict_split() { mkdir -p "$1/predictions"; echo "$RANDOM" >"$1/predictions/$2.jsonl"; }
    python() { cat "$4" >"$6"; }
    node=0
    evaluate_run "$run" test test
    evaluate_run "$run" test test
    cmp "$run/predictions/test.jsonl" "$run/results/test.json"
    """
    for _ in range(2):
        done = run_functions(tmp_path, text)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("score test") == 1
        (tmp_path / ".predict-test.done").unlink()


def test_a_training_outlives_the_reader_of_its_output(tmp_path):
    text = """
    fairseq-train() { for i in {1..20000}; do echo "epoch $i | valid | loss 1"; done; touch "$run/ended"; }
    num_gpus=0 seed=1 user_dir=none
    train_sentences "$run" data 3> >(head -n 1 >/dev/null) >/dev/null
    """
    done = run_functions(tmp_path, text)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ended").exists()


def test_vectors_of_another_file_of_the_same_name_are_told_apart(tmp_path):
    def name(path):
        text = f'. {EXAMPLES}/recipe/recipe.sh; vectors=$1; name_vectors; printf %s "${{vectors_name:-}}"'
        return run_functions(path, text).stdout

    names = []
    for folder, numbers in (("a", "1 2"), ("b", "1 3"), ("c", "1 2")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "v.txt").write_text(f"the {numbers}\n")
        names.append(name(tmp_path / folder / "v.txt"))
    assert names[0] == names[2] != names[1]
    assert all(found.startswith("v.txt@") for found in names)
    assert name("") == ""


def test_mirrored_summation_has_the_published_windows(tmp_path):
    commands = read_commands(tmp_path, "mirrored_summation", TERMS="10 50")
    assert len(commands) == 8
    assert [args.terms for args in commands] == [10] * 4 + [50] * 4
    # Of 100 vectors and the classification token the five windows of Flex differ; of 30 they are 3, 1, 3, 7, 15.
    (flex,) = read_commands(tmp_path / "cpu100", "mirrored_summation", PROFILE="cpu100", TERMS="10", MODEL="flex")
    assert (flex.length, flex.vector_size) == (100, 10)
    scales = parse_scales(flex.encoder_attention_scales, "encoder")
    widths = torch.stack([scale.resolve(torch.tensor([flex.length + 1, 31])) for scale in scales], dim=1)
    assert widths.tolist() == [[3, 7, 13, 25, 51], [3, 1, 3, 7, 15]]
    hier, deep, flex, transformer = commands[:4]
    for args in commands:
        assert (args.train_sentences, args.test_sentences, args.length, args.vector_size) == (200_000, 200_000, 100, 50)
        assert (args.dropout, args.attention_dropout, args.embedding_dropout, args.classifier_dropout) == (0, 0, 0, 0)
        assert (args.encoder_attention_heads, args.encoder_embed_dim) == (10, 300)
        assert args.best_checkpoint_metric == "mse"
        assert not args.maximize_best_checkpoint_metric
    assert [args.encoder_layers for args in (hier, deep, flex, transformer)] == [2, 6, 2, 2]
    assert hier.encoder_attention_scales == deep.encoder_attention_scales == "3"
    assert flex.encoder_attention_scales == "3,N/16,N/8,N/4,N/2"
    assert flex.encoder_attention_scale_alpha == 0
    assert transformer.arch == "sentence_transformer"
    assert transformer.no_layernorm_embedding


@pytest.mark.parametrize(
    ("recipe", "settings", "sentence"),
    [
        ("mtl16", {"MODEL": "muse"}, "MODEL must be one of multi_scale_transformer sentence_transformer"),
        ("mtl16", {"DOMAIN": "apparel cars"}, "DOMAIN must be one or more of all apparel baby"),
        ("mtl16", {"SEEDS": "1 two"}, "SEEDS must be whole numbers, but one is 'two'."),
        ("mtl16", {"DOMAIN": "MR"}, "run prepare.sh with the same settings first."),
        ("sst", {"MODEL": "sentence_cnn", "ALPHA": "1"}, "ALPHA and SCALES need MODEL=multi_scale_transformer"),
        ("sst", {"MODEL": "multi_scale_transformer", "SCALES": "3,N/x"}, "SCALES must be numbers, fractions of the"),
        ("sst", {"WORD_VECTORS": "/nowhere"}, "WORD_VECTORS must be a file, but there is none at /nowhere."),
        ("sst", {"FREEZE_VECTORS": "1"}, "FREEZE_VECTORS=1 needs WORD_VECTORS=FILE"),
        ("sst", {"MODEL": "sentence_cnn", "MODELS": "sentence_bigru"}, "MODEL and MODELS both say what is trained"),
        ("sst", {"SEED": "1", "SEEDS": "2"}, "SEED and SEEDS both say which seeds are meant, '1' and '2'; unset one."),
        ("sst", {"MODELS": " "}, "distance_attention_network directional_attention_network, but is blank."),
        ("sst", {"SEEDS": "1 2 1"}, "SEEDS has '1' twice; give it once."),
        (
            "snli",
            {"DATASET": "qnli"},
            "DATASET must be sick, snli, snli-small, mnli, scitail or scitail-small, but is 'qnli'.",
        ),
        ("snli", {"PRE_NORM": "1"}, "sentence_transformer or sentence_muse, but MODELS is 'multi_scale_transformer'."),
        ("snli", {"DISTANCE_ALPHA": "0"}, "DISTANCE_ALPHA needs MODEL=distance_attention_network"),
        ("ner", {"MODEL": "sentence_cnn"}, "MODEL must be one of multi_scale_transformer sentence_transformer"),
        ("mirrored_summation", {"MODEL": "sentence_cnn"}, "MODEL must be one of hier_s deep_hier_s flex transformer"),
        ("sst", {"BASELINE": "crf"}, "BASELINE must be none or linear, but is 'crf'."),
        ("ner", {"BASELINE": "linear"}, "BASELINE must be none or crf, but is 'linear'."),
        ("mirrored_summation", {"BASELINE": "linear"}, "BASELINE is for texts of words, but here"),
        ("mirrored_summation", {"TERMS": "ten"}, "TERMS must be whole numbers of at least 1, but one is 'ten'."),
        ("mirrored_summation", {"PROFILE": "gpu"}, "PROFILE must be published, cpu or cpu100, but is 'gpu'."),
    ],
)
def test_a_wrong_setting_is_named(tmp_path, recipe, settings, sentence):
    assert_refused(run_script(tmp_path, recipe, **settings), sentence)


def test_another_encoder_of_characters_is_refused(tmp_path):
    mark_prepared(tmp_path / "work" / "data")
    done = run_script(tmp_path, "ner", CHARACTERS="lstm")
    assert_refused(done, "CHARACTERS must be none, cnn or bilstm, but is 'lstm'.")


@pytest.mark.parametrize("recipe", RECIPES)
def test_lists_of_files_are_sound(download, recipe):
    wanted = download.read_manifest(EXAMPLES / recipe / "downloads.tsv")
    assert len(wanted) == {"mtl16": 32, "sst": 5, "snli": 9, "pos_tagging": 3, "ner": 3}[recipe]
    assert len({file.name for file in wanted}) == len(wanted)
    for file in wanted:
        assert file.sha256 is None or len(file.sha256) == 64
        assert file.urls
        assert all(url.startswith("https://") and url.endswith(file.name) for url in file.urls)


# sst/phrases.py


@pytest.fixture(scope="module")
def phrases():
    return load_program(EXAMPLES / "sst" / "phrases.py")


def test_a_tree_gives_its_phrases_with_their_labels(phrases):
    found = phrases.parse_tree("(3 (2 It) (4 (2 Works) (2 well)))\n")
    assert found == [("2", "it"), ("2", "works"), ("2", "well"), ("4", "works well"), ("3", "it works well")]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("(3 (2 It) (4 (2 works)", "brackets must match"),
        ("(3 (2 It)))", "')' is outside of the tree"),
        ("(3 a) (2 b)", "there is more than one tree"),
        ("(3 (2 It) ())", "a label from 0 to 4 must follow every opening bracket"),
        ("(7 x)", "a label from 0 to 4 must follow every opening bracket"),
        ("(3 (2))", "a phrase has no words"),
        ("word", "'word' is outside of the tree"),
    ],
)
def test_a_broken_tree_is_named_with_its_line(phrases, tmp_path, line, sentence):
    path = tmp_path / "trees.txt"
    path.write_text(f"(2 fine)\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 2: must be a tree") as caught:
        list(phrases.read_trees(path))
    assert sentence in str(caught.value)


def test_a_sentence_without_text_is_named_with_its_line(phrases, tmp_path):
    path = tmp_path / "stsa.fine.test"
    path.write_text("3 a fine film\n2\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"stsa.fine.test, line 2: must be a label, a space and a text, but is '2'\."):
        phrases.read_texts(path)
    path.write_text("3 a fine film\n", encoding="utf-8")
    assert phrases.read_texts(path) == [("3", "a fine film")]


def test_phrases_are_counted_once_and_keep_out_what_is_tested(phrases):
    trees = [
        phrases.parse_tree(line)
        for line in ("(4 (3 good) (2 film))", "(0 (1 bad) (2 film))", "(3 (3 good) (0 film))", "(2 (1 dull) (2 thing))")
    ]
    found = phrases.collect_phrases(trees, binary=False, without={"dull thing", "bad"})
    assert found == {"good": "3", "film": "2", "good film": "4", "bad film": "0"}
    found = phrases.collect_phrases(trees, binary=True, without=set())
    assert found == {"good": "1", "good film": "1", "bad": "0", "bad film": "0", "film": "0", "dull": "0"}


def test_sentences_come_first_and_once(phrases, tmp_path, monkeypatch, capsys):
    for name, text in {
        "trees": "(4 (3 Good) (2 film))\n(1 (1 Dull) (2 thing))\n",
        "sentences": "4 good film\n4 good film\n",
        "valid": "1 dull thing\n",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    words = ["--trees", "trees", "--sentences", "sentences", "--without", "valid", "--output", "out"]
    monkeypatch.chdir(tmp_path)
    assert run_main(monkeypatch, phrases, *words) == 0
    assert (tmp_path / "out").read_text() == "4 good film\n4 good film\n3 good\n2 film\n"
    assert capsys.readouterr().out == "2 sentences and 2 phrases\n"
    assert run_main(monkeypatch, phrases, "--trees", "trees", "--check", "0" * 64) == 2
    assert f"trees must have the SHA-256 {'0' * 64}, but has " in capsys.readouterr().err


# mtl16/split_domain.py


@pytest.fixture(scope="module")
def split_domain():
    return load_program(EXAMPLES / "mtl16" / "split_domain.py")


def run_split(module, monkeypatch, folder, *arguments):
    monkeypatch.chdir(folder)
    return run_main(monkeypatch, module, "--train", "train", "--output", "out", *arguments)


def test_the_last_lines_are_held_out_and_copies_dropped_on_request(split_domain, tmp_path, monkeypatch, capsys):
    (tmp_path / "train").write_bytes(b"0\tcaf\xe9\n1\tna\xc3\xafve\n1\tsame \n0\tother\n1\tsame\n")
    assert run_split(split_domain, monkeypatch, tmp_path, "--hold-out", "2") == 0
    assert (tmp_path / "out" / "train.txt").read_text(encoding="utf-8") == "0\tcafé\n1\tnaïve\n1\tsame \n"
    assert (tmp_path / "out" / "test.txt").read_text(encoding="utf-8") == "0\tother\n1\tsame\n"
    assert capsys.readouterr().out == "3 training and 2 test texts; 1 training texts also in the test set, kept\n"
    assert run_split(split_domain, monkeypatch, tmp_path, "--hold-out", "2", "--drop-copies") == 0
    assert (tmp_path / "out" / "train.txt").read_text(encoding="utf-8") == "0\tcafé\n1\tnaïve\n"


def test_the_source_may_have_a_test_file(split_domain, tmp_path, monkeypatch):
    (tmp_path / "train").write_text("0\ta\n1\tb", encoding="utf-8")
    (tmp_path / "test").write_text("1\tc\n", encoding="utf-8")
    assert run_split(split_domain, monkeypatch, tmp_path, "--test", "test") == 0
    assert (tmp_path / "out" / "train.txt").read_text(encoding="utf-8") == "0\ta\n1\tb\n"
    assert (tmp_path / "out" / "test.txt").read_text(encoding="utf-8") == "1\tc\n"


@pytest.mark.parametrize(
    ("text", "count", "sentence"),
    [
        ("0\ta\nb\n", "1", "train, line 2: must be 0 or 1, a tab and a text, but is 'b'."),
        ("0\ta\n1\tb\n", "2", "--hold-out must lie between 1 and 1, but got 2."),
    ],
)
def test_what_cannot_be_split_is_said(split_domain, tmp_path, monkeypatch, capsys, text, count, sentence):
    (tmp_path / "train").write_text(text, encoding="utf-8")
    assert run_split(split_domain, monkeypatch, tmp_path, "--hold-out", count) == 2
    assert sentence in capsys.readouterr().err


# mtl16/compare.py


@pytest.fixture(scope="module")
def compare():
    return load_program(EXAMPLES / "mtl16" / "compare.py")


def write_run(folder, model, domain, seed, accuracy, test="official", **settings):
    settings = {"model": model, "data_domain": domain, "seed": seed, "data_test": test, "lr": 0.0003, **settings}
    record = {
        "scores": {"accuracy": {"mean": accuracy}},
        "settings": {**settings, "seconds_train": seed, "parameters": seed},
        "versions": {"torch": "2.13.0"},
        "hardware": {"cores": 2},
        "git": {"commit": "abc"},
    }
    path = folder / f"{model}-{domain}-{seed}-{test}.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    return path


def test_models_are_compared_over_the_domains(compare, tmp_path):
    accuracies = {"apparel": (80, 84), "baby": (82, 81), "books": (85, 78), "dvd": (79, 73)}
    files = []
    for domain, (first, second) in accuracies.items():
        test = "held-out" if domain in ("books", "dvd") else "official"
        for seed, change in ((1, -1), (2, 1)):
            files.append(write_run(tmp_path, "multi_scale_transformer", domain, seed, first + change, test))
        files.append(write_run(tmp_path, "sentence_transformer", domain, 1, second, test))
    files.append(write_run(tmp_path, "multi_scale_transformer", "video", 1, 90.0))
    published = compare.read_published(EXAMPLES / "mtl16" / "published.tsv")
    report = compare.make_report([run for path in reversed(files) for run in compare.read_runs(path)], published)
    lines = report.splitlines()
    assert lines[0] == "| domain | MS-Trans | MS-Trans, paper | Transformer | Transformer, paper |"
    assert lines[2] == "| apparel | 80.00 ± 1.41 | 87.25 | 84.00 | 82.25 |"
    assert lines[4] == "| books (held out) | 85.00 ± 1.41 | 85.25 | 78.00 | 81.50 |"
    assert lines[6] == "| video | 90.00 | 90.00 |  | 84.25 |"
    assert lines[7] == "| average of 4 | 81.50 | 86.06 | 79.00 | 81.50 |"
    assert "since a model is missing: video." in report
    # Differences -4, 1, 7, 6: t = 0.9869 with 3 degrees of freedom; the signed ranks of 2 and below have 3 of 16 cases.
    assert "- MS-Trans minus Transformer: +2.50 on average, better on 3, worse on 1 of 4 domains" in report
    assert "paired t-test p = 0.3964, Wilcoxon signed-rank p = 0.3750" in report
    assert "- seeds: `1, 2 (per cell 1 to 2)`" in report


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"lr": 0.001}, "runs must have the same settings to be compared, but lr is '0.0003' and '0.001'"),
        ({}, "sentence_cnn on MR with seed 1 is there twice"),
        ({"seed": 2, "test": "held-out"}, "MR has results on its official and on a held-out test set"),
    ],
)
def test_what_cannot_be_compared_is_refused(compare, tmp_path, other, sentence):
    paths = []
    for number, settings in enumerate(({}, other)):
        folder = tmp_path / str(number)
        folder.mkdir()
        paths.append(
            write_run(folder, **{"model": "sentence_cnn", "domain": "MR", "seed": 1, "accuracy": 70, **settings})
        )
    with pytest.raises(ValueError, match=r"same settings|there twice|held-out test set") as caught:
        compare.make_report([run for path in paths for run in compare.read_runs(path)], {})
    assert sentence in str(caught.value)


def test_another_file_is_no_result(compare, tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"scores": {}}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"x\.json must be written by examples/mtl16/evaluate\.sh, but is not"):
        compare.read_runs(path)


def test_kept_runs_are_compared_beside_later_ones(compare, tmp_path, monkeypatch, capsys):
    def run(*words):
        return run_main(monkeypatch, compare, *words)

    files = [
        write_run(tmp_path, "sentence_cnn", "MR", seed, 70 + seed, train_command="fairseq-train /home/me/work/bin")
        for seed in (10, 2)
    ]
    files.append(write_run(tmp_path, "multi_scale_transformer", "MR", 1, 80))
    kept = tmp_path / "runs.jsonl"
    assert run(*files, "--keep", kept) == 0
    expected = capsys.readouterr().out
    assert "| MR | 80.00 | 79.25 | 76.00 ± 5.66 |" in expected
    lines = kept.read_text(encoding="utf-8").splitlines()
    assert [str(json.loads(line)["settings"]["seed"]) for line in lines] == ["1", "2", "10"]
    assert "fairseq-train RUN/work/bin" in lines[1]
    assert "/home" not in "".join(lines)
    assert run(kept) == 0
    assert capsys.readouterr().out == expected
    assert run(kept, write_run(tmp_path, "sentence_cnn", "MR", 3, 90)) == 0
    assert "| MR | 80.00 | 79.25 | 80.67 ± 9.02 |" in capsys.readouterr().out
    kept.write_text(lines[0] + "\n{}\n", encoding="utf-8")
    assert run(kept) == 2
    assert "runs.jsonl, line 2 must be written by" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(*files, "--keep", tmp_path / "runs.json")
    assert "--keep must end with .jsonl, but is " in capsys.readouterr().err


def test_the_table_of_mtl16_is_what_its_runs_give(compare):
    folder = EXAMPLES / "mtl16"
    report = compare.make_report(
        compare.read_runs(folder / "runs.jsonl"), compare.read_published(folder / "published.tsv")
    )
    assert (folder / "RESULTS.md").read_text(encoding="utf-8").endswith(report)


def test_published_numbers_have_the_published_averages(compare):
    published = compare.read_published(EXAMPLES / "mtl16" / "published.tsv")
    assert len(published) == 16
    averages = {"multi_scale_transformer": 86.34, "sentence_transformer": 82.78, "sentence_bigru": 84.25}
    for model, average in averages.items():
        assert sum(row[model] for row in published.values()) / 16 == pytest.approx(average, abs=0.006)


# snli/pairs.py


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("sick", "4\tNo boy's here\tA boy.\t3.6\tCONTRADICTION\n", "contradiction\tno boy 's here\ta boy .\n"),
        (
            "snli-small-train",
            'a\tb\tc\nA dog.\t"The ""big"" dog, here."\tentailment\n',
            "entailment\ta dog\tthe big dog here\n",
        ),
        ("snli-small", "a dog\ta cat\t2\n", "contradiction\ta dog\ta cat\n"),
        ("scitail-small", "A dog\ta cat\t1\n", "neutral\ta dog\ta cat\n"),
        ("scitail", "A dog.\tA cat\tentails\n", "entailment\ta dog .\ta cat\n"),
        (
            "snli",
            "gold_label\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\n"
            "neutral\t( ( A man ) walks )\t( He ( runs . ) )\tx\n-\t( A )\t( B )\tx\n",
            "neutral\ta man walks\the runs .\n",
        ),
    ],
)
def test_every_form_becomes_the_same(form, text, expected):
    done = run_pairs("snli", form, text)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == expected


@pytest.mark.parametrize(
    ("form", "text", "sentence"),
    [
        (
            "snli-small-train",
            "a\tb\tc\n\na\tb\tyes\n",
            "line 3: the label must be one of entailment, neutral, contradiction, but is 'yes'.",
        ),
        ("scitail-small", "a\tb\t2\n", "line 1: the label must be one of entailment, neutral, but is '2'."),
        ("scitail", "a\tb\tentailment\n", "but is 'entailment'. The source writes entails, neutral."),
        (
            "snli",
            "a\tb\n",
            "line 1: must name each of the columns gold_label, sentence1_binary_parse, sentence2_binary_parse once.",
        ),
    ],
)
def test_what_is_no_pair_is_named(form, text, sentence):
    done = run_pairs("snli", form, text)
    assert done.returncode == 2
    assert sentence in done.stderr.decode()


# mirrored_summation


@pytest.fixture(scope="module")
def plot():
    return load_program(EXAMPLES / "mirrored_summation" / "plot.py")


def write_errors(folder, errors, terms=(10,), **settings):
    """Files for {model: error}, times K / 10."""
    settings = {"profile": "cpu", "sentences": "1/1/1", "length": 100, "vector": 50, "width": 10, **settings}
    paths = []
    for (model, error), k in itertools.product(errors.items(), terms):
        path = folder / f"{model}-{k}-{settings['width']}.json"
        record = {
            "scores": {"mse": {"mean": error * k / 10}},
            "settings": {**settings, "model": model, "terms": k, "seed": 1},
        }
        path.write_text(json.dumps(record), encoding="utf-8")
        paths.append(path)
    return paths


@pytest.mark.parametrize(
    ("errors", "holds", "sentence"),
    [
        ((0.48, 0.47, 0.3, 0.1), True, "the published order holds"),
        ((0.48, 0.47, 0.3, 0.4), False, "the Transformer is not the best"),
        ((0.48, 0.2, 0.3, 0.1), False, "flex does not beat both stacks of small windows"),
        ((0.48, 0.35, 0.3, 0.1), False, "six layers of small windows win more than a little over two"),
    ],
)
def test_the_order_of_the_models_is_judged(plot, tmp_path, errors, holds, sentence):
    paths = write_errors(tmp_path, dict(zip(plot.MODELS, errors, strict=True)), terms=(10, 50))
    sentences, verdict = plot.judge(plot.read_results(paths).models)
    assert verdict is holds
    assert sentences == [f"K = {k}: {sentence}" for k in (10, 50)]


def test_without_all_models_nothing_is_judged(plot, tmp_path):
    results = plot.read_results(write_errors(tmp_path, {"flex": 0.3}))
    assert plot.judge(results.models) == ([], False)
    assert plot.make_table(results).splitlines()[2] == "| 10 | 0.4861 | 0.4028 | 0.0694 | 0.3000 |"


def test_landmarks_are_what_least_squares_reach(plot):
    terms, length, sentences = 4, 12, 40_000
    words = torch.rand(sentences, length, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    target = (words[:, :terms] * words.flip(1)[:, :terms]).sum(1)
    one = torch.ones(sentences, 1, dtype=torch.float64)
    for landmark, features in zip(plot.LANDMARKS, (one[:, :0], words.mean(1, keepdim=True), words), strict=True):
        features = torch.cat([one, features], dim=1)
        residual = target - features @ torch.linalg.lstsq(features, target[:, None]).solution[:, 0]
        assert residual.square().mean().item() == pytest.approx(landmark.error(terms, length), rel=0.03)


def test_results_of_other_sizes_are_refused(plot, tmp_path):
    paths = write_errors(tmp_path, {"flex": 0.3}) + write_errors(tmp_path, {"hier_s": 0.3}, width=20)
    with pytest.raises(ValueError, match="all files must have the same sizes"):
        plot.read_results(paths)


def test_results_of_other_trainings_are_refused(plot, tmp_path):
    paths = write_errors(tmp_path, {"flex": 0.3}, lr="0.0005") + write_errors(tmp_path, {"hier_s": 0.3}, lr="0.1")
    with pytest.raises(ValueError, match=r"must have the same settings to be compared, but lr is '0\.0005' and '0\.1'"):
        plot.read_results(paths)


def test_a_figure_is_drawn(plot, tmp_path):
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    paths = write_errors(tmp_path, dict.fromkeys(plot.MODELS, 0.3), terms=(10, 50))
    plot.draw(plot.read_results(paths), tmp_path / "figure.svg")
    drawn = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    for text in (
        "K, products in the sum",
        "mean squared error per number",
        *(landmark.name for landmark in plot.LANDMARKS),
        *plot.MODELS.values(),
    ):
        assert f"<!-- {text} -->" in drawn


def test_errors_are_read_out_of_logs(tmp_path):
    collect = load_program(EXAMPLES / "mirrored_summation" / "collect.py")
    log = tmp_path / "log"
    lines = [
        f"2026 | INFO | valid | epoch {n} | valid on 'valid' subset | loss {e} | mse {e} | pearson 0"
        for n, e in ((1, 0.5), (2, 3e-05))
    ]
    log.write_text("\n".join(lines), encoding="utf-8")
    assert collect.read_errors(log, "valid") == [0.5, 3e-05]
    with pytest.raises(ValueError, match="must state the mse of the subset test, but does not"):
        collect.read_errors(log, "test")


# recipe/results_table.py


def test_scores_of_sentence_models_have_columns(results_table, tmp_path):
    files = []
    for seed, accuracy in ((1, 80.0), (2, 81.0)):
        path = tmp_path / f"{seed}.json"
        scores = {"accuracy": accuracy, "macro_f1": 70.0, "entity_f1": 40.0, "mse": 0.00123, "pearson": 0.5}
        record = {
            "scores": {name: {"mean": value, "signature": "labels"} for name, value in scores.items()},
            "settings": {"model": "sentence_cnn", "seed": seed, "test_set": "test"},
        }
        path.write_text(json.dumps(record), encoding="utf-8")
        files += results_table.read_results(path)
    lines = results_table.make_table(files).splitlines()
    assert lines[0] == "| seeds | test: entity F1 | test: accuracy | test: macro F1 | test: MSE | training, s |"
    assert lines[2] == "| 1, 2 | 40.00 ± 0.00 | 80.50 ± 0.71 | 70.00 ± 0.00 | 0.0012 ± 0.0000 |  |"
