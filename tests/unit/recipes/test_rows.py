"""ROW=: every row of MUSE's Tables 2, 3 and 5 to 7 as a training of its own, with its published score."""

import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY
from support.helpers import REPOSITORY, assert_refused, recipe_environment, run_command
from support.recipes import read_settings, run_recipe, run_written_down
from support.reference import make_dictionary

TOOLS = REPOSITORY / "examples" / "recipe"
WIDTH, FFN, HEADS, LAYERS = 384, 768, 4, 12
SYMBOLS = (8848, 6632)
SIMPLE = 43_991_040 - LAYERS * 2 * WIDTH  # the authors' log, less the layer norms that their program never uses
# What one layer has beyond MUSE-simple: the second half of the output matrix, and kernels.
OUT = WIDTH * WIDTH


def kernels(*sizes):
    """Of one layer: a logit for each head and weight, and the gate."""
    return WIDTH * HEADS * sum(sizes) + (len(sizes) if len(sizes) > 1 else 0)


MUSE = SIMPLE + 2 * LAYERS * (OUT + kernels(3, 15))
OWN_VALUES = WIDTH * WIDTH + WIDTH  # an input projection of the convolution
FFN_SIZE = WIDTH * FFN + FFN + FFN * WIDTH + WIDTH


def six_layers(width, ffn, inner):
    """6+6 layers whose first part has ``inner`` parameters."""
    encoder = inner + 2 * width + 2 * width * ffn + ffn + width
    return 6 * (2 * encoder + 4 * (width**2 + width)) + (SYMBOLS[0] + 2 * SYMBOLS[1]) * width


def make_dynamicconv(width=512, ffn=1024, heads=4):
    """fairseq's: a linear layer, kernels predicted from its result, a bias, a linear layer; 7+6 layers."""
    linear, norm = width * width + width, 2 * width
    layers = {"encoder": (3, 7, 15, 31, 31, 31, 31), "decoder": (3, 7, 15, 31, 31, 31)}
    total = (SYMBOLS[0] + 2 * SYMBOLS[1]) * width
    for side, sizes in layers.items():
        for size in sizes:
            total += 2 * linear + width * heads * size + width + 2 * norm + 2 * width * ffn + ffn + width
            total += (4 * linear + norm) * (side == "decoder")
    return total


HALF = 360  # of long-short range attention
# By row: published score, published parameters in millions, parameters by hand with the published dictionaries.
ROWS = {
    "transformer": (35.3, 41, 42_864_640),
    "transformer_12l_512": (35.0, 74, 74_407_936),
    "dynamicconv": (35.7, None, make_dynamicconv()),
    "muse_simple": (35.8, 44, SIMPLE),
    "muse_simple_6l_512": (35.0, 41, six_layers(512, 1024, 4 * (512**2 + 512))),
    "muse_simple_6l": (35.3, 41, six_layers(512, 1024, 4 * (512**2 + 512))),
    **{
        f"separate_conv_{k}": (score, None, SIMPLE + 2 * LAYERS * (OUT + OWN_VALUES + WIDTH * WIDTH * k))
        for k, score in ((3, 35.2), (5, 35.0), (7, 34.5))
    },
    "long_short_range": (
        *(35.1, 50),
        six_layers(720, 512, 4 * (HALF**2 + HALF) + HALF * HEADS * 18 + 2 + 720**2 + 720),
    ),
    "separate_depthconv_3": (34.9, None, SIMPLE + 2 * LAYERS * (OUT + OWN_VALUES + kernels(3))),
    **{
        f"shared_depthconv_{k}": (score, None, SIMPLE + 2 * LAYERS * (OUT + kernels(k)))
        for k, score in ((3, 36.2), (7, 36.2), (15, 36.0), (31, 35.8))
    },
    "growing_kernels": (35.9, None, SIMPLE + 2 * (LAYERS * OUT + 3 * sum(map(kernels, (3, 7, 15, 31))))),
    "muse": (36.3, 49, MUSE),
    "no_ffn": (33.5, None, MUSE - LAYERS * FFN_SIZE),
    **{
        # A second projection of the width of the model, which both read, in the place of W_1, and W_2 of that width.
        f"ffn_shares_conv_{k}": (
            *(score, None),
            MUSE + LAYERS * (kernels(k) - kernels(3, 15) + 2 * OWN_VALUES - FFN_SIZE),
        )
        for k, score in ((3, 35.2), (7, 35.1), (15, 34.7), (31, 34.2))
    },
}
NOT_OF_MULTI30K = {"transformer_12l_512", "muse_simple_6l_512", "muse_simple_6l"}


