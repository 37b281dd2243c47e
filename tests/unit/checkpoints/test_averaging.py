from argparse import Namespace

import pytest
import torch
from support.helpers import assert_close, parse_flags, save_checkpoint

from muse_plugin.checkpoints import averaging
from muse_plugin.checkpoints.averaging import average_checkpoints, select_checkpoints
from muse_plugin.checkpoints.safe_loading import load_checkpoint


def make_model(dtype=torch.float32):
    return {"encoder.weight": torch.randn(3, 4).to(dtype), "encoder.bias": torch.randn(4).to(dtype)}


def save_models(folder, models):
    return [
        save_checkpoint(folder / f"checkpoint{number}.pt", model, num_updates=100 * number)
        for number, model in enumerate(models, start=1)
    ]


def run_average(*words):
    return averaging.run(parse_flags("average", *words))


# The mean


def test_float64_checkpoints_give_the_plain_mean(tmp_path):
    models = [make_model(torch.float64) for _ in range(5)]
    averaged = average_checkpoints(save_models(tmp_path, models))["model"]
    for name in models[0]:
        mean = torch.stack([model[name] for model in models]).mean(0)
        assert averaged[name].dtype == torch.float64
        assert_close(averaged[name], mean, atol=1e-15, rtol=1e-15, why=name)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_mean_is_taken_in_float32_and_stored_in_the_dtype_of_the_file(tmp_path, dtype):
    # Seven equal values: a sum kept in half precision is rounded at every step and misses the value itself.
    models = [make_model(dtype) for _ in range(7)]
    averaged = average_checkpoints(save_models(tmp_path, models))["model"]
    for name in models[0]:
        mean = torch.stack([model[name].double() for model in models]).mean(0)
        assert averaged[name].dtype == dtype
        rounding = torch.finfo(dtype).eps / 2
        assert_close(averaged[name].double(), mean, atol=1e-6, rtol=rounding, why=f"{name}, one rounding to {dtype}")


def test_one_checkpoint_is_its_own_mean(tmp_path):
    model = make_model()
    averaged = average_checkpoints(save_models(tmp_path, [model]))["model"]
    assert list(averaged) == list(model)
    for name in model:
        assert_close(averaged[name], model[name], atol=0, rtol=0)


def test_float32_and_float64_files_mix_in_either_order(tmp_path):
    paths = save_models(tmp_path, [{"w": torch.tensor([1.0])}, {"w": torch.tensor([4.0], dtype=torch.float64)}])
    for order in (paths, paths[::-1]):
        averaged = average_checkpoints(order)["model"]["w"]
        assert averaged.dtype == torch.float64  # as in the newest file
        assert_close(averaged, [2.5], atol=0, rtol=0)


def test_tied_parameters_are_averaged_once_and_stay_tied(tmp_path):
    models = []
    for _ in range(3):
        embedding = torch.randn(5, 2)
        models.append({"embed.weight": embedding, "output.weight": embedding, "other.weight": embedding.clone()})
    averaged = average_checkpoints(save_models(tmp_path, models))["model"]
    mean = torch.stack([model["embed.weight"] for model in models]).mean(0)
    assert_close(averaged["embed.weight"], mean)
    assert averaged["embed.weight"] is averaged["output.weight"]
    assert averaged["other.weight"].data_ptr() != averaged["embed.weight"].data_ptr()


def test_parameters_tied_only_in_the_newest_file_are_averaged_separately(tmp_path):
    tied = torch.zeros(2)
    models = [{"a": torch.ones(2), "b": torch.full((2,), 3.0)}, {"a": tied, "b": tied}]
    averaged = average_checkpoints(save_models(tmp_path, models))["model"]
    assert_close(averaged["a"], [0.5, 0.5])
    assert_close(averaged["b"], [1.5, 1.5])


def test_equal_integer_tensors_are_kept_and_counters_come_from_the_newest_file(tmp_path):
    models = [
        {"w": torch.ones(1), "index": torch.tensor([3, 1]), "norm.num_batches_tracked": torch.tensor(updates)}
        for updates in (10, 30, 20)
    ]
    paths = save_models(tmp_path, models)
    averaged = average_checkpoints([paths[0], paths[2], paths[1]])["model"]
    assert averaged["index"].tolist() == [3, 1]
    assert averaged["norm.num_batches_tracked"].item() == 20


