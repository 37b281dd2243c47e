"""Each repair of fairseq, in this process. For the commands, see tests/integration/test_repairs_in_processes.py."""

import importlib.util
import inspect
import io
import logging
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq import options, utils
from fairseq.criterions.label_smoothed_cross_entropy_with_rdrop import RdropLabelSmoothedCrossEntropyCriterion
from fairseq.data import FairseqDataset, bucket_pad_length_dataset, data_utils, language_pair_dataset
from fairseq.dataclass.configs import EMAConfig
from fairseq.models.ema.ema import EMA
from fairseq.modules.dynamic_convolution import DynamicConv_scripatable
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.optim.amp_optimizer import AMPOptimizer
from hypothesis import given, settings
from hypothesis import strategies as st
from support.helpers import assert_close
from torch import nn

from muse_plugin import fairseq_repairs
from muse_plugin.fairseq_repairs import debug_log_level, interactive_lines
from muse_plugin.fairseq_repairs.literal_settings import evaluate_literal


def test_all_repairs_are_in_place_and_applying_again_does_nothing():
    fairseq_repairs.apply()  # modules of fairseq_cli may have been loaded by other tests since the import
    assert fairseq_repairs.apply() == []
    reasons = [repair.why for repair in fairseq_repairs.REPAIRS]
    assert len(set(reasons)) == len(reasons)
    assert all(reasons)


def test_every_file_of_a_repair_is_listed():
    files = {path.stem for path in Path(fairseq_repairs.__file__).parent.glob("*.py")}
    assert files == {"__init__", "repair", *fairseq_repairs._FILES.split()}


# ---- the last batch --------------------------------------------------------------------------------------------------


class Sentences(FairseqDataset):
    """A data set that only knows the lengths of its sentences."""

    def __init__(self, lengths):
        self.lengths = np.array(lengths, dtype=np.int64)

    def num_tokens_vec(self, indices):
        return self.lengths[indices]

    def num_tokens(self, index):
        return self.lengths[index]


@settings(deadline=None, max_examples=300)
@given(
    lengths=st.lists(st.integers(1, 30), max_size=120),
    max_tokens=st.none() | st.integers(30, 300),
    max_sentences=st.none() | st.integers(1, 40),
    multiple=st.integers(1, 12),
    precomputed=st.booleans(),
)
def test_batches_hold_every_sentence_once_within_all_limits(lengths, max_tokens, max_sentences, multiple, precomputed):
    dataset = Sentences(lengths)
    order = np.argsort(dataset.lengths, kind="stable")
    if precomputed:
        batches = dataset.batch_by_size(order, max_tokens, max_sentences, multiple)
    else:
        batches = data_utils.batch_by_size(
            iter(order), dataset.num_tokens, None, max_tokens, max_sentences, required_batch_size_multiple=multiple
        )
    assert [i for batch in batches for i in batch] == list(order)
    for batch in batches:
        assert len(batch) > 0
        assert max_sentences is None or len(batch) <= max_sentences
        assert max_tokens is None or len(batch) * dataset.lengths[batch].max() <= max_tokens
        assert len(batch) < multiple or len(batch) % multiple == 0


@pytest.mark.parametrize("count", [1, 7, 8, 9, 10, 17, 101])
def test_full_batches_keep_the_multiple_and_only_the_last_is_small(count):
    batches = Sentences([5] * count).batch_by_size(np.arange(count), max_tokens=80, required_batch_size_multiple=8)
    sizes = [len(batch) for batch in batches]
    assert sum(sizes) == count
    assert all(size % 8 == 0 for size in sizes[:-1])


def test_batching_with_fixed_shapes_is_unchanged():
    wrapped = data_utils.batch_by_size.__wrapped__
    arguments = {"max_tokens": 100, "required_batch_size_multiple": 8, "fixed_shapes": [(4, 10), (2, 20)]}
    ours, theirs = (f(np.arange(7), lambda i: 5 + i, **arguments) for f in (data_utils.batch_by_size, wrapped))
    assert ours == theirs
    assert sum(map(len, ours)) == 7


def test_repaired_function_has_the_arguments_of_the_original():
    assert str(inspect.signature(data_utils.batch_by_size)) == str(
        inspect.signature(data_utils.batch_by_size.__wrapped__)
    )


