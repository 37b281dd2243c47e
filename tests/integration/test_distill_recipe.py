"""Distillation from raw text to the figure, as a trial."""

import json
from importlib.util import find_spec

import pytest
from support.helpers import REPOSITORY, assert_refused
from support.recipes import run_trial, run_trials

DATA = REPOSITORY.parent / "shared" / "data" / "multi30k"


def test_a_trial_runs_from_raw_text_to_the_figure(tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra 'figures'")
    if not DATA.is_dir():
        pytest.skip("the real sentences of Multi30k are not here")
    raw_dir, work_dir = tmp_path / "raw", tmp_path / "work"
    raw_dir.mkdir()
    for path in DATA.glob("*"):
        (raw_dir / path.name).symlink_to(path)
    run_trials("distill", raw_dir, work_dir, ("prepare", "train"), LAYERS="6-1", TARGET_LANG="fr")
    translated = (work_dir / "data" / "text" / "train.de").read_text(encoding="utf-8").splitlines()
    source = (work_dir / "multi30k" / "en-de" / "bpe" / "train.en").read_text(encoding="utf-8").splitlines()
    assert 0 < len(translated) <= len(source) == 300
    names = ["dict.en.txt", "dict.de.txt"]
    for name in names:  # students read what their teacher reads
        own = (work_dir / "data" / "bin" / name).read_bytes()
        assert own == (work_dir / "multi30k" / "en-de" / "bin" / name).read_bytes()

    # A part that was interrupted is translated again, and no other one.
    for name in (".translate-1.done", ".text.done"):
        (work_dir / "data" / name).unlink()
    done = run_trial("distill", "prepare", raw_dir, work_dir)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "translate the training text, part 1 of 2: done before" in done.stdout
    assert "translate the training text, part 2 of 2 (its output" in done.stdout
    assert (work_dir / "data" / "text" / "train.de").read_text(encoding="utf-8").splitlines() == translated

    done = run_trial("distill", "evaluate", raw_dir, work_dir, LAYERS="6-1", BATCH="5")
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((work_dir / "frontier.json").read_text(encoding="utf-8"))
    forms = {(one["model"], one["form"], one["beam"]) for one in record["points"]}
    teacher = ["float32", *(["CTranslate2, float32", "CTranslate2, int8"] if find_spec("ctranslate2") else [])]
    student = "muse_simple-6-1-width128-seed1"
    has_onnxruntime = find_spec("onnx") and find_spec("onnxruntime")
    own = ["float32", "int8", *(["onnxruntime, float32", "onnxruntime, int8"] if has_onnxruntime else [])]
    wanted = {("teacher", form, beam) for form in teacher for beam in (5, 1)}
    assert forms == wanted | {(student, form, beam) for form in own for beam in (5, 1)}
    assert record["sentences"] == 10
    assert record["threads"]["torch"] == 1
    assert all(one["sentences_per_second"] > 0 and 0 <= one["bleu"] <= 100 for one in record["points"])
    assert (work_dir / "frontier.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert (work_dir / "frontier.md").read_text(encoding="utf-8") in done.stdout

    done = run_trial("distill", "train", raw_dir, work_dir, LAYERS="6-1", TEACHER="muse")
    assert_refused(done, "was made with other settings")
