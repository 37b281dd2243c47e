"""The calculation of training time on several GPUs."""

import pytest


@pytest.fixture
def plan(scaling):
    return lambda gpus, *words: scaling.plan_update(scaling.parse_arguments([*words]), gpus)


def test_eight_gpus_take_what_the_published_log_took(plan):
    days = plan(8, "--tokens-per-update", str(1280 * 76 * 8), "--max-tokens", "1280").total * 80_000 / 86_400
    assert days == pytest.approx(773_000 / 86_400, rel=2e-3)


def test_one_gpu_exchanges_nothing(plan, scaling):
    update = plan(1)
    assert (update.exchange, update.waiting, update.micro_batches) == (0, 0, 128)
    assert update.compute == pytest.approx(655_360 / scaling.LOG_TOKENS_PER_SECOND)


def test_a_ring_sends_all_gradients_nearly_twice_over_its_slowest_link(plan):
    flags = ("--parameters", "1e9", "--inside", "200", "--between", "10", "--gpus-per-node", "4")
    assert plan(4, *flags).exchange == pytest.approx(2 * 3 / 4 * 2 / 200)
    assert plan(8, *flags).exchange == pytest.approx(2 * 7 / 8 * 2 / 10)
    assert plan(8, *flags, "--gradient-bytes", "4").exchange == pytest.approx(2 * plan(8, *flags).exchange)


def test_only_what_the_last_backward_pass_does_not_hide_is_waited_for(plan):
    slow = ("--between", "0.1")
    update = plan(64, *slow)
    assert update.waiting == pytest.approx(update.exchange - 2 / 3 * update.compute / update.micro_batches)
    assert update.waiting > 0
    assert plan(64, "--between", "1000").waiting == 0


def test_the_table_has_a_row_for_each_number_of_gpus_and_no_efficiency_above_one(scaling):
    table = scaling.format_table(scaling.parse_arguments(["--gpus", "1", "8", "64", "512"]))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")][
        1:
    ]
    assert [row[0] for row in rows] == ["1", "8", "64", "512"]
    efficiencies = [int(row[-1].removesuffix("%")) for row in rows]
    assert efficiencies[0] == 100
    assert efficiencies == sorted(efficiencies, reverse=True)
    assert efficiencies[-1] < 100


@pytest.mark.parametrize("flag", ["--gpus", "--between", "--parameters"])
def test_what_is_not_positive_is_refused(scaling, flag, capsys):
    with pytest.raises(SystemExit):
        scaling.parse_arguments([flag, "0"])
    assert f"{flag} must be positive, but got 0" in capsys.readouterr().err
