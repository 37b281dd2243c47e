"""Raw text in, answers out: the ``translate`` and ``predict`` sub-commands and the loop that they share."""