# Everything else in the file


def test_other_entries_come_from_the_newest_file_without_its_optimizer(tmp_path):
    paths = [
        save_checkpoint(tmp_path / f"{updates}.pt", make_model(), num_updates=updates, extra_state={"note": updates})
        for updates in (100, 300, 200)
    ]
    averaged = average_checkpoints(paths)
    assert averaged["extra_state"] == {"note": 300}
    assert averaged["optimizer_history"][-1]["num_updates"] == 300
    assert averaged["args"].arch == "muse_tiny"
    assert "last_optimizer_state" not in averaged
    assert averaged["averaged_from"] == ["100.pt", "300.pt", "200.pt"]


def test_only_one_file_is_in_memory_at_a_time(tmp_path, monkeypatch):
    paths = save_models(tmp_path, [make_model() for _ in range(4)])
    alive = []

    class State(dict):
        """A dict that a weak reference can watch."""

    def load_and_watch(path):
        import gc
        import weakref

        gc.collect()
        assert not [reference for reference in alive if reference() is not None], "an earlier file is still held"
        state = State(load_checkpoint(path))
        alive.append(weakref.ref(state))
        return state

    monkeypatch.setattr(averaging, "load_checkpoint", load_and_watch)
    average_checkpoints(paths)
    assert len(alive) == 4


def test_fairseq_loads_the_written_file(tmp_path):
    from fairseq import checkpoint_utils

    args = Namespace(arch="transformer_iwslt_de_en", task="translation", criterion="cross_entropy")
    paths = [
        save_checkpoint(tmp_path / f"checkpoint{number}.pt", make_model(), num_updates=number, args=args)
        for number in (1, 2)
    ]
    output = tmp_path / "average.pt"
    assert run_average("--inputs", *paths, "--output", output) == 0
    state = checkpoint_utils.load_checkpoint_to_cpu(str(output))
    assert state["cfg"].model.arch == "transformer_iwslt_de_en"
    expected = average_checkpoints(paths)["model"]
    for name, tensor in state["model"].items():
        assert_close(tensor, expected[name], atol=0, rtol=0)


# Which files


@pytest.mark.parametrize(
    ("kind", "numbers", "last", "bound", "last_up_to_it"),
    [
        ("epoch", ("2", "9", "10", "_3_500"), ["10", "9"], 9, ["9", "2"]),
        ("update", ("_1_900", "_2_1000", "_2_1100", "3"), ["_2_1100", "_2_1000"], 1000, ["_2_1000", "_1_900"]),
    ],
)
def test_last_checkpoints_are_chosen_by_number_not_by_name(tmp_path, kind, numbers, last, bound, last_up_to_it):
    for number in (*numbers, "_last", "_best"):
        save_checkpoint(tmp_path / f"checkpoint{number}.pt", make_model())
    for upper_bound, expected in ((None, last), (bound, last_up_to_it)):
        chosen = select_checkpoints([str(tmp_path)], kind, 2, upper_bound=upper_bound)
        assert [path.name for path in chosen] == [f"checkpoint{number}.pt" for number in expected]


@pytest.mark.parametrize(
    ("values", "maximize", "expected"),
    [
        (("4.1301", "4.1200", "10.0010"), False, ["4.1200", "4.1301"]),
        (("4.1301", "4.1200", "10.0010"), True, ["10.0010", "4.1301"]),
        (("-0.2000", "-0.1000", "0.3000"), False, ["-0.2000", "-0.1000"]),
    ],
)
def test_best_checkpoints_follow_the_direction_of_the_metric(tmp_path, values, maximize, expected):
    for value in values:
        save_checkpoint(tmp_path / f"checkpoint.best_loss_{value}.pt", make_model(), maximize_metric=maximize)
    chosen = select_checkpoints([tmp_path], "best", 2)
    assert [path.name for path in chosen] == [f"checkpoint.best_loss_{value}.pt" for value in expected]


