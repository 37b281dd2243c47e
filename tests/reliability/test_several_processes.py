"""Two processes train as one does with twice the ``--update-freq``: every model, by every way of starting them.

PyTorch's default exchange of gradients, over gloo, without ``--find-unused-parameters``: a parameter that takes no part
in an update would end the run. All models train in the same three processes (``training_pair.py``).
"""

import dataclasses
import fcntl
import importlib.util
import json
import math
import os
import random
import re
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.dataclass.configs import DistributedTrainingConfig
from fairseq.distributed import utils as distributed_utils
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY, build_model
from omegaconf import OmegaConf
from support.fairseq_commands import SMALL, USER_DIR, make_data
from support.helpers import REPOSITORY, assert_close, run_command, save_checkpoint
from support.sentence_models import MODELS, TRUNK, make_task, write_column, write_data

from muse_plugin.fairseq_repairs import several_cpu_processes

# float32. Two processes gave equal bits: a sum of two does not depend on their order, halving and doubling is exact.
ATOL = 1e-6

# Not Adam: it divides by the size of gradients, and where they are zero but for rounding, rounding would be trained.
TRAINING = [
    "--user-dir", USER_DIR, "--cpu", "--optimizer", "sgd", "--momentum", 0.9, "--lr", 0.2, "--clip-norm", 1.0,
    "--num-workers", 0, "--seed", 3, "--no-progress-bar", "--log-format", "simple", "--log-interval", 1,
]  # fmt: skip
TRANSLATE = [*SMALL, "--criterion", "label_smoothed_cross_entropy", "--label-smoothing", 0.1, "--max-tokens", 60]
# An odd number of batches: in the last update the second process has none.
CLASSIFY = ["--task", "muse_sentence_classification", "--criterion", "muse_sentence_classification", "--batch-size", 8]
COMPARE = ["--task", "head_wise_match", "--criterion", "muse_sentence_classification", "--batch-size", 8]
TAG = ["--task", "muse_sequence_tagging", "--criterion", "muse_sequence_tagging", "--batch-size", 8]
MIRROR = [
    "--task", "muse_mirrored_summation", "--criterion", "muse_sentence_regression", "--batch-size", 8,
    "--length", 4, "--vector-size", 2, "--terms", 2, "--train-sentences", 40, "--valid-sentences", 12,
]  # fmt: skip
LIMITED = [
    "--encoder-attention-bias", "multi-scale", "--encoder-attention-scales", "1,3,N/2,all",
    "--decoder-attention-bias", "multi-scale,distance", "--decoder-attention-scales", "1,2,all",
    "--decoder-distance-slopes", "learned",
]  # fmt: skip
ENCODER = ["--word-embed-dim", 10, "--encoder-embed-dim", 12, "--encoder-layers", 2, "--encoder-attention-heads", 4]
WINDOWS = ["--encoder-head-dim", 5, "--encoder-attention-scales", "1,3,N/4"]
PAIRS = {
    "head_wise_match_transformer": ENCODER,
    "head_wise_match_muse": ENCODER,
    "head_wise_match_multi_scale": [*ENCODER, *WINDOWS],
    "head_wise_match_translation": ["--translation-checkpoint", "{translation}"],
    "head_wise_match": ["--bert-dir", "{bert}", "--max-words", 14],  # of 16 positions
}


def flags_of(settings):
    return [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]


# By name: the model, the data in braces, and flags.
TRAININGS = {
    **{name: (name, "{texts}", TRANSLATE) for name in ("muse", "muse_simple", "plain_transformer")},
    "muse with limited attention": ("muse", "{texts}", [*TRANSLATE, *LIMITED]),
    **{
        name: (name, "{labels}", [*CLASSIFY, *flags_of({**TRUNK, **sizes})[: len(TRUNK)], *flags_of(sizes)])
        for name, sizes in MODELS.items()
    },
    **{name: (name, "{pairs}", [*COMPARE, "--match-dim", 12, *flags]) for name, flags in PAIRS.items()},
    "regression": ("multi_scale_transformer", None, [*MIRROR, *ENCODER[2:], *WINDOWS]),
    "tags with a CRF": ("sentence_bigru", "{tags}", [*TAG, "--crf", "--encoder-hidden-size", 7]),
}
NEEDS = {"head_wise_match": "transformers", "tags with a CRF": "torchcrf"}


def without_dropout(model):
    """Processes draw other random numbers than one process would."""
    names = MODEL_DATACLASS_REGISTRY[model].__dataclass_fields__
    unused = "classifier_" if model.startswith("head_wise_match") else "-"  # flags that this model refuses
    return {name: 0 for name in names if name.endswith("dropout") and not name.startswith(unused)}


def is_possible(name):
    return name not in NEEDS or importlib.util.find_spec(NEEDS[name]) is not None


