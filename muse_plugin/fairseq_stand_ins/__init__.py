"""Modules that stand in for extensions of fairseq where those are not compiled; each has the name of its extension.

They import numpy alone, so that a copy works as a module of fairseq itself, for commands that run without this plugin:
``setup.py`` and ``scripts/setup.sh`` copy them next to fairseq's own files. Python prefers a compiled extension of the
same name, next to which a copy does nothing.
"""
