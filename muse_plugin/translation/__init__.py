"""From raw text to raw text: the text pipeline of a translation model and the ``translate`` sub-command."""
