"""Scores of translations: BLEU in its kinds, chrF and TER, by source length, and against another system.

``evaluate.py`` is ``muse-plugin evaluate`` and the place to start reading; each other file holds one mechanism.
"""
