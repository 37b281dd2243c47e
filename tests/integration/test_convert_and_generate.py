"""An authors' checkpoint, converted and given to plain ``fairseq-generate``, finds the authors' hypotheses."""

import re
from argparse import Namespace

import pytest
import torch
from support.fairseq_commands import USER_DIR, run
from support.reference import NAMES, load_reference

from muse_plugin.checkpoints import authors_format


# The penalty is the search's, whatever the model.
@pytest.mark.parametrize(("name", "length_penalty"), [*((name, 1.0) for name in NAMES), (NAMES[0], 0.6)])
def test_generate_finds_the_authors_hypotheses(name, length_penalty, tmp_path):
    reference = load_reference(name)
    state = reference.authors_checkpoint()
    # As the program of that time stored them: texts for booleans, options that no longer exist.
    vars(state["args"]).update(
        left_pad_source="True", left_pad_target="False", lazy_load=False, raw_text=False, min_lr=1e-9
    )
    torch.save(state, tmp_path / "authors.pt")
    arguments = Namespace(input=tmp_path / "authors.pt", output=tmp_path / "converted.pt")
    assert authors_format.run(arguments) == 0

    search = reference.config["search"]
    printed = run(
        "generate", _binarise(reference, tmp_path), "--user-dir", USER_DIR, "--path", tmp_path / "converted.pt",
        "--cpu", "--beam", search["beam_size"], "--lenpen", length_penalty, "--max-len-a", search["max_len_a"],
        "--max-len-b", search["max_len_b"], "--min-len", search["min_len"], "--nbest", search["beam_size"],
        "--num-workers", 0, "--batch-size", 100,
    )  # fmt: skip
    found: dict[int, list[tuple[str, float]]] = {}
    for number, score, text in re.findall(r"^H-(\d+)\t(\S+)\t(.*)$", printed, re.MULTILINE):
        found.setdefault(int(number), []).append((text, float(score)))
    prefix = f"nopad/beam/lenpen{length_penalty}"
    dictionary = reference.task().target_dictionary
    assert len(found) == len(reference.tensor(f"{prefix}/tokens"))
    for row, ranked in found.items():
        tokens, lengths, scores = (reference.tensor(f"{prefix}/{key}")[row] for key in ("tokens", "lengths", "scores"))
        expected = [dictionary.string(t[: n - 1]) for t, n in zip(tokens, lengths, strict=True)]
        assert [text for text, _ in ranked] == expected
        # fairseq prints scores to base 2
        assert [score for _, score in ranked] == pytest.approx(
            [float(s) * 1.4426950408889634 for s in scores], abs=1e-4
        )


def _binarise(reference, folder):
    """The reference's sentences as a binarised test set."""
    task, batch = reference.task(), reference.batch("nopad")
    texts = {
        "de": [task.source_dictionary.string(row) for row in batch["src_tokens"]],
        "en": [task.target_dictionary.string(row) for row in batch["target"]],
    }
    for language, lines in texts.items():
        (folder / f"test.{language}").write_text("".join(line + "\n" for line in lines))
    task.source_dictionary.save(str(folder / "source.txt"))
    task.target_dictionary.save(str(folder / "target.txt"))
    run(
        "preprocess", "--testpref", folder / "test", "-s", "de", "-t", "en", "--srcdict", folder / "source.txt",
        "--tgtdict", folder / "target.txt", "--destdir", folder / "bin",
    )  # fmt: skip
    return folder / "bin"