def make_rows(size, generator, columns):
    """Sentences and a label. A batch of eight has one word in each: what links words then has nothing to do."""
    rows = []
    for number in range(size):
        lengths = [1 if number < 8 else generator.randint(2, 7) for _ in range(columns)]
        texts = [" ".join(generator.choices([f"w{i}" for i in range(12)], k=length)) for length in lengths]
        rows.append((*texts, generator.choice(["yes", "no", "maybe"])))
    return rows


def make_folders(folder):
    """The data of all trainings, by their names in ``TRAININGS``."""
    generator = random.Random(5)
    sizes = {"train": 40, "valid": 12}
    made = {"texts": make_data(folder / "texts", {"train": 40, "valid": 12})}
    for name, columns in (("labels", ("input0", "label")), ("pairs", ("input0", "input1", "label"))):
        splits = {split: make_rows(size, generator, len(columns) - 1) for split, size in sizes.items()}
        made[name] = write_data(folder / name, splits, columns)
    pieces = Dictionary()
    for piece in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{i}" for i in range(12))):
        pieces.add_symbol(piece)
    for side in range(2):
        for split, rows in splits.items():
            write_column(made["pairs"] / f"input{side}", split, [row[side] for row in rows], pieces)
    splits = {
        split: [(words, " ".join("AB"[int(word[1:]) % 2] for word in words.split())) for words, _ in rows]
        for split, rows in ((split, make_rows(size, generator, 1)) for split, size in sizes.items())
    }
    made["tags"] = write_data(folder / "tags", splits)
    made["translation"] = make_translation(folder / "translation.pt", pieces)
    if is_possible("head_wise_match"):
        from support.bert_folders import make_bert

        made["bert"] = folder / "bert"
        make_bert(made["bert"], vocab_size=len(pieces) - 4, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return made


def make_translation(path, dictionary):
    """The checkpoint of a translation model that nobody trained."""
    flags = {flag.lstrip("-").replace("-", "_"): int(value) for flag, value in (word.split("=") for word in SMALL)}
    args = Namespace(_name="muse", arch="muse", **flags, **without_dropout("muse"))
    model = build_model(args, make_task(source_dictionary=dictionary, target_dictionary=dictionary))
    cfg = {"common": {}, "task": {"_name": "translation"}, "criterion": {"_name": "cross_entropy"}, "model": vars(args)}
    return save_checkpoint(path, model.state_dict(), args=None, cfg=cfg)


def command(name, folders, *flags):
    model, data, settings = TRAININGS[name]
    words = [
        *([] if data is None else [data]),
        "--arch",
        model,
        *TRAINING,
        *settings,
        *flags_of(without_dropout(model)),
    ]
    return [str(word).format(**folders) for word in (*words, *flags)]


def run_python(*words, folder):
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests")])
    environment = {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}
    return run_command([sys.executable, *map(str, words)], cwd=folder, env=environment, timeout=280)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return make_folders(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def results(folders, tmp_path_factory):
    """Trains everything, once for all processes of pytest-xdist; returns what a process of the training wrote."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "several_processes"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "commands.json").exists():
            possible = filter(is_possible, TRAININGS)
            commands = {name: command(name, folders, "--no-save", "--max-epoch", 2) for name in possible}
            (folder / "commands.json").write_text(json.dumps(commands))
            run_python(Path(__file__).with_name("training_pair.py"), folder, folder=folder)

    def load(name, process):
        path = folder / f"{name}.{process}.pt"
        assert path.exists(), (folder / f"{process}.log").read_text()[-4000:]
        return torch.load(path)

    return load


def test_every_model_of_this_package_is_trained_here():
    trained = {model for model, _, _ in TRAININGS.values()}
    families = {MODEL_DATACLASS_REGISTRY[model] for model in trained}
    ours = {name for name, model in MODEL_REGISTRY.items() if model.__module__.startswith("muse_plugin")}
    assert len(ours) > 40
    # A preset's settings are those of its model with other defaults.
    missing = {name for name in ours if not families & set(MODEL_DATACLASS_REGISTRY[name].__mro__)}
    assert missing == set()


@pytest.mark.parametrize("name", TRAININGS)
def test_two_processes_train_as_one_with_twice_the_update_freq(name, results):
    if not is_possible(name):
        pytest.skip(f"needs {NEEDS[name]}")
    single, first, second = (results(name, process) for process in ("single", "rank0", "rank1"))
    assert len(single["losses"]) >= 6
    assert len(single["valid"]) == 2
    assert abs(single["losses"][-1] - single["losses"][0]) > 100 * ATOL, "something must be learnt"
    for part in ("losses", "norms", "valid"):
        assert_close(first[part], single[part], atol=ATOL, why=part)
    assert first["model"].keys() == single["model"].keys()
    for key, weight in single["model"].items():
        assert_close(first["model"][key], weight, atol=ATOL, why=key)
        assert_close(second["model"][key], first["model"][key], atol=0, rtol=0, why=f"{key} of both processes")


def test_muse_trains_under_pytorchs_fsdp_with_the_same_losses(results):
    single, first, second = (results("sharded", process) for process in ("single", "rank0", "rank1"))
    assert_close((first["losses"] + second["losses"]) / 2, single["losses"])
    assert single["losses"][-1] < single["losses"][0] - 0.1
    for key, weight in single["model"].items():
        assert_close(first["model"][key], weight, why=key)


TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]


# A training whose processes say at their end which of gloo's threads are left.
TRAIN = """
import atexit, os
from pathlib import Path
from fairseq_cli.train import cli_main

def threads():
    return [Path("/proc/self/task", thread, "comm").read_text().strip() for thread in os.listdir("/proc/self/task")]

def report():  # in one write, which the other process cannot cut in two
    os.write(1, f"left at the end: {[name for name in threads() if 'gloo' in name]}\\n".encode())

atexit.register(report)
cli_main()
"""


def numbers_of(log):
    """What training and validation printed, by number of updates."""
    return {int(n): float(loss) for loss, n in re.findall(r"train_inner .* loss=([\d.]+),.* num_updates=(\d+),", log)}


def test_torchrun_and_fairseqs_own_start_train_and_resume_as_one_process(folders, results, tmp_path):
    words = command("muse", folders, "--save-dir", tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    done = run_python(*TORCHRUN, tmp_path / "train.py", *words, "--max-update", 4, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    # A thread that outlives Python may abort its process, whose training is over.
    assert done.stdout.count("left at the end: []") == 2, done.stdout
    more = run_python(
        *("-m", "fairseq_cli.train", *words, "--distributed-world-size", 2, "--max-epoch", 2), folder=tmp_path
    )
    assert more.returncode == 0, more.stdout + more.stderr
    started, resumed = numbers_of(done.stdout + done.stderr), numbers_of(more.stdout + more.stderr)
    losses = results("muse", "single")["losses"].tolist()
    assert list(started) == [1, 2, 3, 4]
    assert list(resumed) == list(range(5, len(losses) + 1))
    for update, loss in (started | resumed).items():
        assert loss == pytest.approx(losses[update - 1] / math.log(2), abs=6e-4), update  # bits, as printed
    weights = torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)["model"]
    for key, weight in results("muse", "single")["model"].items():
        assert_close(weights[key], weight, atol=ATOL, why=key)


# ---- the repair ---------------------------------------------------------------------------------------------------


def make_settings(**settings):
    defaults = DistributedTrainingConfig(distributed_world_size=1, distributed_backend="nccl")
    return OmegaConf.merge(OmegaConf.structured(defaults), settings)


@pytest.fixture
def no_launcher(monkeypatch):
    for name in several_cpu_processes.TORCHRUN:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_nothing_is_repaired_on_a_machine_with_a_gpu(monkeypatch):
    repair = dataclasses.replace(several_cpu_processes.REPAIR)  # as in a process in which it is not applied yet
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert repair.is_needed()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert not repair.is_needed()


def test_torchrun_decides_about_the_number_of_processes_although_the_flag_is_left_out(no_launcher):
    values = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500", "WORLD_SIZE": "3", "RANK": "2"}
    for name, value in values.items():
        no_launcher.setenv(name, value)
    cfg = make_settings(device_id=2)
    several_cpu_processes.find_each_other(cfg)
    assert (cfg.distributed_world_size, cfg.distributed_rank, cfg.distributed_no_spawn) == (3, 2, True)
    assert (cfg.distributed_init_method, cfg.distributed_backend, cfg.device_id) == ("env://", "gloo", 0)


def test_processes_on_this_machine_meet_at_a_port_of_their_own(no_launcher):
    ports = set()
    for _ in range(5):
        random.seed(1)
        cfg = make_settings(distributed_world_size=2)
        several_cpu_processes.find_each_other(cfg)
        assert cfg.distributed_init_method == f"tcp://localhost:{cfg.distributed_port}"
        ports.add(cfg.distributed_port)
    assert len(ports) > 1
    assert ports <= set(several_cpu_processes.PORTS)
    chosen = make_settings(distributed_world_size=2, distributed_port=4321)
    several_cpu_processes.find_each_other(chosen)
    assert chosen.distributed_init_method == "tcp://localhost:4321"


def test_one_process_and_a_meeting_point_of_the_user_are_left_alone(no_launcher):
    alone = make_settings()
    several_cpu_processes.find_each_other(alone)
    assert alone.distributed_init_method is None
    named = make_settings(distributed_world_size=2, distributed_init_method="file:///there", distributed_backend="mpi")
    several_cpu_processes.find_each_other(named)
    assert (named.distributed_init_method, named.distributed_backend) == ("file:///there", "mpi")


def test_fairscales_fsdp_is_refused_without_a_gpu(no_launcher):
    no_launcher.setattr(distributed_utils, "call_main", lambda cfg, main: None)
    several_cpu_processes._replace_call_main()
    cfg = Namespace(distributed_training=make_settings(ddp_backend="fully_sharded"), common=Namespace(tpu=False))
    with pytest.raises(
        ValueError, match=r"^--ddp-backend fully_sharded needs a GPU, but there is none here: fairscale"
    ):
        distributed_utils.call_main(cfg, lambda cfg: None)
