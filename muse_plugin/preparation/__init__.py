"""Labelled text as sentence models read it: the ``prepare-text`` sub-command and what it stores next to the data."""
