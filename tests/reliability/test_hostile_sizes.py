"""Files that claim more than they hold, or hold what nobody expects: refused in one sentence, and soon.

``budget`` is what a file may cost before it is refused, whatever is in it.
"""

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import zipfile
from argparse import Namespace

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.options import get_training_parser, parse_args_and_arch
from omegaconf import OmegaConf
from support.helpers import assert_close, run_python
from support.memory_limit import budget, limited_memory
from support.pickled_call import Call
from torch import nn

from muse_plugin.checkpoints.authors_format import convert_checkpoint
from muse_plugin.checkpoints.averaging import average_checkpoints
from muse_plugin.checkpoints.model_loading import build_model, read_state
from muse_plugin.checkpoints.model_outline import outlines
from muse_plugin.checkpoints.safe_loading import load_checkpoint
from muse_plugin.files.atomic_files import open_atomically
from muse_plugin.files.built_folder import build_folder
from muse_plugin.inference import resumable_output
from muse_plugin.inference.resumable_output import PartialOutput
from muse_plugin.pretrained.bert_weights import read_bert_sizes
from muse_plugin_command import cli

SHORT = 1000  # characters of a sentence
PROGRESS = {
    "optimizer_history": [{"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 3}],
    "extra_state": {"train_iterator": {"epoch": 1}},
    "task_state": {},
}


# ---- archives --------------------------------------------------------------------------------------------------------


def parts_of(state):
    """The parts of an archive of torch, by name."""
    file = io.BytesIO()
    torch.save(state, file)
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("double", ["archive/data.pkl", "archive/DATA.PKL", "archive/data/0", "archive/Data/0"])
def test_two_parts_of_one_name_are_refused_also_when_their_case_differs(tmp_path, double):
    harmless = parts_of({"model": {"w": torch.zeros(2)}})
    bomb = parts_of({"model": {"w": torch.zeros(2)}, "x": Call(bytearray, 1 << 31)})
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr(double, bomb["archive/data.pkl"] if "data.pkl" in double.lower() else b"\0" * 8)
        for name, content in harmless.items():
            archive.writestr(name, content)
    with budget(), pytest.raises(ValueError, match=rf"more than one part named {double.lower()}"):
        load_checkpoint(tmp_path / "a.pt")


# ---- sizes in the settings of a checkpoint ---------------------------------------------------------------------------


def change_state(folder, path, **settings):
    """A checkpoint of the folder with other settings of its model."""
    state = torch.load(folder / "checkpoint_avg.pt", weights_only=True)
    for name, value in settings.items():
        setattr(state["cfg"]["model"], name, value)
    torch.save(state, path)


def translate(folder, path, capsys):
    """The error of ``muse-plugin translate``, within the budget."""
    with budget():
        assert cli.main(["translate", "--path", str(path), "--data", str(folder), "--cpu"]) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert len(error) < SHORT
    return error


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"encoder_ffn_embed_dim": 8_000_000}, "size mismatch"),
        ({"encoder_embed_dim": 20_000, "decoder_embed_dim": 20_000}, "size mismatch"),
        ({"encoder_kernel_sizes": "[40000001]"}, "size mismatch"),
        ({"encoder_kernel_sizes": str([3] * 300_000)}, "setting encoder_kernel_sizes asks"),
        ({"max_source_positions": 60_000_000}, r"ask for a model of [\d,]+ numbers, but it holds"),
        ({"encoder_layers": 3_000_000}, "layers asks for more than"),
        ({"decoder_layers": 3_000_000}, "layers asks for more than"),
    ],
    ids=["hidden", "width", "kernel", "kernels", "positions", "layers", "decoder_layers"],
)
def test_sizes_in_settings_beyond_the_parameters_are_refused(tmp_path, checkpoint_folder, capsys, settings, sentence):
    change_state(checkpoint_folder, tmp_path / "a.pt", **settings)
    assert re.search(sentence, translate(checkpoint_folder, tmp_path / "a.pt", capsys))


