import torch

from muse_plugin.modules.padding_mask import mask_padding


def test_padding_is_behind_the_end_of_each_sentence():
    mask = mask_padding(torch.tensor([0, 2, 3]), 3)
    assert mask.tolist() == [[True, True, True], [False, False, True], [False, False, False]]


def test_a_batch_may_be_narrower_than_its_longest_sentence():
    assert not mask_padding(torch.tensor([5]), 2).any()