def read_table():
    """The lines of rows.tsv by name, each by column."""
    text = (TOOLS / "rows.tsv").read_text(encoding="utf-8")
    header, *lines = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    assert len({line[0] for line in lines}) == len(lines)
    return {line[0]: dict(zip(header, line, strict=True)) for line in lines}


def build(args, symbols=SYMBOLS):
    """The model of the arguments, without memory for its parameters."""
    dictionaries = [make_dictionary(size) for size in symbols]
    task = SimpleNamespace(source_dictionary=dictionaries[0], target_dictionary=dictionaries[-1])
    with torch.device("meta"):
        return ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_table_has_every_row_with_its_published_score_and_an_interval_around_it():
    table = read_table()
    assert list(table) == list(ROWS)
    for name, (score, parameters, _) in ROWS.items():
        line = table[name]
        assert float(line["published"]) == score
        assert float(line["low"]) < score < float(line["high"])
        assert line["parameters"] == ("-" if parameters is None else str(parameters))
        assert (line["multi30k"] == "no") == (name in NOT_OF_MULTI30K)
        assert line["model"] in ARCH_MODEL_REGISTRY or line["model"] == "dynamicconv"


@pytest.mark.parametrize("row", ROWS)
def test_a_row_trains_the_published_model_with_the_settings_of_all_rows(tmp_path, row):
    args = read_settings(tmp_path, "iwslt14_de_en", ROW=row)
    assert (args.lr, args.dropout, args.clip_norm, args.max_update) == ([0.001], 0.4, 25, 20000)
    assert args.data.endswith("/work/data/bin")
    assert args.save_dir.endswith(f"/work/{row}-seed1/checkpoints")
    _, published, parameters = ROWS[row]
    assert count(build(args)) == parameters
    if published is not None:
        assert parameters / 1e6 == pytest.approx(published, rel=0.05)


@pytest.mark.parametrize("row", ["growing_kernels", "dynamicconv", "no_ffn", "long_short_range", "ffn_shares_conv_7"])
def test_a_row_has_the_sizes_of_multi30k_there(tmp_path, row):
    args = read_settings(tmp_path, "multi30k", ROW=row)
    assert args.save_dir.endswith(f"/work/en-de-{row}-seed1/checkpoints")
    assert (args.encoder_layers, args.encoder_embed_dim, args.lr) == (4, 128, [0.005])
    assert count(build(args, (9912,))) < 3e6


def test_dynamicconv_has_as_many_parameters_as_the_other_models_of_multi30k(tmp_path):
    models = ("transformer", "muse", "dynamicconv")
    sizes = [count(build(read_settings(tmp_path / name, "multi30k", MODEL=name), (9912,))) for name in models]
    assert max(sizes) < 1.01 * min(sizes)


def test_rows_of_the_speed_model_differ_in_the_initialisation_alone(tmp_path):
    rows = ("muse_simple_6l", "muse_simple_6l_512")
    speed, plain = (read_settings(tmp_path / row, "iwslt14_de_en", ROW=row) for row in rows)
    assert (speed.input_init, speed.output_init) == (3.0, 0.0)
    assert getattr(plain, "input_init", None) is getattr(plain, "output_init", None) is None
    assert str(build(speed)).split("\n")[1:] == str(build(plain)).split("\n")[1:]  # but for the name of the class


def test_a_row_that_is_a_model_is_that_model(tmp_path):
    by_row = read_settings(tmp_path / "a", "iwslt14_de_en", ROW="muse_simple")
    by_model = read_settings(tmp_path / "b", "iwslt14_de_en", MODEL="muse_simple")
    assert by_row.save_dir.rpartition("/work/")[2] == by_model.save_dir.rpartition("/work/")[2]
    kept = [(tmp_path / name / "work/muse_simple-seed1/settings.txt").read_text() for name in "ab"]
    assert kept[0] == kept[1]


