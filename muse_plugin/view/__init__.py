"""A local page that shows one translation from the inside. ``view.py`` is the command."""
