import logging

import pytest
from support.helpers import parse_flags

from muse_plugin.preparation import prepare_text


def write_file(path, text):
    path.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
    return path


@pytest.fixture
def write(tmp_path):
    """Writes a file of the test's own folder and returns its path."""
    return lambda name, text: write_file(tmp_path / name, text)


@pytest.fixture
def prepare(tmp_path, capsys):
    """Runs the command; returns what it printed. The output is ``data`` in the test's own folder."""

    def run(*words, output="data"):
        args = parse_flags("prepare-text", "--output", tmp_path / output, *words)
        assert prepare_text.run(args) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def fairseq_preprocess():
    """Runs ``fairseq-preprocess --only-source`` in this process."""
    from fairseq import options
    from fairseq_cli import preprocess

    def run(*words):
        args = options.get_preprocessing_parser().parse_args(["--only-source", *map(str, words)])
        preprocess.main(args)

    before = list(preprocess.logger.handlers)
    yield run
    for handler in [handler for handler in preprocess.logger.handlers if handler not in before]:
        assert isinstance(handler, logging.FileHandler)  # it would keep writing to the folder of this test
        preprocess.logger.removeHandler(handler)
        handler.close()