@pytest.mark.parametrize("recipe", ["iwslt14_de_en", "multi30k"])
def test_help_prints_the_rows(tmp_path, recipe):
    done = run_recipe(recipe, "train", ROW="help", WORK_DIR=str(tmp_path / "work"))
    assert done.returncode == 0
    printed = {line.split()[0]: line for line in done.stdout.splitlines()[1:]}
    assert list(printed) == list(ROWS)
    assert " 34.9 " in printed["separate_depthconv_3"]
    assert " 34.3-35.3 " in printed["separate_depthconv_3"]
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    ("recipe", "settings", "sentence"),
    [
        ("iwslt14_de_en", {"ROW": "no_conv"}, f"ROW must be one of help {' '.join(ROWS)}, but is 'no_conv'."),
        (
            "multi30k",
            {"ROW": "transformer_12l_512"},
            "ROW must be a row of multi30k, but transformer_12l_512 (Transformer, 12+12 layers, width 512) is none; "
            "train it by examples/iwslt14_de_en.",
        ),
        (
            "iwslt14_de_en",
            {"ROW": "no_ffn", "MODEL": "transformer"},
            "ROW=no_ffn is a row of MODEL=muse, but MODEL is transformer; set ROW alone.",
        ),
        (
            "iwslt14_de_en",
            {"ROW": "no_ffn", "BIDIRECTIONAL": "pretrain"},
            "ROW=no_ffn is trained in one direction, but BIDIRECTIONAL is pretrain; set one of them.",
        ),
        (
            "multi30k",
            {"ROW": "no_ffn", "ATTENTION": "both"},
            "ROW=no_ffn has its own attention, but ATTENTION is both; set one of them.",
        ),
        (
            "wmt14_en_de",
            {"ROW": "no_ffn"},
            "ROW must be unset in this recipe, but is 'no_ffn'; rows of the tables are trained by iwslt14_de_en and "
            "multi30k.",
        ),
    ],
)
def test_a_row_that_does_not_fit_is_refused_before_training(tmp_path, recipe, settings, sentence):
    done = run_recipe(recipe, "train", WORK_DIR=str(tmp_path / "work"), **settings)
    assert done.returncode == 2
    assert done.stderr == f"{recipe}: error: {sentence}\n"


@pytest.mark.parametrize(
    ("recipe", "kept", "note"),
    [
        ("iwslt14_de_en", "merges=10000", None),
        ("iwslt14_de_en", "merges=8000\nsubwords=sentencepiece:unigram", "other data (here merges=8000, subwords="),
        ("multi30k", "merges=10000", "IWSLT14, so there will be no verdict"),
    ],
)
def test_a_row_whose_score_was_published_for_other_data_is_told_so_before_training(tmp_path, recipe, kept, note):
    data = tmp_path / "work" / ("data" if recipe == "iwslt14_de_en" else "en-de")
    data.mkdir(parents=True)
    (data / "settings.txt").write_text(f"{kept}\ntrial=0\nflags=\n")
    (data / ".binarise.done").touch()
    settings = {"ROW": "no_ffn", "SUBWORDS": "sentencepiece" if "subwords=" in kept else "bpe"}
    done = run_written_down(tmp_path, recipe, "train", programs={"fairseq-train": "true"}, **settings)
    assert done.returncode == 0, done.stderr
    before = done.stdout.partition("(its output:")[0]
    assert ("note: the score of no_ffn was published for" in before) == (note is not None)
    assert note is None or note in before


# ---- ablation.sh -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"ROWS": "muse nothing"}, "ROWS must be one or more of transformer "),
        ({"RECIPE": "tatoeba_de_en"}, "RECIPE must be iwslt14_de_en or multi30k, but is 'tatoeba_de_en'."),
        ({"SEEDS": "1 x"}, "SEEDS must be whole numbers, but one is 'x'."),
        ({"ROW": "muse"}, "ROWS and SEEDS say what is trained, but ROW, MODEL or SEED is set as well; unset it."),
        ({"RECIPE": "multi30k", "ROWS": "muse muse_simple_6l"}, "ROW must be a row of multi30k, but muse_simple_6l ("),
    ],
)
def test_an_ablation_with_wrong_settings_is_refused_before_anything_starts(tmp_path, settings, sentence):
    environment = recipe_environment(WORK_DIR=str(tmp_path / "work"), RAW_DIR=str(tmp_path / "raw"), **settings)
    done = run_command(["bash", str(TOOLS / "ablation.sh")], cwd=REPOSITORY, env=environment, timeout=60)
    assert_refused(done, sentence)
    assert not list(tmp_path.rglob("*.log"))


