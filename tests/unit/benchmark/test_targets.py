import pytest
from support.helpers import REPOSITORY, load_program

from muse_plugin.benchmark import systems
from muse_plugin.benchmark.measurement import Measurement, Spread
from muse_plugin.benchmark.records import Record
from muse_plugin.benchmark.tables import format_ratio, format_table, format_value

targets = load_program(REPOSITORY / "examples" / "benchmark" / "targets.py")
TARGETS, format_targets = targets.TARGETS, targets.format_targets

RUN: dict = {}


def find_row(text, start):
    (row,) = [line for line in text.splitlines() if line.startswith(f"| {start}")]
    return [cell.strip() for cell in row.strip("|").split("|")]


def decoding(sentences, seconds, device="cpu", length=25):
    values = {systems.TRANSFORMER: [2.0], systems.SIMPLE: [seconds]}
    case = {"setting": "six_layers", "sentences": sentences, "length": length}
    return Record("generate", "", {"device": device, "beam": 5}, RUN, [Measurement(case, systems.TRANSFORMER, values)])


@pytest.mark.parametrize(("seconds", "result"), [(1.0, "2.00x ✓"), (1.5, "1.33x (missed)"), (1.25, "1.60x ✓")])
def test_result_is_compared_with_the_target(seconds, result):
    text = format_targets([decoding(1, seconds), decoding(32, 0.1), decoding(1, 0.1, length=50)])
    row = find_row(text, "MUSE-simple, 6+6 layers")
    assert row[2:] == [">= 1.60x", result, "not measured"]


def test_gpus_have_a_column_of_their_own():
    row = find_row(format_targets([decoding(1, 1.0, device="NVIDIA X")]), "MUSE-simple, 6+6 layers")
    assert row[3:] == ["not measured", "2.00x ✓"]


def test_nothing_is_claimed_without_records():
    lines = format_targets([]).splitlines()[2:]
    assert len(lines) == len(TARGETS) == 33
    assert [line.split("|")[-3].strip() for line in lines] == ["not measured"] * 29 + ["-"] * 4
    assert all(line.endswith("| not measured |") for line in lines)


def test_decoding_on_a_gpu_has_a_target_of_its_own():
    record = decoding(32, 0.25, device="NVIDIA X")
    record.settings["dtype"] = "float16"
    rows = [
        row
        for row in map(str.strip, format_targets([record]).splitlines())
        if row.startswith("| float16") and "batch 32" in row
    ]
    assert [row.split("|")[4:6] for row in rows] == [[" - ", " 8.00x ✓ "]]


def test_time_may_be_compared_the_other_way_round():
    values = {systems.TRANSFORMER: [1.0], systems.MUSE: [1.05], systems.MUSE_UNFUSED: [2.1]}
    case = {"setting": "base", "length": 100}
    record = Record("train", "", {"device": "cpu"}, RUN, [Measurement(case, systems.TRANSFORMER, values)])
    text = format_targets([record])
    assert find_row(text, "MUSE base: time of a training step, sentences of 100")[2:4] == ["<= 1.10x", "1.05x ✓"]
    assert find_row(text, "MUSE base: training step, sentences of 100")[2:4] == [">= 1.50x", "2.00x ✓"]
    assert find_row(text, "MUSE base: training step, sentences of 25")[3] == "not measured"


def test_ctranslate2_is_compared_at_its_own_precision_and_in_the_worst_case():
    names = (systems.SIMPLE_ONNX, systems.SIMPLE_ONNX_INT8, systems.CTRANSLATE2, systems.CTRANSLATE2_INT8)
    cases = []
    for beam, seconds in ((5, (2.0, 1.0, 2.5, 0.7)), (1, (2.0, 1.0, 1.5, 0.8)), (2, (2.0, 1.0, [], []))):
        values = {name: one if isinstance(one, list) else [one] for name, one in zip(names, seconds, strict=True)}
        case = {"setting": "six_layers", "beam": beam, "sentences": 1, "length": 25}
        own = {systems.TRANSFORMER: [2.0 * beam], systems.SIMPLE: [2.0]}
        cases.append(Measurement(case, systems.SIMPLE, {**own, **values}))
    text = format_targets([Record("generate", "", {"device": "cpu", "beam": [5, 1, 2]}, RUN, cases)])
    row = find_row(text, "every batch and beam: MUSE-simple by onnxruntime")
    assert row[2:4] == [">= 1.00x", "0.75x (missed)"]
    assert find_row(text, "every batch and beam: the same")[3] == "0.70x (missed)"
    assert find_row(text, "MUSE-simple, 6+6 layers, 512/1024")[3] == "5.00x ✓"  # beam 5 alone


