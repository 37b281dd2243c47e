"""Exactly the warnings of the table disappear."""

import logging
import os
import warnings

import pytest
from support.helpers import REPOSITORY, run_python

from muse_plugin import warning_filters
from muse_plugin.warning_filters import LOG_LINES, SILENCED

# One text and module of each row, as printed by hydra 1.3.2 and torch 2.13 through fairseq-fixed 0.12.3.1.
REAL = [
    (
        "hydra.experimental.initialize",
        "hydra.experimental.initialize() is no longer experimental. Use hydra.initialize()",
    ),
    ("hydra.experimental.compose", "hydra.experimental.compose() is no longer experimental. Use hydra.compose()"),
    (
        "hydra.experimental.initialize",
        "\nThe version_base parameter is not specified.\nPlease specify a compatability version level, or None.\n",
    ),
    (
        "hydra.core.default_element",
        "In 'config': Usage of deprecated keyword in package header '# @package _group_'.\nSee https://hydra.cc",
    ),
    ("runpy", "\n'config' is validated against ConfigStore schema with the same name.\nThis behavior is deprecated"),
    ("hydra.compose", "\nThe strict flag in the compose API is deprecated.\nSee https://hydra.cc"),
    (
        "torch.utils.data.dataloader",
        "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.",
    ),
    (
        "fairseq.tasks.fairseq_task",
        "`torch.cuda.amp.autocast(args...)` is deprecated. Please use `torch.amp.autocast('cuda', args...)` instead.",
    ),
    (
        "fairseq.optim.amp_optimizer",
        "`torch.cuda.amp.GradScaler(args...)` is deprecated. Please use `torch.amp.GradScaler('cuda', args...)`",
    ),
    (
        "torch.nn.functional",
        "Support for mismatched key_padding_mask and attn_mask is deprecated. Use same type for both instead.",
    ),
    (
        "fairseq.models.distributed_fairseq_model",
        "`broadcast_buffers` is deprecated. Use `forward_sync_buffers` instead. IMPORTANT: unlike `broadcast_buffers`",
    ),
]


def shown(category, module, text):
    """Whether a warning of this kind is still shown after ``install``."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        warnings.simplefilter("always")
        warning_filters.install()
        warnings.warn_explicit(text, category, filename="file.py", lineno=1, module=module, registry={})
    return bool(caught)


def test_every_row_has_a_reason_and_a_real_example():
    assert len(SILENCED) == len(REAL)
    assert all(row.reason for row in SILENCED)


@pytest.mark.parametrize(("row", "real"), list(zip(SILENCED, REAL, strict=True)))
def test_known_message_disappears(row, real):
    module, text = real
    assert not shown(row.category, module, text)


@pytest.mark.parametrize(("row", "real"), list(zip(SILENCED, REAL, strict=True)))
def test_other_warnings_still_appear(row, real):
    module, text = real
    assert shown(row.category, module, "something else happened")  # same module and category
    assert shown(RuntimeWarning, module, text)  # same module and text
    assert shown(row.category, module, "First of all: " + text)
    if row.module != ".*":
        assert shown(row.category, module + "_of_mine", text)
        assert shown(row.category, "mine", text)


def test_installing_twice_adds_nothing():
    with warnings.catch_warnings():
        warning_filters.install()
        before = len(warnings.filters)
        warning_filters.install()
        assert len(warnings.filters) == before
    for name in LOG_LINES:
        filters = list(logging.getLogger(name).filters)
        warning_filters.install()
        assert logging.getLogger(name).filters == filters


def test_what_fairseqs_import_makes_torch_say_appears_again_afterwards():
    text = "`torch.jit.script` is deprecated. Please switch to `torch.compile` or `torch.export`."  # of torch 2.15

    def is_shown():
        with warnings.catch_warnings(record=True) as caught:
            warnings.warn_explicit(text, FutureWarning, "_script.py", 1, module="torch.jit._script", registry={})
        return bool(caught)

    with warnings.catch_warnings():
        warnings.resetwarnings()
        warnings.simplefilter("always")
        assert is_shown()
        with warning_filters.importing_fairseq():
            assert not is_shown()
            warnings.filterwarnings("ignore", message="of a module that is imported")
        assert is_shown()
        assert any(kept[1] is not None and kept[1].match("of a module that is imported") for kept in warnings.filters)


def test_fairseqs_import_is_quiet_where_torch_warns_of_its_decorators(tmp_path):
    code = (
        "import warnings, torch\n"
        "def script(function):\n"
        "    warnings.warn_explicit('`torch.jit.script` is deprecated.', FutureWarning, 's', 1, 'torch.jit._script')\n"
        "    return function\n"
        "torch.jit.script = script\n"
        "import muse_plugin, fairseq.models.model_utils as used\n"
        "assert used.coalesce is not None\n"
    )
    done = run_python(code, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPOSITORY)})
    assert done.returncode == 0, done.stderr
    assert "torch.jit.script" not in done.stderr


def test_only_the_known_log_line_disappears(caplog):
    warning_filters.install()
    assert all(reason for _, _, reason in LOG_LINES.values())
    ((name, line),) = ((name, line) for name, (line, times, _) in LOG_LINES.items() if times == 0)
    with caplog.at_level(logging.INFO, logger=name):
        logging.getLogger(name).info(line)
        logging.getLogger(name).info("something else")
        logging.getLogger("other").warning(line)
    assert [record.getMessage() for record in caplog.records] == ["something else", line]


def test_missing_tensorboard_is_said_once(caplog, monkeypatch):
    from fairseq.logging import progress_bar

    warning_filters.install()
    ((name, line),) = ((name, line) for name, (line, times, _) in LOG_LINES.items() if times == 1)
    monkeypatch.setattr(progress_bar, "SummaryWriter", None)
    (own,) = [known for known in logging.getLogger(name).filters if getattr(known, "line", None) == line]
    monkeypatch.setattr(own, "left", 1)
    for _ in range(3):  # as for training and validation of each epoch
        progress_bar.TensorboardProgressBarWrapper(None, "folder")
    logging.getLogger(name).warning("something else")
    assert caplog.messages == [line, "something else"]
