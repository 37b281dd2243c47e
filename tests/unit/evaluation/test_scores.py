import pytest
import sacrebleu

from muse_plugin.evaluation import scores
from muse_plugin.evaluation.scores import TITLES, describe_score, make_measures
from muse_plugin.evaluation.text_forms import TextForms

REFERENCES = ["The cat sat on the well-known mat.", "He's gone home, hasn't he?", "A third and last sentence, Anna."]
HYPOTHESES = ["The cat sat on a well-known mat.", "he has gone home, hasn't he?", "A third and a last sentence, anna"]


def both(lines):
    return TextForms([line.replace(".", " .").replace(",", " ,") for line in lines], lines)


def compute(hypotheses=HYPOTHESES, references=REFERENCES, **settings):
    measures = make_measures(both(references), **settings)
    return {measure.name: measure.compute(measure.collect(both(hypotheses))) for measure in measures}, measures


@pytest.mark.parametrize("lowercase", [False, True])
def test_scores_are_those_of_sacrebleu(lowercase):
    computed, measures = compute(lowercase=lowercase)
    expected = {
        "bleu": sacrebleu.BLEU(lowercase=lowercase),
        "chrf": sacrebleu.CHRF(lowercase=lowercase),
        "ter": sacrebleu.TER(),
    }
    signatures = {measure.name: measure.signature for measure in measures}
    for name, metric in expected.items():
        assert computed[name].score == metric.corpus_score(HYPOTHESES, [REFERENCES]).score
        assert signatures[name] == str(metric.get_signature())
    assert f"case:{'lc' if lowercase else 'mixed'}" in signatures["tokenized_bleu"]
    assert list(computed) == ["tokenized_bleu", "bleu", "chrf", "ter"]


def test_lowercase_changes_every_score_but_ter():
    (mixed, _), (lowered, _) = compute(compound_split=True), compute(lowercase=True, compound_split=True)
    assert set(mixed) == set(TITLES)
    assert [name for name in mixed if mixed[name].score == lowered[name].score] == ["ter"]


def test_compounds_are_split_on_both_sides(slow_multi_bleu):
    computed, _ = compute(compound_split=True)
    split = [
        [line.replace("well-known", "well ##AT##-##AT## known") for line in both(lines).words]
        for lines in (HYPOTHESES, REFERENCES)
    ]
    assert describe_score("compound_split_bleu", computed["compound_split_bleu"])["line"] == slow_multi_bleu(*split)
    assert computed["compound_split_bleu"].score != computed["tokenized_bleu"].score


def test_missing_forms_leave_out_their_scores():
    assert [measure.name for measure in make_measures(TextForms(["a b"], None))] == ["tokenized_bleu"]
    raw_only = make_measures(TextForms(None, ["a b"]), compound_split=True, ter=False)
    assert [measure.name for measure in raw_only] == ["bleu", "chrf"]


def test_target_language_chooses_the_tokenisation_of_sacrebleu():
    (measure,) = [m for m in make_measures(TextForms(None, ["你好 吗"]), target_lang="zh") if m.name == "bleu"]
    assert "tok:zh" in measure.signature


def test_missing_tokeniser_of_sacrebleu_is_named(monkeypatch):
    def refuse(**settings):
        raise RuntimeError("Please install\n  mecab")

    monkeypatch.setattr(scores, "BLEU", refuse)
    with pytest.raises(ImportError, match="BLEU for 'ja' needs a tokeniser: Please install mecab"):
        make_measures(TextForms(None, ["a"]), target_lang="ja")


def test_empty_hypotheses_have_scores():
    computed, _ = compute(hypotheses=["", "", ""])
    assert {name: score.score for name, score in computed.items()} == {
        "tokenized_bleu": 0.0,
        "bleu": 0.0,
        "chrf": 0.0,
        "ter": 100.0,
    }


def test_description_has_all_parts_of_bleu():
    computed, _ = compute()
    described = describe_score("bleu", computed["bleu"])
    assert set(described) == {"score", "precisions", "bp", "ratio", "hyp_len", "ref_len"}
    assert len(described["precisions"]) == 4
    assert set(describe_score("ter", computed["ter"])) == {"score"}
