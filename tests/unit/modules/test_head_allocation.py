"""How many heads each scale gets: the published rows, the frozen tables, and the rule computed a second time."""

import math
import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muse_plugin.modules.head_allocation import allocate_heads

# Heads per scale by layer, for 3 layers and 5 scales; by alpha and number of heads.
TABLES = {
    (1.0, 10): "7 2 1 0 0 / 5 2 2 1 0 / 2 2 2 2 2",
    (0.5, 10): "5 2 2 1 0 / 4 2 2 1 1 / 2 2 2 2 2",
    (0.0, 10): "2 2 2 2 2 / 2 2 2 2 2 / 2 2 2 2 2",
    (-0.5, 10): "1 1 2 2 4 / 2 1 2 2 3 / 2 2 2 2 2",
    (-1.0, 10): "1 0 1 2 6 / 1 1 2 2 4 / 2 2 2 2 2",
    (1.0, 5): "4 1 0 0 0 / 3 1 1 0 0 / 1 1 1 1 1",
    (0.5, 5): "3 1 1 0 0 / 2 1 1 1 0 / 1 1 1 1 1",
    (0.0, 5): "1 1 1 1 1 / 1 1 1 1 1 / 1 1 1 1 1",
    (-0.5, 5): "1 0 1 1 2 / 1 1 1 1 1 / 1 1 1 1 1",
    (-1.0, 5): "1 0 0 1 3 / 1 0 1 1 2 / 1 1 1 1 1",
}
SIX_LAYERS = "7 2 1 0 0 / 5 2 2 1 0 / 4 2 2 2 0 / 4 2 2 1 1 / 3 3 2 1 1 / 2 2 2 2 2"


def read(table):
    return [[int(number) for number in row.split()] for row in table.split("/")]


def allocate_all(alpha, layers, scales, heads):
    return [allocate_heads(alpha, layer, layers, scales, heads) for layer in range(1, layers + 1)]


@pytest.mark.parametrize(("alpha", "heads"), TABLES)
def test_heads_of_three_layers_are_those_of_the_table(alpha, heads):
    assert allocate_all(alpha, 3, 5, heads) == read(TABLES[alpha, heads])


def test_heads_of_six_layers_are_those_of_the_table():
    assert allocate_all(1.0, 6, 5, 10) == read(SIX_LAYERS)


@pytest.mark.parametrize("scales", [1, 2, 3, 4, 6, 12])
def test_even_shares_are_not_rounded_up(scales):
    # 12 / 3 in floating point must not become five heads.
    layers = 12
    assert allocate_all(0.0, layers, scales, 12) == [[12 // scales] * scales] * layers
    assert allocate_heads(3.0, layers, layers, scales, 12) == [12 // scales] * scales  # nor in the top layer


def test_shares_add_up_to_the_number_of_heads():
    # In floating point, sums such as 0.3 + 0.3 + 0.4 of the heads come out a little too large.
    for heads in range(5, 17):
        for tenths in range(-20, 21):
            assert [sum(counts) for counts in allocate_all(tenths / 10, 3, 5, heads)] == [heads] * 3


def test_what_does_not_divide_goes_to_the_small_scales_first():
    assert allocate_heads(0.0, 1, 2, 3, 7) == [3, 2, 2]
    assert allocate_heads(0.0, 1, 2, 4, 5) == [2, 1, 1, 1]


def test_a_strong_inclination_gives_everything_to_one_end():
    assert allocate_heads(1000.0, 1, 3, 5, 10) == [10, 0, 0, 0, 0]
    assert allocate_heads(-1000.0, 1, 3, 5, 10) == [0, 0, 0, 0, 10]


@settings(deadline=None)
@given(
    alpha=st.floats(-5, 5),
    layers=st.integers(1, 12),
    scales=st.integers(1, 8),
    more_heads=st.integers(0, 24),
    data=st.data(),
)
def test_running_sums_are_rounded_up(alpha, layers, scales, more_heads, data):
    layer, heads = data.draw(st.integers(1, layers)), scales + more_heads
    counts = allocate_heads(alpha, layer, layers, scales, heads)
    assert len(counts) == scales
    assert sum(counts) == heads
    assert min(counts) >= 0
    beta = 0.0 if layer == layers else alpha / layer
    shares = [Fraction(math.exp(beta * (scales - k))) for k in range(1, scales + 1)]
    for k in range(1, scales + 1):
        exact = float(heads * sum(shares[:k]) / sum(shares))
        assert exact - 1e-6 <= sum(counts[:k]) < exact + 1
    if alpha >= 0:
        assert counts[0] >= 1


@pytest.mark.parametrize(("alpha", "layer"), [(math.nan, 1), (math.inf, 3), (-math.inf, 1)])
def test_raises_error_when_alpha_is_not_finite(alpha, layer):
    sentence = f"^the alpha of the distribution of scales must be a finite number, but got {alpha}\\.$"
    with pytest.raises(ValueError, match=sentence):
        allocate_heads(alpha, layer, 3, 5, 10)


@pytest.mark.parametrize("layer", [0, -1, 4])
def test_raises_error_when_there_is_no_such_layer(layer):
    with pytest.raises(ValueError, match=rf"^layer must lie in 1 \.\. 3, but got {layer}\.$"):
        allocate_heads(0.5, layer, 3, 5, 10)


@pytest.mark.parametrize(("scales", "heads"), [(5, 4), (1, 0), (0, 4), (3, -3)])
def test_raises_error_when_there_are_more_scales_than_heads(scales, heads):
    sentence = re.escape(
        f"there must be at least one scale and at most one per head, but got {scales} scales for {heads} heads; use "
        "fewer scales or more heads."
    )
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        allocate_heads(0.5, 1, 3, scales, heads)