def test_parameters_that_share_their_numbers_do_not_excuse_a_large_model(tmp_path, checkpoint_folder, capsys):
    sizes = {"encoder_layers": 40, "encoder_ffn_embed_dim": 100_000}
    change_state(checkpoint_folder, tmp_path / "a.pt", **sizes)
    state = torch.load(tmp_path / "a.pt", weights_only=True)
    task = tasks.setup_task(OmegaConf.create(state["cfg"], flags={"allow_objects": True}).task, from_checkpoint=True)
    with outlines(tmp_path, 100_000):
        shapes = {name: tensor.shape for name, tensor in task.build_model(state["cfg"]["model"]).state_dict().items()}
    numbers = torch.zeros(max(shape.numel() for shape in shapes.values()))
    state["model"] = {name: numbers[: shape.numel()].view(shape) for name, shape in shapes.items()}
    torch.save(state, tmp_path / "a.pt")
    assert "ask for a model of" in translate(checkpoint_folder, tmp_path / "a.pt", capsys)


@pytest.mark.parametrize("arch", ["transformer_tiny", "lstm", "lightconv", "bart_base", "muse_large"])
def test_the_outline_of_any_architecture_takes_no_memory_and_fits(tmp_path, checkpoint_folder, arch):
    words = f"{checkpoint_folder} --arch {arch} --source-lang de --target-lang en"
    settings = convert_namespace_to_omegaconf(parse_args_and_arch(get_training_parser(), words.split()))
    task = tasks.setup_task(settings.task)
    with limited_memory(300 << 20), outlines(tmp_path, 10_000):
        outline = task.build_model(settings.model)
    assert all(parameter.is_meta for parameter in outline.parameters())
    assert sum(parameter.numel() for parameter in outline.parameters()) > 1e5


def test_no_more_parts_are_built_than_a_file_has_parameters_for(tmp_path):
    with outlines(tmp_path, 30):
        nn.Sequential(*(nn.Linear(2, 2) for _ in range(10)))
        with pytest.raises(ValueError, match="more than 30 parts"):
            nn.Linear(2, 2)
    nn.Linear(2, 2)


def test_a_bert_of_more_layers_than_there_are_is_refused(tmp_path):
    sizes = {"vocab_size": 10, "hidden_size": 2, "num_attention_heads": 1, "intermediate_size": 2}
    sizes |= {"num_hidden_layers": 300_000, "max_position_embeddings": 8}
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    os.truncate(tmp_path / "pytorch_model.bin", 1 << 36)
    with budget(), pytest.raises(ValueError, match="at most 1,000 layers, but num_hidden_layers is 300,000"):
        read_bert_sizes(tmp_path)


def authors_state(**options):
    """A checkpoint of the authors' program with one tiny parameter."""
    args = {"bm": 0, "combine": 1, "attn_dynamic_type": 2, "attn_wide_kernels": "[3]", "attn_dynamic_cat": 1}
    args |= {f"{side}_{name}": 4 for side in ("encoder", "decoder") for name in ("attention_heads", "embed_dim")}
    name = options.pop("parameter", "encoder.layers.0.fc1.weight")
    return {"args": Namespace(**{**args, **options}), "model": {name: torch.zeros(4, 4)}}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"encoder_layers": 4_000_000}, "must have at most as many layers as parameters, but encoder has 4,000,000"),
        ({"parameter": "encoder.layers.5000000.fc1.weight"}, "at most as many layers .* but encoder has 5,000,001"),
        ({"attn_wide_kernels": str([3] * 2_000_000)}, "at most as many kernels as parameters, but it has 2,000,000"),
        ({"encoder_attention_heads": None}, "encoder_attention_heads must be a positive number, but is None"),
    ],
    ids=["layers", "number", "kernels", "heads"],
)
def test_sizes_beyond_the_parameters_are_not_converted(tmp_path, options, sentence):
    torch.save(authors_state(**options), tmp_path / "a.pt")
    state = load_checkpoint(tmp_path / "a.pt")
    with budget(), pytest.raises(ValueError, match=sentence) as fault:
        convert_checkpoint(state)
    assert len(str(fault.value)) < SHORT


