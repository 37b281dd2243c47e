"""Looks into trained models: data first, then the picture. ``analyze.py`` is the command."""