# ---- bf16 ------------------------------------------------------------------------------------------------------------

TRAIN = ["data", "--arch", "transformer", "--task", "translation", "--max-tokens", "10"]


def parse(*flags, **named):
    parser = options.get_training_parser()
    return options.parse_args_and_arch(parser, [*TRAIN, *flags], **named)


def test_bf16_does_not_mean_tpu():
    for flag in ("--bf16", "--memory-efficient-bf16"):
        args = parse(flag)
        assert (args.bf16, args.tpu) == (True, False)
    args, unknown = parse("--bf16", "--nonsense", parse_known=True)
    assert (args.bf16, args.tpu, unknown) == (True, False, ["--nonsense"])


def test_tpu_still_means_tpu():
    assert parse("--bf16", "--tpu").tpu
    assert not parse().tpu


def test_tpu_on_the_command_line_of_the_process_counts(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fairseq-train", *TRAIN, "--bf16", "--tpu"])
    assert options.parse_args_and_arch(options.get_training_parser()).tpu


# ---- settings that fairseq evaluates ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-1e-4", -1e-4),
        ("(0.9, 0.98)", (0.9, 0.98)),
        (" [3,7] ", [3, 7]),
        ("10000,20000", (10000, 20000)),
        ("[0.1]*3", [0.1] * 3),
        ("3 * [1, 2]", [1, 2] * 3),
        ("[(512, 10, 5)] + [(512, 3, 2)] * 4", [(512, 10, 5)] + [(512, 3, 2)] * 4),
        ("1/4 - 2", 1 / 4 - 2),
        ("True", True),
        ("None", None),
        ("'a'", "a"),
        ("{'dropout': 0.1, 'x': [1]}", {"dropout": 0.1, "x": [1]}),
        ("()", ()),
    ],
)
def test_plain_settings_are_understood_as_eval_did(text, value):
    assert evaluate_literal(text) == value
    assert type(evaluate_literal(text)) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "open('x', 'w')",
        "().__class__",
        "(lambda: 1)()",
        "[i for i in (1, 2)]",
        "dropout",
        "f'{1}'",
        "[*(1, 2)]",
        "{**{}}",
        "2 ** 9",
        "[0] * 9999999999",
        "9999999999 * 'a'",
        "1/0",
        "[1] - [2]",
        "1 +",
        "",
        "(" * 500 + ")" * 500,
        "-" * 100_000 + "1",
        "\0",
    ],
)
def test_anything_else_is_refused_in_one_sentence(text):
    with pytest.raises(
        ValueError, match=r"a setting must be plain data such as 3, .*, but got .*; nothing of it was run\."
    ):
        evaluate_literal(text)


def test_setting_that_is_no_string_raises_error_as_with_eval():
    with pytest.raises(TypeError, match="a setting to evaluate must be a string, but got bool"):
        evaluate_literal(True)


def test_functions_of_fairseq_no_longer_run_settings(tmp_path):
    marker = tmp_path / "ran"
    harmful = f"open({str(marker)!r}, 'w')"
    for function in (utils.eval_str_list, utils.eval_str_dict, utils.eval_bool, options.eval_str_list):
        with pytest.raises(ValueError, match="nothing of it was run"):
            function(harmful)
    assert not marker.exists()
    assert utils.eval_str_list("[3, 7]", type=int) == [3, 7]
    assert utils.eval_str_list("5", type=int) == [5]
    assert utils.eval_bool("False") is False
    assert utils.eval_bool(True, default=False) is False  # as fairseq has it


def test_optimizer_reads_its_settings_without_running_them(tmp_path):
    from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig

    def build(betas):
        config = FairseqAdamConfig(adam_betas=betas, use_old_adam=True)
        config.lr, config.tpu = [0.1], False
        return FairseqAdam(config, [torch.nn.Parameter(torch.zeros(1))])

    assert build("(0.8, 0.88)").optimizer_config["betas"] == (0.8, 0.88)
    marker = tmp_path / "ran"
    with pytest.raises(ValueError, match="nothing of it was run"):
        build(f"open({str(marker)!r}, 'w')")
    assert not marker.exists()