def test_the_state_of_an_optimizer_is_no_larger_than_what_is_stored_of_it(tmp_path):
    moments = {"exp_avg": torch.zeros(1, dtype=torch.half).expand(700_000_000)}
    state = {"model": {"w": torch.zeros(2)}, "last_optimizer_state": {"state": {0: moments}}}
    torch.save(state | PROGRESS, tmp_path / "a.pt")
    for load in (load_checkpoint, lambda path: checkpoint_utils.load_checkpoint_to_cpu(str(path))):
        with (
            budget(),
            pytest.raises(ValueError, match=r"exp_avg has the shape \(700000000,\), but not all of its numb"),
        ):
            load(tmp_path / "a.pt")


# ---- files that settings name ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["transformer", "muse_tiny"])
@pytest.mark.parametrize("setting", ["encoder_embed_path", "decoder_embed_path"])
@pytest.mark.parametrize("form", ["checkpoint_avg.pt", "checkpoint_of_old_fairseq.pt"])
def test_no_file_that_a_setting_names_is_read(tmp_path, checkpoint_folder, form, setting, arch):
    state = torch.load(checkpoint_folder / form, weights_only=True)
    settings = state["args"] or state["cfg"]["model"]
    setattr(settings, setting, "/dev/zero")
    setattr(settings, "arch" if state["args"] else "_name", arch)
    torch.save(state, tmp_path / "a.pt")
    with budget():
        read = read_state(tmp_path / "a.pt", {"data": str(checkpoint_folder)})
        settings = read["cfg"].model
        with contextlib.suppress(ValueError):  # parameters of muse are none of the Transformer's
            build_model(tmp_path / "a.pt", read, {}, checkpoint_folder)
    assert getattr(settings, setting) is None


# ---- lists that are more than they seem ------------------------------------------------------------------------------


def nest(depth):
    """A list of ten lists of ten lists ..., each of them stored once."""
    inner = []
    for _ in range(depth):
        inner = [inner] * 10
    return inner


def hold_itself():
    itself = []
    itself += [itself, itself]
    return itself


EXCESS = {
    "nested": lambda: nest(7),
    "nested tuples": lambda: (((((((("x",) * 10,) * 10,) * 10,) * 10,) * 10,) * 10,) * 10,) * 10,
    "itself": hold_itself,
    "itself, inside": lambda: {"a": [1, {"b": hold_itself()}]},
    "expanded": lambda: Call(list, torch.zeros(1).expand(20_000_000)),
    "set": lambda: Call(set, torch.zeros(1).expand(20_000_000)),
    "parameter": lambda: Call(list, nn.Parameter(torch.zeros(1).expand(20_000_000))),
    "copies": lambda: (lambda items: [Call(list, items) for _ in range(1000)])(["x"] * 100_000),
    "copies of copies": lambda: Call(list, Call(list, torch.zeros(1).expand(20_000_000))),
}


@pytest.mark.parametrize("is_archive", [True, False], ids=["archive", "before_1_6"])
@pytest.mark.parametrize("kind", EXCESS)
def test_lists_that_are_more_than_they_seem_are_refused(tmp_path, kind, is_archive):
    state = {"model": {"w": torch.zeros(2)}, "cfg": {"task": {"x": EXCESS[kind]()}}, **PROGRESS}
    torch.save(state, tmp_path / "a.pt", _use_new_zipfile_serialization=is_archive)
    for load in (load_checkpoint, lambda path: checkpoint_utils.load_checkpoint_to_cpu(str(path))):
        with budget(), pytest.raises(ValueError, match=r"a\.pt is refused: it (copies|holds)"):
            load(tmp_path / "a.pt")


def test_ordinary_large_contents_are_read(tmp_path):
    words = [f"word{number}" for number in range(20_000)]
    state = {"model": {"w": nn.Parameter(torch.zeros(2))}, "x": words, "y": [words] * 3, "z": np.zeros(100_000)}
    torch.save({**state, "n": Namespace(**dict.fromkeys(words, 1))}, tmp_path / "a.pt")
    assert len(load_checkpoint(tmp_path / "a.pt")["y"]) == 3


# ---- links, names, numbers, leftovers --------------------------------------------------------------------------------


def state_of_unfinished(lines):
    return {
        "format_version": resumable_output.FORMAT_VERSION,
        "made_by": {},
        "lines": lines,
        "input_bytes": 2 * lines,
        "input_sha256": hashlib.sha256(b"a\n" * lines).hexdigest(),
        "output_bytes": 2 * lines,
    }