def test_a_system_that_is_not_installed_is_shown_as_not_measured():
    measured = Measurement({"length": 5}, "a", {"a": [0.002], "b": [], "c": [0.001]})
    row = format_table([measured], has_header=False)
    assert row == "| 5 | 2.00 | not measured | not measured | 1.00 | **2.00** |"


def test_the_worst_and_the_best_size_of_the_convolution_count():
    cases = [
        Measurement({"length": n}, "fairseq, Python", {"fairseq, Python": [n], "muse_plugin": [1.0]}) for n in (2, 9)
    ]
    text = format_targets([Record("conv", "", {"device": "cpu"}, RUN, cases)])
    assert find_row(text, "dynamic convolution, forward and backward")[3] == "2.00x (missed)"
    assert find_row(text, "the same: at its best")[3] == "9.00x ✓"


def test_memory_counts_for_a_vocabulary_of_32000_only():
    values = {systems.TRANSFORMER: [100.0], systems.MUSE: [59.0]}
    measured = Measurement({"setting": "base", "length": 25}, systems.TRANSFORMER, values, "bytes")
    for vocabulary, result in ((32_000, "0.59x ✓"), (10_000, "not measured")):
        record = Record("train", "", {"device": "cpu", "vocabulary": vocabulary}, RUN, [measured])
        assert find_row(format_targets([record]), "MUSE base: peak memory")[2:4] == ["<= 0.60x", result]


def test_table_has_units_three_digits_and_the_spread_of_ratios():
    measured = Measurement({"length": 5, "mask": "causal"}, "a", {"a": [0.002, 0.004], "b": [0.001, 0.004]})
    assert format_table([measured]).splitlines() == [
        "| length | mask | a [ms] | b [ms] | ratio |",
        "|--:|--:|--:|--:|--:|",
        "| 5 | causal | 3.00 | 2.50 | **1.50** (1.00-2.00) |",
    ]
    assert format_table([measured], has_header=False).count("\n") == 0
    spread = [format_value(Spread(x, x, x), "seconds") for x in (0.00123, 0.0123, 0.123, 1.234, 0.09996)]
    assert spread == ["1.23", "12.3", "123", "1,234", "100"]
    assert format_value(Spread(3 * 2**19, 0, 0), "bytes") == "1.50"
    assert format_ratio(Spread(1.0, 1.0, 1.001)) == "**1.00**"


def test_the_table_stands_before_the_first_section_and_the_rest_is_untouched():
    report = "# Benchmarks\n\nMachine 1: x.\n\n## Decoding\n\n| a |\n\n## Loss\n"
    text = targets.add_targets(report, [decoding(1, 1.0)])
    before, after = report.split("## Decoding")
    assert text == f"{before}## Targets\n\n{format_targets([decoding(1, 1.0)])}\n\n## Decoding{after}"
    with pytest.raises(ValueError, match="must have sections"):
        targets.add_targets("something else", [])


def test_shares_of_the_floor_are_shown_where_a_floor_was_measured():
    values = {"a": [0.004], "b": [0.002], "floor: one copy": [0.001]}
    first, _, row = format_table([Measurement({"length": 5}, "a", values)]).splitlines()
    assert first.endswith("| a: share of the floor | b: share of the floor |")
    assert row.endswith("| 25 % | 50 % |")
    assert "floor" not in format_table([Measurement({"length": 5}, "a", {"a": [0.004], "b": [0.002]})])