# ---- length buckets --------------------------------------------------------------------------------------------------


def test_buckets_end_at_the_lower_percentiles_of_the_sizes():
    sizes = np.array([5, 1, 9, 3, 7, 2, 2, 8])
    for get_buckets in (data_utils.get_buckets, bucket_pad_length_dataset.get_buckets):
        assert list(get_buckets(sizes, 1)) == [9]
        assert list(get_buckets(sizes, 2)) == [3, 9]
        assert list(get_buckets(sizes, 100)) == [1, 2, 3, 5, 7, 8, 9]
    for count in range(1, 9):
        expected = np.unique(np.percentile(sizes, np.linspace(0, 100, count + 1), method="lower")[1:])
        np.testing.assert_array_equal(data_utils.get_buckets(sizes, count), expected)


def test_old_numpy_name_exists_only_in_the_modules_that_use_it():
    assert language_pair_dataset.np.compat.long is int
    assert language_pair_dataset.np.arange is np.arange
    assert not hasattr(np, "compat")


# ---- repeated n-grams ------------------------------------------------------------------------------------------------


def forbidden_tokens(tokens, n):
    """The obvious loop: which next tokens would repeat an n-gram of ``tokens``."""
    ngrams = {tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)}
    return {token for token in range(10) if (*tokens[len(tokens) - n + 1 :], token) in ngrams}


@settings(deadline=None, max_examples=100)
@given(data=st.data(), n=st.integers(1, 4), step=st.integers(0, 12), room=st.integers(1, 6))
def test_exactly_the_tokens_that_repeat_an_ngram_are_forbidden(data, n, step, room):
    rows = [data.draw(st.lists(st.integers(4, 6), min_size=step, max_size=step)) for _ in range(4)]
    buffer = torch.tensor([[2, *row, *([1] * room)] for row in rows])
    scores = NGramRepeatBlock(n, use_extension=False)(buffer, torch.zeros(4, 10), bsz=2, beam_size=2, step=step)
    for row, score in zip(rows, scores, strict=True):
        assert set(torch.isinf(score).nonzero().flatten().tolist()) == forbidden_tokens(row, n)


# ---- unknown words without a dictionary of alignments ----------------------------------------------------------------


def test_replace_unk_without_a_file_copies_the_aligned_word(tmp_path):
    bare = options.get_generation_parser().parse_args(["--replace-unk"])
    assert utils.load_align_dict(bare.replace_unk) == {}
    (tmp_path / "words").write_text("Haus house\n")
    assert utils.load_align_dict(str(tmp_path / "words")) == {"Haus": "house"}
    assert utils.load_align_dict(None) is None


# ---- R-Drop ----------------------------------------------------------------------------------------------------------


class Halves(torch.nn.Module):
    """Predicts two symbols alike; remembers how many sentences it was given."""

    def forward(self, src_tokens):
        self.rows = len(src_tokens)
        return torch.zeros(*src_tokens.shape, 2)

    def get_normalized_probs(self, net_output, log_probs):
        return net_output.log_softmax(-1) if log_probs else net_output.softmax(-1)

    def get_targets(self, sample, net_output):
        return sample["target"]


@pytest.mark.parametrize("training", [False, True])
def test_rdrop_doubles_batches_of_training_only(training):
    task = SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: 1))
    criterion = RdropLabelSmoothedCrossEntropyCriterion(task, False, label_smoothing=0.0, rdrop_alpha=1.0)
    model, tokens = Halves().train(training), torch.zeros(3, 2, dtype=torch.long)
    sample = {"net_input": {"src_tokens": tokens}, "target": tokens, "ntokens": 6}
    loss, sample_size, log = criterion(model, sample)
    copies = 2 if training else 1
    assert float(loss) == pytest.approx(copies * 6 * np.log(2), rel=1e-5)
    assert (model.rows, sample_size) == (copies * 3, 6)
    assert ("rdrop_kl_loss" in log) == training
    assert len(sample["net_input"]["src_tokens"]) == copies * 3  # in training fairseq changes it, and nobody reads it
    # A criterion of several tasks hands over what the model answered to the doubled batch.
    given, _, log = criterion(model, sample, net_output=torch.zeros(6, 2, 2))
    assert float(given) == pytest.approx(12 * np.log(2), rel=1e-5)
    assert "rdrop_kl_loss" in log