def test_all_best_checkpoints_need_no_direction(tmp_path):
    for value in ("4.1301", "4.1200"):
        save_checkpoint(tmp_path / f"checkpoint.best_nll_loss_{value}.pt", make_model())
    assert len(select_checkpoints([tmp_path], "best", 2)) == 2
    with pytest.raises(ValueError, match=r"does not say whether a high or a low value .* name the files themselves"):
        select_checkpoints([tmp_path], "best", 1)


def test_best_checkpoints_of_two_metrics_are_refused(tmp_path):
    for name in ("bleu_30.1000", "loss_4.1200"):
        save_checkpoint(tmp_path / f"checkpoint.best_{name}.pt", make_model())
    with pytest.raises(ValueError, match=r"ranked by one metric, but .* holds some ranked by bleu, loss"):
        select_checkpoints([tmp_path], "best", 2)


# Refusals


def test_too_few_checkpoints_are_refused_with_what_was_found(tmp_path):
    for name in ("checkpoint1", "checkpoint_last"):
        save_checkpoint(tmp_path / f"{name}.pt", make_model())
    sentence = (
        r"--num-epoch-checkpoints 3 needs 3 epoch checkpoints, but .* holds 1: "
        r"its \.pt files are checkpoint1\.pt, checkpoint_last\.pt; ask for fewer"
    )
    with pytest.raises(ValueError, match=sentence):
        select_checkpoints([tmp_path], "epoch", 3)
    with pytest.raises(ValueError, match=r"needs 1 epoch checkpoints up to 0, but .* holds 0"):
        select_checkpoints([tmp_path], "epoch", 1, upper_bound=0)


@pytest.mark.parametrize("kind", ["epoch", "update", "best"])
def test_empty_folder_is_refused(tmp_path, kind):
    with pytest.raises(ValueError, match=rf"needs 2 {kind} checkpoints, but .* holds 0: it holds no \.pt file at all"):
        select_checkpoints([tmp_path], kind, 2)


def test_contradicting_flags_are_refused(tmp_path):
    file = save_checkpoint(tmp_path / "checkpoint1.pt", make_model())
    with pytest.raises(ValueError, match=r"names the folder .*, which needs one of --num-epoch-checkpoints"):
        select_checkpoints([tmp_path])
    with pytest.raises(ValueError, match=r"chooses among the checkpoints of one folder, but --inputs names .*1\.pt"):
        select_checkpoints([file], "epoch", 1)
    with pytest.raises(ValueError, match=r"must be at least 1, but got 0"):
        select_checkpoints([tmp_path], "epoch", 0)
    with pytest.raises(ValueError, match=r"--checkpoint-upper-bound 3 needs --num-epoch-checkpoints or"):
        select_checkpoints([file], upper_bound=3)
    with pytest.raises(ValueError, match=r"--checkpoint-upper-bound 3 needs --num-epoch-checkpoints or"):
        select_checkpoints([tmp_path], "best", 1, upper_bound=3)
    with pytest.raises(SystemExit):
        run_average("--inputs", tmp_path, "--num-epoch-checkpoints", 1, "--num-best-checkpoints", 1, "--output", file)


def test_missing_input_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"but .*absent\.pt does not exist"):
        select_checkpoints([tmp_path / "absent.pt"])


def test_no_input_and_repeated_input_are_refused(tmp_path):
    with pytest.raises(ValueError, match="at least one checkpoint is needed to average, but got none"):
        average_checkpoints([])
    (path,) = save_models(tmp_path, [make_model()])
    with pytest.raises(ValueError, match=r"may be averaged once, but .* are the same file"):
        average_checkpoints([path, tmp_path / "." / ".." / tmp_path.name / path.name])


def test_different_parameters_are_refused_by_file_and_name(tmp_path):
    base = make_model()
    extra = {**base, "decoder.new": torch.ones(1)}
    paths = save_models(tmp_path, [base, extra])
    sentence = (
        r"must hold the same parameters, but compared with .*{}\.pt, .*{}\.pt {} decoder\.new; average checkpoints"
    )
    with pytest.raises(ValueError, match=sentence.format("checkpoint1", "checkpoint2", "has in addition")):
        average_checkpoints(paths)
    with pytest.raises(ValueError, match=sentence.format("checkpoint2", "checkpoint1", "lacks")):
        average_checkpoints(paths[::-1])


