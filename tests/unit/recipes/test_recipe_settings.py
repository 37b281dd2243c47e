"""What the environment may set for a recipe: everything is checked, all faults at once, before anything starts."""

import re
import subprocess

import pytest
from support.helpers import REPOSITORY, assert_refused, recipe_environment

EXAMPLES = REPOSITORY / "examples"
RECIPES = sorted(path.parent.name for path in EXAMPLES.glob("*/common.sh"))
# A folder, a file, an address or a list that the model checks: any text.
ANY_TEXT = {
    *("WORK_DIR", "RAW_DIR", "BERT_DIR", "TRANSLATION_DATA", "TRANSLATION_CHECKPOINT", "WORD_VECTORS", "RUN_DIR"),
    *("PYTHONPATH", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "GOMP_SPINCOUNT", "RDZV_ENDPOINT", "RDZV_ID", "ARCH"),
    *("SCALES", "SINGLES", "LEVELS", "TEACHER_DIR"),
    *("SLURM_NODEID", "SLURM_GPUS_ON_NODE", "SLURM_JOB_NUM_NODES"),  # of the cluster
}


def run_script(folder, script, **settings):
    environment = recipe_environment(**{"WORK_DIR": str(folder / "work"), **settings})
    return subprocess.run(
        ["bash", str(EXAMPLES / script)], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def check(folder, declared, **settings):
    """What check_settings says to one declaration."""
    program = f". '{EXAMPLES}/recipe/recipe.sh'\nrecipe=test\nset -euo pipefail\ncheck_settings '{declared}'"
    environment = recipe_environment(**settings)
    done = subprocess.run(["bash", "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == (2 if done.stderr else 0)
    return done.stderr.strip()


def find_read(text):
    return set(re.findall(r"\$\{([A-Z][A-Z0-9_]*)[:}?-]", text))


def find_declared(text):
    return set(re.findall(r"['\" ]([A-Z][A-Z0-9_]*)\+?=(?=[a-z0-9$])", text))


@pytest.mark.parametrize("recipe", [*RECIPES, "quickstart"])
def test_every_setting_that_a_recipe_reads_is_declared(recipe):
    shared = [path.read_text(encoding="utf-8") for path in (EXAMPLES / "recipe").glob("*recipe.sh")]
    scripts = [path.read_text(encoding="utf-8") for path in (EXAMPLES / recipe).glob("*.sh")]
    assert find_read("".join(scripts)) - find_declared("".join([*shared, *scripts])) <= ANY_TEXT
    assert find_read("".join(shared)) - find_declared("".join(shared)) <= ANY_TEXT


@pytest.mark.parametrize("script", ["prepare", "train", "evaluate"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_all_faults_are_named_at_once_before_anything_starts(tmp_path, recipe, script):
    wrong = {"SEED": "one", "TRIAL": "yes", "UPDATES": "0", "MAX_TOKENS": "1e3", "SUBWORDS": "word", "NUM_GPUS": "-1"}
    if not re.search("^start_recipe", (EXAMPLES / recipe / "common.sh").read_text(encoding="utf-8"), re.MULTILINE):
        wrong |= {"EPOCHS": "0", "LR": "abc", "BATCH": "0.5", "PATIENCE": "-1", "SEEDS": "1 b", "FREEZE_VECTORS": "2"}
    done = run_script(tmp_path, f"{recipe}/{script}.sh", SKIP_SETUP="1", **wrong)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"{recipe}: error: ")
    assert done.stderr.count("\n") == 1
    for name, value in wrong.items():
        assert re.search(rf"(; | error: ){name} must be .*? '{value.split()[-1]}'[;.]", done.stderr), name
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("script", "wrong"),
    [
        ("documents/train.sh", {"FOLDS": "0", "HEADS": "0", "MAX_WORDS": "none", "DATASET": "yelp"}),
        ("documents/heads.sh", {"ALL_HEADS": "1 0"}),
        ("mtl16/prepare.sh", {"DOMAIN": "MR cars", "CLEAN": "yes", "TEST": "both"}),
        ("recipe/vectors.sh", {"KIND": "glove", "DIM": "0", "WINDOW": "0", "VECTOR_EPOCHS": "0", "MIN_COUNT": "0"}),
        ("multi30k/train.sh", {"TARGET_LANG": "cs", "ATTENTION": "local", "PROFILE": "gpu", "BPE_DROPOUT": "1"}),
        ("iwslt14_de_en/prepare.sh", {"BIDIRECTIONAL": "yes", "MERGES": "0"}),
        ("multi30k/prepare.sh", {"BIDIRECTIONAL": "both", "JOINT": "2"}),
        ("wmt14_en_de/evaluate.sh", {"SUBSET": "train", "AVERAGED": "0"}),
        (
            "ner/train.sh",
            {"CHARACTERS": "lstm", "CRF": "yes", "THRESHOLD": "two", "FEATURES": "case", "WORD_DROPOUT": "1"},
        ),
        ("sst/scales.sh", {"ALPHAS": "1 x", "BINARY": "2", "TREES": "2", "WORD_DROPOUT": "1"}),
        ("snli/train.sh", {"DISTANCE_ALPHA": "far", "DATASET": "qnli"}),
        ("head_wise_match/train.sh", {"ENCODER": "bert gpt", "MATCH": "dot", "HIERARCHY": "2", "MATCH_DROPOUT": "2"}),
        ("head_wise_match/depth.sh", {"ALL_LAYERS": "2 0"}),
        ("mirrored_summation/train.sh", {"TERMS": "3 0", "PROFILE": "gpu"}),
        ("distill/prepare.sh", {"DATASET": "wmt14", "TEACHER": "bert", "SHARDS": "0", "LAYERS": "7-1", "WIDTH": "0"}),
        ("quickstart/run.sh", {"UPDATES": "0", "LR": "0", "DROPOUT": "1", "MERGES": "many", "FAST_TRIAL": "yes"}),
    ],
)
def test_the_settings_of_a_recipe_are_among_them(tmp_path, script, wrong):
    done = run_script(tmp_path, script, **wrong)
    assert done.returncode == 2
    for name, value in wrong.items():
        assert re.search(rf"(; | error: ){name} must be .*? '{value.split()[-1]}'[;.]", done.stderr), name


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("whole", ["0", "7", "123456789"], ["-1", "08", "1.5", "1234567890", "x"]),
        ("count", ["1", "10"], ["0", "00", "1e3", "1 2"]),
        ("number", ["-0.5", "0", "3.", ".5"], ["-", ".", "1e3", "nan"]),
        ("share", ["0", "0.1", ".9"], ["1", "1.0", "-0.1", "0,1"]),
        ("positive", ["0.0005", "2e-5", "1", ".5", "1.E+2"], ["0", "0.0", "0e5", "-1", "abc", "inf"]),
        ("none|multi-scale|both", ["none", "multi-scale"], ["multi", "none|both", "none both"]),
    ],
)
def test_kinds_of_settings(tmp_path, kind, good, bad):
    assert [value for value in good if check(tmp_path, f"DROPOUT={kind}", DROPOUT=value)] == []
    assert [value for value in bad if not check(tmp_path, f"DROPOUT={kind}", DROPOUT=value)] == []
    assert check(tmp_path, f"DROPOUT={kind}") == check(tmp_path, f"DROPOUT={kind}", DROPOUT="") == ""


def test_a_setting_may_have_several_values_and_many_choices(tmp_path):
    assert check(tmp_path, "TERMS+=count", TERMS=" 3 6 ") == ""
    sentence = "test: error: TERMS must be whole numbers of at least 1, but one is 'x'; TERMS must be whole numbers"
    assert check(tmp_path, "TERMS+=count", TERMS="3 x 0").startswith(sentence)
    blank = "test: error: TERMS must be whole numbers of at least 1, but is blank."
    assert check(tmp_path, "TERMS+=count", TERMS=" ") == blank
    twice = "test: error: TERMS has '3' twice; give it once."
    assert check(tmp_path, "TERMS+=count", TERMS="3 6 3") == twice
    assert check(tmp_path, "MODEL=muse transformer", MODEL="muse") == ""
    expected = "test: error: MODEL must be one of muse transformer, but is 'muse transformer'."
    assert check(tmp_path, "MODEL=muse transformer", MODEL="muse transformer") == expected
    assert check(tmp_path, "TEST=a|b|c", TEST="d") == "test: error: TEST must be a, b or c, but is 'd'."


@pytest.mark.parametrize(
    ("recipe", "settings", "sentence"),
    [
        (
            "iwslt14_de_en",
            {"KEEP": "20", "AVERAGED": "25"},
            "AVERAGED must be at most KEEP, but is 25, and KEEP is 20;",
        ),
        ("iwslt14_de_en", {"KEEP": "5"}, "AVERAGED must be at most KEEP, but is 10, and KEEP is 5; keep more."),
        (
            "multi30k",
            {"SUBWORDS": "none"},
            "SUBWORDS=none is for iwslt15_en_vi, whose paper has dictionaries of words;",
        ),
        ("iwslt15_en_vi", {"SUBWORDS": "none", "MERGES": "99"}, "SUBWORDS=none has no subwords, but MERGES, JOINT or "),
        (
            "iwslt14_de_en",
            {"DICTIONARY": "joined", "JOINT": "0"},
            "DICTIONARY=joined needs joint subwords, but JOINT is 0;",
        ),
        (
            "iwslt14_de_en",
            {"PROFILE": "cpu"},
            "PROFILE must be unset in this recipe, which does not read it, but is 'c",
        ),
        ("multi30k", {"SEEDS": "1 2"}, "SEEDS must be unset in this recipe, which does not read it, but is '1 2'."),
        ("mtl16", {"DOMAIN": "all MR"}, "DOMAIN must be all or some of them, but is 'all MR'; give one of both."),
        ("wmt14_en_fr", {"AVERAGED": "5"}, "AVERAGED and KEEP must not be set: one checkpoint is tested here"),
        ("wmt14_en_fr", {"KEEP": "5"}, "AVERAGED and KEEP must not be set: one checkpoint is tested here"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(tmp_path, recipe, settings, sentence):
    done = run_script(tmp_path, f"{recipe}/prepare.sh", SKIP_SETUP="1", **settings)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{recipe}: error: {sentence}")
    assert not list(tmp_path.rglob("settings.txt"))


@pytest.mark.parametrize("recipe", ["multi30k", "snli"])
def test_more_gpus_than_there_are_are_refused(tmp_path, recipe):
    (tmp_path / "work/en-de").mkdir(parents=True)
    (tmp_path / "work/en-de/.binarise.done").touch()
    done = run_script(tmp_path, f"{recipe}/train.sh", NUM_GPUS="9")
    assert done.returncode == 2
    expected = f"{recipe}: error: NUM_GPUS must be at most the GPUs that PyTorch sees here, 8, but is 9.\n"
    assert done.stderr == expected


SHARED_SETTINGS = {  # some of them
    "quickstart/run.sh": [],
    "multi30k/train.sh": ["WORK_DIR", "SEED", "SKIP_SETUP"],
    "documents/evaluate.sh": ["MODEL", "WARMUP", "WORD_VECTORS"],
    "documents/heads.sh": ["MODEL", "WARMUP"],
    "head_wise_match/depth.sh": ["MODEL", "WARMUP"],
    "sst/scales.sh": ["MODEL", "WARMUP"],
    "gallery/make.sh": [],
}


@pytest.mark.parametrize("script", list(SHARED_SETTINGS))
def test_help_prints_the_head_of_the_script_and_shared_settings_and_does_nothing(tmp_path, script):
    path = EXAMPLES / script
    words = ["bash", str(path), "--help"]
    environment = recipe_environment(WORK_DIR=str(tmp_path / "work"), RUN_DIR=str(tmp_path / "run"))
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=True)
    head = path.read_text(encoding="utf-8").split("\nset -euo pipefail\n")[0].splitlines()[1:]
    printed = done.stdout.splitlines()
    assert printed[: len(head)] == [line.removeprefix("#").removeprefix(" ") for line in head]
    named = " ".join(printed[len(head) :])
    assert (named == "") == (not SHARED_SETTINGS[script])
    assert all(f"  {name}=" in named for name in SHARED_SETTINGS[script])
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_the_authors_archive_has_its_own_merges(tmp_path):
    (tmp_path / "wmt16_en_de.tar.gz").touch()
    done = run_script(tmp_path, "wmt14_en_de/prepare.sh", RAW_DIR=str(tmp_path), MERGES="8000")
    assert_refused(done, "SUBWORDS must be bpe, JOINT 1 and MERGES 32000, but they are 'bpe', 1 and 8000.")
