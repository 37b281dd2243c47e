"""Modules that stand in for those of fairseq that are not compiled, or that Python 3.14 cannot import.

Each has the name of what it stands in for. They import numpy alone, so that a copy works as a module of fairseq itself,
for commands that run without this plugin: ``setup.py`` and ``scripts/setup.sh`` copy them next to fairseq's own files.
Python prefers a compiled extension of the same name, next to which a copy does nothing.
"""