def write_run(folder, bleu, seed, published=True, test_set="test"):
    folder.mkdir()
    settings = {"seed": seed, "test_set": test_set, **({"published": "36.3"} if published else {})}
    record = {"scores": {"tokenized_bleu": {"mean": bleu, "signature": "x"}}, "settings": settings}
    (folder / "results.json").write_text(str(record).replace("'", '"'))
    return str(folder)


def tabulate(*words):
    command = [sys.executable, str(TOOLS / "ablation_table.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": ""})


def test_measured_scores_stand_next_to_the_published_ones(tmp_path):
    runs = [f"muse={write_run(tmp_path / str(n), bleu, n)}" for n, bleu in ((1, 36.0), (2, 36.4))]
    runs.append(f"separate_depthconv_3={write_run(tmp_path / 'other', 35.0, 1, published=False)}")
    done = tabulate(*runs, "--output", str(tmp_path / "ablation.md"))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "| row | what it is | table | published (IWSLT14) | test, measured | seeds |"
    assert lines[2].endswith("| 2, 6, 7 | 36.3 | 36.20 ± 0.28 | 1, 2 |")
    assert lines[3].endswith("| 6 | 34.9 (-1.4) | 35.00 (-1.20) * | 1 |")
    assert "not the published setting" in done.stdout
    assert (tmp_path / "ablation.md").read_text() == done.stdout


def test_kept_runs_are_rows_too(tmp_path):
    scores = {"tokenized_bleu": {"mean": 30.0, "signature": "x"}}
    kept = [{"scores": scores, "settings": {"seed": 1, "row": "no_ffn"}}, {"scores": scores, "settings": {"seed": 1}}]
    (tmp_path / "runs.jsonl").write_text("".join(json.dumps(record) + "\n" for record in kept))
    run = write_run(tmp_path / "a", 31.0, 2)
    done = tabulate(f"muse={run}", str(tmp_path / "runs.jsonl"), "--recipe", "multi30k")
    assert done.returncode == 0, done.stderr
    assert [line.split("|")[1].strip() for line in done.stdout.splitlines()[2:4]] == ["`muse`", "`no_ffn`"]
    assert "30.00 (-1.00)" in done.stdout


def test_a_row_of_which_nothing_is_published_may_be_added(tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("recipe.sh", "rows.tsv", "ablation_table.py", "results_table.py", "markdown_table.py", "tab_table.py"):
        shutil.copy(TOOLS / name, tools)
    line = ["own_encoder", "-", "muse", "--arch muse_tiny", "no", "-", "-", "-", "-", "-", "an encoder of our own"]
    with (tools / "rows.tsv").open("a", encoding="utf-8") as file:
        file.write("\t".join(line) + "\n")
    shown = subprocess.run(
        ["bash", "-c", f". {tools}/recipe.sh; show_rows"], capture_output=True, text=True, check=True
    ).stdout.splitlines()[-1]
    assert shown.split(maxsplit=5) == ["own_encoder", *"----", "an encoder of our own (not for iwslt14_de_en)"]
    runs = [f"{row}={write_run(tmp_path / row, bleu, 1)}" for row, bleu in (("muse", 36.0), ("own_encoder", 36.5))]
    command = [sys.executable, str(tools / "ablation_table.py"), *runs, "--recipe", "multi30k"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[3] == "| `own_encoder` | an encoder of our own | - |  | 36.50 (+0.50) | 1 |"
    assert "Other data and sizes than the published ones" in done.stdout


def test_a_row_that_is_none_is_named(tmp_path):
    done = tabulate(f"muze={write_run(tmp_path / 'run', 36.0, 1)}")
    assert done.returncode == 2
    assert done.stderr.startswith("ablation_table: error: a row must be one of transformer, ")
    assert done.stderr.endswith(", but got muze.\n")


def test_a_run_without_results_is_named(tmp_path):
    done = tabulate(f"muse={tmp_path}")
    assert done.returncode == 2
    assert done.stderr == (
        f"ablation_table: error: a run must have results.json or results/*.json, but {tmp_path} has none; "
        "run evaluate.sh.\n"
    )
