"""What a classifier sees of two sentences."""

import pytest
import torch
from support.helpers import assert_close

from muse_plugin.modules.pair_features import PAIR_FEATURES, pair_features

FIRST, SECOND = torch.tensor([[1.0, -2.0], [0.5, 3.0]]), torch.tensor([[4.0, -5.0], [0.5, -1.0]])
EXPECTED = {
    "product": [[1, -2, 4, -5, 3, 3, 4, 10], [0.5, 3, 0.5, -1, 0, 4, 0.25, -3]],
    "difference_twice": [[1, -2, 4, -5, 3, 3, -3, 3], [0.5, 3, 0.5, -1, 0, 4, 0, 4]],
    "signed_product": [[1, -2, 4, -5, -3, 3, 4, 10], [0.5, 3, 0.5, -1, 0, 4, 0.25, -3]],
}


@pytest.mark.parametrize("kind", PAIR_FEATURES)
def test_features_are_those_worked_out_by_hand(kind):
    assert_close(pair_features(FIRST, SECOND, kind), EXPECTED[kind], atol=0, rtol=0)
    assert sorted(EXPECTED) == sorted(PAIR_FEATURES)


@pytest.mark.parametrize("kind", PAIR_FEATURES)
def test_the_order_of_a_pair_matters(kind):
    assert not torch.equal(pair_features(FIRST, SECOND, kind), pair_features(SECOND, FIRST, kind))


def test_raises_error_for_an_unknown_kind():
    with pytest.raises(
        ValueError, match=r"^kind must be one of product, difference_twice, signed_product, but got 'sum'\.$"
    ):
        pair_features(FIRST, SECOND, "sum")
