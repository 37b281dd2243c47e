import sys
from types import SimpleNamespace

import pytest

from muse_plugin.evaluation.comet_score import compute_comet


@pytest.fixture
def fake_comet(monkeypatch):
    """A package that scores a translation by the share of characters it has in common with its reference."""
    calls = SimpleNamespace(downloaded=[], loaded=[], samples=[])

    def predict(samples, batch_size, gpus):
        assert gpus == 0
        calls.samples += samples
        scores = [len(set(s["mt"]) & set(s["ref"])) / len(set(s["ref"])) for s in samples]
        return SimpleNamespace(system_score=sum(scores) / len(scores))

    def load(path):
        calls.loaded.append(path)
        return SimpleNamespace(predict=predict)

    def download(name):
        calls.downloaded.append(name)
        return f"cache/{name}"

    module = SimpleNamespace(download_model=download, load_from_checkpoint=load)
    monkeypatch.setitem(sys.modules, "comet", module)
    return calls


def test_each_system_is_scored_with_one_model(fake_comet):
    scores = compute_comet("some/model", ["s1", "s2"], [["ab", "cd"], ["ab", "xy"]], ["ab", "cd"], cpu=True)
    assert scores == [100.0, 50.0]
    assert fake_comet.downloaded == ["some/model"]
    assert fake_comet.loaded == ["cache/some/model"]
    assert fake_comet.samples[0] == {"src": "s1", "mt": "ab", "ref": "ab"}
    assert fake_comet.samples[3] == {"src": "s2", "mt": "xy", "ref": "cd"}


def test_model_file_is_not_downloaded(fake_comet, tmp_path):
    path = tmp_path / "model.ckpt"
    path.touch()
    compute_comet(str(path), ["s"], [["a"]], ["a"], cpu=True)
    assert fake_comet.downloaded == []
    assert fake_comet.loaded == [str(path)]


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "comet", None)
    with pytest.raises(
        ImportError, match=r"--comet needs the package 'comet', never a dependency.*pip install unbabel-comet"
    ):
        compute_comet("m", ["s"], [["a"]], ["a"])


def test_command_hands_over_raw_text(fake_comet, run_evaluate, write_log):
    log = write_log(
        "log", ["he said : &quot; a@@ b &quot; ."], ["he said : &quot; ab &quot; ."], ["er sa@@ gte : ja ."]
    )
    langs = ("--source-lang", "de", "--target-lang", "en")
    outcome = run_evaluate("--generation-log", log, "--comet", "some/model", *langs, "--no-ter")
    raw = 'he said: "ab".'
    assert fake_comet.samples == [{"src": "er sagte: ja.", "mt": raw, "ref": raw}]
    assert outcome.json["scores"]["comet"] == {
        "mean": 100.0, "sd": None, "values": [100.0], "signature": "some/model, times 100",
    }  # fmt: skip
    assert "COMET            100.00\n" in outcome.out


def test_command_says_what_comet_needs(fake_comet, run_evaluate, write_log):
    log = write_log("log", ["a"], ["a"])
    with pytest.raises(ValueError, match="--comet needs raw text, but the text is tokenised; add --source-lang"):
        run_evaluate("--generation-log", log, "--comet", "m", "--target-lang", "en")
    with pytest.raises(ValueError, match="--comet needs source sentences, but there are none; give them by --sources"):
        run_evaluate("--generation-log", log, "--comet", "m", "--detokenized")