@pytest.mark.parametrize("kind", ["restart", "no lines", "one line", "lock"])
def test_nothing_is_written_through_a_link_beside_an_output(tmp_path, kind):
    (tmp_path / "in").write_text("a\na\n")
    (tmp_path / "precious").write_text("precious")
    partial = "out.partial.lock" if kind == "lock" else "out.partial"
    (tmp_path / partial).symlink_to(tmp_path / "precious")
    if "line" in kind:
        content = state_of_unfinished(int(kind == "one line"))
        (tmp_path / "out.partial.json").write_text(json.dumps(content))
    with contextlib.suppress(FileExistsError, ValueError):
        with PartialOutput(tmp_path / "in", tmp_path / "out", {}, restart=kind == "restart") as output:
            output.append(b"b\n", 1, can_go_on=True)
        assert kind == "restart"
    assert (tmp_path / "precious").read_text() == "precious"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_average_names_a_parameter_that_is_not_finite(tmp_path, value):
    paths = [tmp_path / "a.pt", tmp_path / "b.pt"]
    for path, number in zip(paths, (1.0, value), strict=True):
        torch.save({"model": {"fine": torch.ones(2), "bad": torch.tensor([1.0, number])}, **PROGRESS}, path)
    with pytest.raises(ValueError, match=r"must be finite, but bad in .*b\.pt holds NaN or infinity"):
        average_checkpoints(paths)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_average_of_large_numbers_is_their_mean(tmp_path, dtype):
    paths = [tmp_path / f"{number}.pt" for number in range(3)]
    for path in paths:
        torch.save({"model": {"w": torch.tensor([3e38, -3e38, 1.0], dtype=dtype)}, **PROGRESS}, path)
    averaged = average_checkpoints(paths)["model"]["w"]
    assert_close(averaged, torch.tensor([3e38, -3e38, 1.0], dtype=dtype))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_translate_names_a_parameter_that_is_not_finite(tmp_path, checkpoint_folder, capsys, value):
    state = torch.load(checkpoint_folder / "checkpoint_avg.pt", weights_only=True)
    name = next(name for name in state["model"] if name.startswith("decoder.layers.0"))
    state["model"][name].view(-1)[0] = value
    torch.save(state, tmp_path / "a.pt")
    assert f"must be finite, but {name} in" in translate(checkpoint_folder, tmp_path / "a.pt", capsys)


@pytest.mark.parametrize("name", ["a" * 245, "a" * 255, "ä" * 127])
def test_a_file_may_have_the_longest_name_that_there_is(tmp_path, name):
    with open_atomically(tmp_path / name) as file:
        file.write(b"x")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_limit_on_the_size_of_files_gives_one_sentence(tmp_path):
    path = tmp_path / "a.pt"
    torch.save({"model": {"w": torch.zeros(1_000_000)}, **PROGRESS}, path)
    command = ["import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))"]
    command += ["from muse_plugin_command import cli", "import sys", "sys.exit(cli.main(sys.argv[1:]))"]
    words = ["average", "--inputs", str(path), "--output", str(tmp_path / "b.pt")]
    done = run_python("\n".join(command), *words, cwd=tmp_path, warm=True)
    assert done.returncode == 2
    assert "there is no room to write" in done.stderr
    assert "Traceback" not in done.stderr
    assert [left.name for left in tmp_path.iterdir()] == ["a.pt"]


