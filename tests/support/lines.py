"""Answers lines with a function, as the commands do with a model."""

from muse_plugin.inference.streaming import resume


def answer_lines(answer, source, target, buffer_size, made_by, restart=False):
    """Writes what ``answer`` makes of each buffer of lines; the other arguments are those of ``resume``."""
    with resume(source, target, buffer_size, made_by, restart) as run:
        for lines in run:
            run.write(answer(lines))
