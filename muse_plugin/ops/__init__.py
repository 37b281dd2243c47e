"""Tensor functions with several back ends. Nothing here knows fairseq or the papers' layers."""