def test_rdrop_keeps_its_weight_when_validation_fails():
    task = SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: 1))
    criterion = RdropLabelSmoothedCrossEntropyCriterion(task, False, label_smoothing=0.0, rdrop_alpha=1.0)
    with pytest.raises(KeyError, match="net_input"):
        criterion(Halves().eval(), {})
    assert criterion.rdrop_alpha == 1.0


# ---- the scale of --amp ----------------------------------------------------------------------------------------------


def test_the_scale_of_amp_is_kept():
    def make():
        optimizer = AMPOptimizer.__new__(AMPOptimizer)
        inner = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
        optimizer.fp32_optimizer = SimpleNamespace(optimizer=inner)
        optimizer._grad_scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=3)
        return optimizer

    first, second = make(), make()
    for _ in range(4):  # which double the scale once
        first.scaler.scale(first.optimizer.param_groups[0]["params"][0].sum()).backward()
        first.scaler.step(first.optimizer)
        first.scaler.update()
    second.load_state_dict(first.state_dict())
    assert second.scaler.state_dict() == first.scaler.state_dict()
    assert (second.scaler.get_scale(), second.scaler.state_dict()["_growth_tracker"]) == (8.0, 1)


# ---- the average of tied weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_float32", [False, True])
def test_tied_weights_are_averaged_once_in_an_update(in_float32):
    model = nn.ModuleDict({"embed": nn.Linear(3, 4, bias=False), "output": nn.Linear(3, 4), "free": nn.Linear(3, 4)})
    model["output"].weight = model["embed"].weight
    ema = EMA(model, EMAConfig(store_ema=True, ema_decay=0.5, ema_fp32=in_float32))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    ema.step(model, 1)
    for name, value in ema.get_model().state_dict().items():
        assert_close(value, before[name] + 0.5)


# ---- the bias of a convolution without bias --------------------------------------------------------------------------


@pytest.mark.parametrize("conv_bias", [False, True])
def test_every_parameter_of_a_dynamic_convolution_is_set(conv_bias):
    convolution = DynamicConv_scripatable(4, kernel_size=3, padding_l=1, num_heads=2, conv_bias=conv_bias)
    convolution.conv_bias.data.fill_(float("nan"))  # what unset memory may hold
    convolution.reset_parameters()
    assert all(parameter.isfinite().all() for parameter in convolution.parameters())


# ---- interactive -----------------------------------------------------------------------------------------------------


@pytest.fixture
def interactive():
    from fairseq_cli import interactive

    fairseq_repairs.apply()
    return interactive


def configuration(max_tokens=None, skip=False):
    return SimpleNamespace(dataset=SimpleNamespace(max_tokens=max_tokens, skip_invalid_size_inputs_valid_test=skip))


def test_command_loaded_later_is_repaired_by_applying_again(interactive, monkeypatch):
    spec = importlib.util.spec_from_file_location("__mp_main__", interactive.__file__)
    again = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, again)
    spec.loader.exec_module(again)
    assert not hasattr(again.make_batches, "__wrapped__")
    assert fairseq_repairs.apply() == [interactive_lines.REPAIR]
    assert again.make_batches.__wrapped__.__module__ == "__mp_main__"
    assert fairseq_repairs.apply() == []


def test_badly_encoded_line_is_read_with_a_warning_naming_it(interactive, tmp_path, caplog):
    path = tmp_path / "lines.txt"
    path.write_bytes(b"ein  \n\nzw\xe4i\n" + "drei übrig".encode())
    assert list(interactive.buffered_read(str(path), 3)) == [["ein", "", "zw\ufffdi"], ["drei übrig"]]
    assert [r.getMessage() for r in caplog.records] == [
        "line 3 is not valid utf-8 (byte 3 of the line); what cannot be read is replaced by U+FFFD."
    ]