def test_leftovers_of_a_killed_preparation_are_removed_but_not_those_of_one_that_runs(tmp_path):
    for name in (".out.0123abcd.tmp", ".other.0123abcd.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "text.json").write_text("")
    with build_folder(tmp_path / "out") as running:
        (running / "a").write_text("")
        with build_folder(tmp_path / "out") as folder:
            (folder / "b").write_text("")
        assert running.is_dir()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.0123abcd.tmp", "out"]


# ---- sparse files ----------------------------------------------------------------------------------------------------


def make_sparse(path):
    path.write_bytes(b"")
    os.truncate(path, 12 << 30)


@pytest.mark.parametrize("name", ["bpe.codes", "dict.de.txt", "dict.en.txt", "text_pipeline.json"])
def test_a_sparse_file_beside_a_checkpoint_is_refused_before_it_is_read(tmp_path, checkpoint_folder, capsys, name):
    shutil.copytree(checkpoint_folder, tmp_path / "model")
    assert (tmp_path / "model" / name).is_file()
    make_sparse(tmp_path / "model" / name)
    error = translate(tmp_path / "model", tmp_path / "model", capsys)
    assert re.search(rf"{re.escape(name)} must have at most [\d,]+ bytes, but has 12,884,901,888", error)


def test_a_sparse_description_of_a_partial_output_is_refused(tmp_path):
    (tmp_path / "in").write_text("a\n")
    make_sparse(tmp_path / "out.partial.json")
    with budget(), pytest.raises(ValueError, match=r"out\.partial\.json must be as this version"):
        PartialOutput(tmp_path / "in", tmp_path / "out", {})


# ---- odd contents ----------------------------------------------------------------------------------------------------


def change(part, value):
    def apply(state):
        state[part] = value

    return apply


def change_history(state):
    state["optimizer_history"][-1]["num_updates"] = float("nan")


def change_names(state):
    state["model"][5] = state["model"].pop(next(iter(state["model"])))


def change_task(**settings):
    def apply(state):
        for name, value in settings.items():
            state["cfg"]["task"][name] = value

    return apply


def remove_task(state):
    state["cfg"] = {name: value for name, value in state["cfg"].items() if name != "task"}


def change_arch(state):
    state["cfg"]["model"]["_name"] = "no_such_model"


ODD = {
    "history a text": change("optimizer_history", "abc"),
    "history of numbers": change("optimizer_history", [5]),
    "updates NaN": change_history,
    "names of numbers": change_names,
    "cfg a list": change("cfg", [1]),
    "cfg and args none": change("cfg", None),
    "cfg without task": remove_task,
    "unknown task": change_task(_name="no_such_task"),
    "task of speech": change_task(_name="speech_to_text"),
    "unknown architecture": change_arch,
}
AVERAGED = ("history a text", "history of numbers", "updates NaN", "names of numbers", "cfg a list")


@pytest.mark.parametrize("kind", ODD)
def test_odd_contents_give_one_sentence(tmp_path, checkpoint_folder, capsys, kind):
    state = torch.load(checkpoint_folder / "checkpoint_avg.pt", weights_only=True)
    state["cfg"] = OmegaConf.to_container(state["cfg"])
    ODD[kind](state)
    torch.save(state, tmp_path / "a.pt")
    if kind != "updates NaN":  # which translate does not use
        assert str(tmp_path / "a.pt") in translate(checkpoint_folder, tmp_path / "a.pt", capsys)
    if kind in AVERAGED:
        with pytest.raises(ValueError, match="is not a checkpoint as fairseq writes it"):
            average_checkpoints([tmp_path / "a.pt"])


def test_no_variable_of_the_user_is_shown(tmp_path, checkpoint_folder, capsys, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_USER", "hunter2")
    state = torch.load(checkpoint_folder / "checkpoint_avg.pt", weights_only=True)
    state["cfg"] = OmegaConf.to_container(state["cfg"])
    state["cfg"]["task"]["source_lang"] = "${oc.env:SECRET_OF_THE_USER}"
    torch.save(state, tmp_path / "a.pt")
    assert "hunter2" not in translate(checkpoint_folder, tmp_path / "a.pt", capsys)


def test_a_dictionary_that_is_no_utf8_gives_one_sentence(tmp_path, checkpoint_folder, capsys):
    shutil.copytree(checkpoint_folder, tmp_path / "model")
    (tmp_path / "model" / "dict.de.txt").write_bytes(b"\xff\xfe 3\n")
    assert "dict.de.txt" in translate(tmp_path / "model", tmp_path / "model", capsys)


def test_too_little_memory_gives_one_sentence(capsys, monkeypatch):
    def run(args):
        raise MemoryError

    monkeypatch.setattr(cli, "load_body", lambda name: Namespace(run=run))
    assert cli.main(["average", "--inputs", "a.pt", "--output", "b.pt"]) == 2
    assert "there is not enough memory" in capsys.readouterr().err