@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        (
            {"w": torch.ones(1)},
            {f"w{i}": torch.ones(1) for i in range(8)},
            r"lacks w and .* has in addition w0, w1, w2, w3, w4 and 3 more",
        ),
        # Shapes that broadcast would be added up without a word.
        (
            {"w": torch.ones(3, 4)},
            {"w": torch.ones(4)},
            r"same shapes, but .*checkpoint2\.pt differs in w \(\(4,\) instead of \(3, 4\)\)",
        ),
        (
            {"index": torch.tensor([1, 2])},
            {"index": torch.tensor([1, 3])},
            r"must be equal in all checkpoints, but index in .*2\.pt differs from .*1\.pt",
        ),
        (
            {"w": torch.tensor([1, 2])},
            {"w": torch.tensor([1.0, 3.0])},
            r"or in none, .*2\.pt differs in w \(torch\.float32 instead of torch\.int64\)",
        ),
    ],
    ids=["names", "shapes", "integers", "kinds of numbers"],
)
def test_parameters_that_have_no_mean_are_refused_by_file_and_name(tmp_path, first, second, sentence):
    paths = save_models(tmp_path, [first, second])
    with pytest.raises(ValueError, match=sentence):
        average_checkpoints(paths)


def test_file_without_model_is_refused(tmp_path):
    path = tmp_path / "other.pt"
    torch.save({"weights": torch.ones(1)}, path)
    with pytest.raises(ValueError, match=r"other\.pt"):
        average_checkpoints([path])
    save_checkpoint(path, {"w": torch.ones(1), "name": "text"})
    with pytest.raises(ValueError, match=r"must hold tensors only, but in .*other\.pt these are none: name"):
        average_checkpoints([path])


# The command


def test_command_writes_the_mean_and_says_what_it_averaged(tmp_path, capsys):
    models = [make_model() for _ in range(3)]
    save_models(tmp_path, models)
    output = tmp_path / "average.pt"
    assert run_average("--inputs", tmp_path, "--num-epoch-checkpoints", 2, "--output", output) == 0
    printed = capsys.readouterr().out
    assert printed == f"averaged 2 checkpoints (checkpoint3.pt, checkpoint2.pt) into {output}\n"
    written = load_checkpoint(output)
    assert_close(written["model"]["encoder.bias"], (models[1]["encoder.bias"] + models[2]["encoder.bias"]) / 2)
    assert written["averaged_from"] == ["checkpoint3.pt", "checkpoint2.pt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "average.pt",
        "checkpoint1.pt",
        "checkpoint2.pt",
        "checkpoint3.pt",
    ]


def test_output_may_be_written_again_but_not_over_an_input(tmp_path):
    (path,) = save_models(tmp_path, [make_model()])
    output = tmp_path / "average.pt"
    for _ in range(2):
        assert run_average("--inputs", path, "--output", output) == 0
    link = tmp_path / "link.pt"
    link.symlink_to(path)
    before = path.read_bytes()
    for target in (path, link):
        with pytest.raises(
            ValueError, match=r"^--output must not replace what is read, but .* is read too; name another"
        ):
            run_average("--inputs", path, "--output", target)
    assert path.read_bytes() == before


def test_impossible_output_is_refused_before_anything_is_read(tmp_path, monkeypatch):
    (path,) = save_models(tmp_path, [make_model()])
    monkeypatch.setattr(averaging, "average_checkpoints", lambda *args, **kwargs: pytest.fail("read the inputs"))
    with pytest.raises(
        FileNotFoundError, match=r"^--output must be in an existing folder, but .* does not exist; make it first"
    ):
        run_average("--inputs", path, "--output", tmp_path / "absent" / "average.pt")
    with pytest.raises(IsADirectoryError, match=r"^--output must name a file, but .* is a folder; add a file name"):
        run_average("--inputs", path, "--output", tmp_path)
