"""Sentences that are encoded once and matched many times: a cache of vectors, scores of pairs, search."""