@pytest.mark.parametrize("text", [True, False])
def test_standard_input_is_read_streaming(interactive, monkeypatch, text):
    content = "a\nb\u2028c\nd\n"  # only a line feed ends a line
    stdin = io.StringIO(content) if text else io.TextIOWrapper(io.BytesIO(content.encode()), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", stdin)
    assert list(interactive.buffered_read("-", 2)) == [["a", "b\u2028c"], ["d"]]


class Task:
    """Words are tokens; the end-of-sentence is 2."""

    name = "a task"

    def get_interactive_tokens_and_lengths(self, lines, encode_fn):
        tokens = [torch.tensor([*map(int, encode_fn(line).split()), 2]) for line in lines]
        return tokens, [len(sentence) for sentence in tokens]


@pytest.mark.parametrize(
    ("max_positions", "max_tokens", "limit"),
    [
        ((4, 9), None, 4),
        (4, None, 4),
        ((9, 9), 4, 4),
        ((4, 9), 7, 4),
        ((None, 9), None, None),
        ({"de-en": (4, 4)}, 4, None),
    ],
)
def test_limit_is_the_smaller_of_positions_and_max_tokens(max_positions, max_tokens, limit):
    assert interactive_lines._limit(configuration(max_tokens), max_positions) == limit


def test_long_line_is_cut_before_its_last_token_with_a_warning_naming_it(caplog):
    task = interactive_lines._TaskThatCuts(Task(), limit=4, first_id=10)
    tokens, lengths = task.get_interactive_tokens_and_lengths(["5 6 7", "5 6 7 8 9", ""], str)
    assert [sentence.tolist() for sentence in tokens] == [[5, 6, 7, 2], [5, 6, 7, 2], [2]]
    assert lengths == [4, 4, 1]
    assert task.name == "a task"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("line 12 (S-11) has 6 tokens, but at most 4 can be translated at once;")


def test_lines_are_numbered_through_all_buffers_and_skipping_stays_possible(interactive, tmp_path, monkeypatch, caplog):
    module = SimpleNamespace(
        buffered_read=interactive.buffered_read,
        make_batches=lambda lines, cfg, task, max_positions, encode_fn: task.get_interactive_tokens_and_lengths(
            lines, encode_fn
        )[1],
    )
    interactive_lines._apply(module)
    path = tmp_path / "lines.txt"
    path.write_text("5\n6\n7 7 7\n8\n9 9 9\n")
    for skip, expected in ((False, [[2, 2], [2, 2], [2]]), (True, [[2, 2], [4, 2], [4]])):
        caplog.clear()
        buffers = module.buffered_read(str(path), 2)
        assert [
            module.make_batches(lines, configuration(skip=skip), Task(), (2, 2), str) for lines in buffers
        ] == expected
        numbers = [re.match(r"line (\d+) \(S-(\d+)\)", r.getMessage()).groups() for r in caplog.records]
        assert numbers == ([] if skip else [("3", "2"), ("5", "4")])


# ---- log level -------------------------------------------------------------------------------------------------------


@pytest.fixture
def root_logger():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:], root.level = handlers, level


def test_level_set_by_fairseq_is_taken_back_and_one_set_by_the_user_is_kept(root_logger, monkeypatch):
    from fairseq_cli import train  # noqa: F401  (in a command, fairseq decides about logging)

    def configure(**settings):
        root_logger.handlers[:] = []
        logging.basicConfig(**settings)
        return debug_log_level.REPAIR in fairseq_repairs.apply()

    assert configure(level=logging.DEBUG)
    assert root_logger.level == logging.INFO
    assert not configure(level=logging.DEBUG, format="%(message)s")
    assert not configure(level=logging.WARNING)
    monkeypatch.setenv("LOGLEVEL", "debug")
    assert not configure(level=logging.DEBUG)
    assert root_logger.level == logging.DEBUG


# ---- --user-dir ------------------------------------------------------------------------------------------------------


def test_a_list_of_user_dirs_is_one_sentence(tmp_path, monkeypatch):
    sentence = (
        "--user-dir must name one folder, but got a,b; write 'import muse_plugin' in the __init__.py of your own "
        "plugin and name that."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        utils.import_user_module(SimpleNamespace(user_dir="a,b"))
    folder = tmp_path / "my,plugin_of_this_test"
    folder.mkdir()
    (folder / "__init__.py").write_text("import muse_plugin\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    utils.import_user_module(SimpleNamespace(user_dir=str(folder)))
    assert sys.modules.pop(folder.name).muse_plugin
