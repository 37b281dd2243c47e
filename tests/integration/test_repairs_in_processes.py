"""fairseq's own commands with ``--user-dir``: what the repairs, the safe loading and the filters change for a user.

A transformer of fairseq's own, a few numbers wide, is trained for three updates, once for this file.
"""

import itertools
import os
import re
import subprocess
import sys
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from support.fairseq_commands import make_data
from support.helpers import PACKAGE, REPOSITORY
from support.pickled_call import Call
from support.warm_python import find_python

TEST_SENTENCES = 13  # no multiple of 8
VALID_SENTENCES = 5  # fewer than 8: all of them are lost without the repair
MAX_POSITIONS = 12

TINY = [
    *"--arch transformer --encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 8 --decoder-embed-dim 8".split(),
    *"--encoder-ffn-embed-dim 8 --decoder-ffn-embed-dim 8 --encoder-attention-heads 2".split(),
    *"--decoder-attention-heads 2".split(),
    *f"--max-source-positions {MAX_POSITIONS} --max-target-positions {MAX_POSITIONS}".split(),
]


def run(*command, expect_success=True, python=None, **named):
    """Runs python with ``command`` in a fresh process; returns its output (standard error included).

    It has imported fairseq already, unless ``python`` is another one.
    """
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    for name in ("LOGLEVEL", "PYTHONWARNINGS"):
        environment.pop(name, None)
    done = subprocess.run(
        [python or find_python(), *map(str, command)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
        check=False,
        **named,
    )
    output = done.stdout.decode("utf-8")
    assert (done.returncode == 0) == expect_success, output
    return output


def fairseq(name, *arguments, **named):
    return run("-m", f"fairseq_cli.{name}", *arguments, "--user-dir", PACKAGE, **named)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with data and a checkpoint, and what training printed."""
    folder = tmp_path_factory.mktemp("trained")
    make_data(folder, {"train": 40, "valid": VALID_SENTENCES, "test": TEST_SENTENCES})
    # A real start: what importing fairseq says is in the output.
    output = train(folder, "--bf16", "--max-update", 3, python=sys.executable)
    return SimpleNamespace(folder=folder, data=folder / "bin", path=folder / "checkpoint_last.pt", output=output)


def train(folder, *flags, **named):
    adam = ["--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--lr", "0.001", "--max-tokens", 100]
    flags = [*TINY, *adam, "--save-dir", folder, "--no-progress-bar", *flags]
    return fairseq("train", folder / "bin", "--cpu", *flags, **named)


def lines_of(output, letter):
    """The lines such as ``H-3<tab>...`` as a dict from id to the rest, in the order of the output."""
    return {int(i): rest for i, rest in re.findall(rf"^{letter}-(\d+)\t(.*)$", output, re.MULTILINE)}


def noise(output):
    # From torch 2.15 on, importing fairseq itself says that torch.jit.script is deprecated, before a plugin is known.
    lines = [
        line for line in output.splitlines() if not re.search(r"/_script\.py:\d+: FutureWarning: `torch\.jit", line)
    ]
    return [line for line in lines if re.search(r"Warning\b|\bDEBUG\b|deprecat", line)]


def test_bf16_trains_on_a_cpu_and_validates_on_every_sentence(trained):
    assert "num_updates 3" in trained.output
    common = torch.load(trained.path, weights_only=False)["cfg"]["common"]
    assert (common["bf16"], common["tpu"]) == (True, False)
    assert re.search(rf"valid on 'valid' subset .* bsz {VALID_SENTENCES} ", trained.output)


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_fp16_trains_on_a_cpu_and_goes_on_after_a_stop(trained, tmp_path):
    (tmp_path / "bin").symlink_to(trained.data)
    for updates in (2, 4):
        output = train(tmp_path, "--fp16", "--fp16-init-scale", 4, "--max-update", updates)
        assert f"num_updates {updates}" in output
    assert "Loaded checkpoint" in output
    saved = torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)
    assert all(torch.equal(weight, weight.half().float()) for weight in saved["model"].values())


def test_training_prints_no_known_warning(trained):
    assert noise(trained.output) == []


def test_generate_translates_every_sentence_without_repeated_bigrams(trained):
    output = fairseq(
        *("generate", trained.data, "--path", trained.path, "--cpu", "--beam", 2, "--no-repeat-ngram-size", 2),
        *("--max-len-b", 9, "--min-len", 7, "--no-progress-bar"),
    )
    hypotheses = {i: rest.split("\t")[1].split() for i, rest in lines_of(output, "H").items()}
    assert sorted(hypotheses) == list(range(TEST_SENTENCES))
    for words in hypotheses.values():
        assert len(words) >= 7
        bigrams = list(itertools.pairwise(words))
        assert len(set(bigrams)) == len(bigrams)
    assert noise(output) == []


AS_MODULE = ("-m", "fairseq_cli.interactive")
AS_CONSOLE_SCRIPT = ("-c", "from fairseq_cli.interactive import cli_main; cli_main()")


@pytest.mark.parametrize("start", [AS_MODULE, AS_CONSOLE_SCRIPT])
def test_interactive_translates_every_line_although_some_are_bad(trained, start):
    long_line = b" ".join([b"w1"] * 40)
    content = b"w1 w2\n" + long_line + b"\nw3 \xff\xfe w4\n\nw5\n"
    arguments = [trained.data, "-s", "de", "-t", "en", "--path", trained.path, "--cpu", "--buffer-size", 2, "--beam", 2]
    if start is AS_MODULE:
        named = {"input": content}
    else:
        (trained.folder / "input.txt").write_bytes(content)
        arguments += ["--input", trained.folder / "input.txt"]
        named = {}
    output = run(*start, *arguments, "--user-dir", PACKAGE, **named)
    assert list(lines_of(output, "H")) == [0, 1, 2, 3, 4]
    sources = lines_of(output, "S")
    assert sources[1].split() == ["w1"] * (MAX_POSITIONS - 1)
    assert sources[2] == "w3 <unk> w4"
    assert sources[4] == "w5"
    assert f"line 2 (S-1) has 41 tokens, but at most {MAX_POSITIONS} can be translated" in output
    assert "line 3 is not valid utf-8" in output


def test_resuming_reads_the_checkpoint_and_length_buckets_work(trained, tmp_path):
    for name in ("bin", "checkpoint_last.pt"):
        (tmp_path / name).symlink_to(trained.folder / name)
    checkpoints = ["--restore-file", trained.path, "--no-epoch-checkpoints", "--no-last-checkpoints"]
    output = train(tmp_path, "--bf16", *checkpoints, "--max-update", 5, "--num-batch-buckets", 2)
    assert re.search(r"Loaded checkpoint .*checkpoint_last.pt \(epoch \d+ @ 3 updates\)", output)
    assert "num_updates 5" in output


def test_validate_and_from_pretrained_read_the_checkpoint(trained):
    flags = ["--task", "translation", "--path", trained.path, "--cpu", "--batch-size", 4, "--user-dir", PACKAGE]
    arguments = [*map(str, [trained.data, *flags, "--model-overrides", "{'dropout': 0.2}"])]
    model = (str(trained.folder), "checkpoint_last.pt", str(trained.data))
    output = run(
        "-c",
        f"""
import sys
from fairseq.models.transformer import TransformerModel
model = TransformerModel.from_pretrained(*{model}, user_dir={str(PACKAGE)!r})
print("translated", repr(model.translate("w1 w2", beam=2)))

from fairseq_cli import validate
sys.argv[1:] = {arguments}
validate.cli_main()
""",
    )
    assert "translated '" in output
    assert re.search(rf"valid on 'valid' subset .* bsz {VALID_SENTENCES}$", output, re.MULTILINE)


def generate_from(state, trained, folder):
    torch.save(state, folder / "evil.pt")
    return fairseq("generate", trained.data, "--path", folder / "evil.pt", "--cpu", expect_success=False)


def test_generate_refuses_a_checkpoint_that_would_run_code_when_read(trained, tmp_path):
    state = torch.load(trained.path, weights_only=False)
    state["extra_state"]["hidden"] = Namespace(inside=Call(os.system, f"touch {tmp_path / 'ran'}"))
    output = generate_from(state, trained, tmp_path)
    assert "GLOBAL posix.system" in output
    assert not (tmp_path / "ran").exists()
    torch.load(tmp_path / "evil.pt", weights_only=False)  # the file is a real one
    assert (tmp_path / "ran").exists()


def test_generate_refuses_a_checkpoint_whose_settings_would_run_code(trained, tmp_path):
    state = torch.load(trained.path, weights_only=False)
    state["cfg"]["model"].adaptive_softmax_cutoff = f"[__import__('os').system('touch {tmp_path}/ran'), 8]"
    output = generate_from(state, trained, tmp_path)
    assert "ValueError: a setting must be plain data" in output
    assert "nothing of it was run" in output
    assert not (tmp_path / "ran").exists()
