"""What the tests of ``muse-plugin evaluate`` share: the command itself, logs, and a slow multi-bleu."""

import json
import math
import random
from typing import NamedTuple

import pytest
from support.helpers import parse_flags

from muse_plugin.evaluation import evaluate


class Outcome(NamedTuple):
    code: int
    out: str
    json: dict


@pytest.fixture
def run_evaluate(capsys, tmp_path):
    """Runs the sub-command in this process; returns exit code, standard output and what it wrote to ``--output``."""

    def run(*words):
        output = tmp_path / "result.json"
        capsys.readouterr()
        code = evaluate.run(parse_flags("evaluate", *words, "--output", output))
        return Outcome(code, capsys.readouterr().out, json.loads(output.read_text(encoding="utf-8")))

    return run


@pytest.fixture
def write_log(tmp_path):
    """Writes a log as fairseq-generate does, its sentences shuffled."""

    def write(name, hypotheses, references, sources=None, closing="Generate test with beam=5: BLEU4 = 1.00", old=False):
        groups = []
        for i, (hypothesis, reference) in enumerate(zip(hypotheses, references, strict=True)):
            group = [] if sources is None else [f"S-{i}\t{sources[i]}"]
            group += [f"T-{i}\t{reference}", f"H-{i}\t-0.25\t{hypothesis}"]
            group += [] if old else [f"D-{i}\t-0.25\t{hypothesis}"]
            groups.append("".join(line + "\n" for line in [*group, f"P-{i}\t-0.2500 -0.1000"]))
        random.Random(5).shuffle(groups)
        path = tmp_path / name
        text = "2026-01-01 | INFO | fairseq_cli.generate | {'task': 'S-0'}\n" + "".join(groups)
        path.write_bytes((text + (closing + "\n" if closing else "")).encode("utf-8"))
        return path

    return write


@pytest.fixture
def write_lines(tmp_path):
    """Writes lines to a text file and returns its path."""

    def write(name, lines):
        path = tmp_path / name
        path.write_bytes("".join(line + "\n" for line in lines).encode("utf-8"))
        return path

    return write


@pytest.fixture(scope="session")
def slow_multi_bleu():
    """The line that multi-bleu.perl prints, from its definition: bytes, lists and loops."""

    def score(hypotheses, references):
        correct, total = [0] * 4, [0] * 4
        hyp_len = ref_len = 0
        for hypothesis, reference in zip(hypotheses, references, strict=True):
            ours, theirs = hypothesis.encode("utf-8").split(), reference.encode("utf-8").split()
            hyp_len, ref_len = hyp_len + len(ours), ref_len + len(theirs)
            for n in range(1, 5):
                open_matches = [tuple(theirs[i : i + n]) for i in range(len(theirs) - n + 1)]
                for i in range(len(ours) - n + 1):
                    total[n - 1] += 1
                    if tuple(ours[i : i + n]) in open_matches:
                        open_matches.remove(tuple(ours[i : i + n]))
                        correct[n - 1] += 1
        if ref_len == 0:
            return "BLEU = 0, 0/0/0/0 (BP=0, ratio=0, hyp_len=0, ref_len=0)"
        precisions = [c / t if t else 0.0 for c, t in zip(correct, total, strict=True)]
        penalty = 1.0
        if hyp_len < ref_len:
            penalty = math.exp(1 - ref_len / hyp_len) if hyp_len else 0.0  # that program stops at 0 words
        bleu = penalty * math.prod(precisions) ** 0.25
        fractions = "/".join(f"{100 * p:.1f}" for p in precisions)
        return (
            f"BLEU = {100 * bleu:.2f}, {fractions} "
            f"(BP={penalty:.3f}, ratio={hyp_len / ref_len:.3f}, hyp_len={hyp_len}, ref_len={ref_len})"
        )

    return score
