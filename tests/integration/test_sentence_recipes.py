"""Every recipe of a sentence model from its raw files to results, as a trial on real text."""

import json
import re
import shutil
import subprocess
import sys

import pytest
import torch
from fairseq.data import Dictionary
from support.bert_folders import make_bert
from support.helpers import REPOSITORY
from support.recipes import EXAMPLES, run_recipe, run_trial, run_trials
from support.translation_models import save_translation_model

from muse_plugin.matching.pair_model import PairModel

DATA = REPOSITORY.parent / "shared" / "data"


def link(folder, *sources):
    """A folder with links to real files; skips where they are absent."""
    folder.mkdir()
    for source in sources:
        path = DATA / source
        if not path.exists():
            pytest.skip(f"the real data {path.name} are not here")
        (folder / path.name).symlink_to(path)
    return folder


def read_result(path, score, program="fairseq-train "):
    """A result, after the checks that hold for all of them."""
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["num_sentences"] > 0
    assert 0 <= result["scores"][score]["mean"] <= 100
    assert result["settings"]["seed"] == 1
    assert result["settings"]["data_trial"] == 1
    assert result["settings"]["train_command"].startswith(program)
    assert "seconds_train" in result["settings"]
    assert "seconds_predict-test" in result["settings"]
    assert result["versions"]["torch"]
    return result


def test_mtl16_holds_out_where_there_is_no_test_file(tmp_path):
    raw = link(tmp_path / "raw", "mtl16/MR.task.train.gz", "mtl16/MR.task.test.gz", "mtl16/books.task.train.gz")
    work = tmp_path / "work"
    run_trials("mtl16", raw, work, ("prepare",), DOMAIN="MR books")
    for domain, test in (("MR", "official"), ("books", "held-out")):
        assert f"test={test}" in (work / domain / "data" / "settings.txt").read_text().splitlines()
        prepared = json.loads((work / domain / "data" / "bin" / "text_pipeline.json").read_text())["data"]
        assert prepared["splits"]["valid"]["sentences"] == 20
        assert prepared["splits"]["test"]["sentences"] == 40
    settings = {"DOMAIN": "books", "MODEL": "sentence_average"}
    run_trials("mtl16", raw, work, ("train", "evaluate"), **settings)
    result = read_result(work / "books" / "sentence_average-seed1" / "results" / "books.json", "accuracy")
    assert result["settings"]["data_test"] == "held-out"
    table = (work / "RESULTS.md").read_text(encoding="utf-8").splitlines()
    assert table[0] == "| domain | average of words |"  # one model has a table, too; a trial is not next to the paper
    assert table[2].startswith("| books (held out) | ")
    # Again: nothing is trained or scored twice.
    for script in ("train", "evaluate"):
        again = run_trial("mtl16", script, raw, work, **settings)
        assert again.returncode == 0, again.stderr
        assert again.stdout.count("done before") == {"train": 1, "evaluate": 2}[script]


def test_mtl16_takes_word_vectors_learned_from_several_domains(tmp_path):
    pytest.importorskip("gensim", reason="needs gensim")
    raw = link(tmp_path / "raw", "mtl16/MR.task.train.gz", "mtl16/MR.task.test.gz", "mtl16/books.task.train.gz")
    work = tmp_path / "work"
    run_trials("mtl16", raw, work, ("prepare",), DOMAIN="MR books")
    data = [str(work / domain / "data" / "bin") for domain in ("MR", "books")]
    done = run_recipe("recipe", "vectors", *data, WORK_DIR=str(tmp_path), DIM="6", VECTOR_EPOCHS="1", MIN_COUNT="1")
    learned = tmp_path / "fasttext6.txt"
    assert f"vectors: ready: export WORD_VECTORS={learned}" in done.stdout, done.stderr
    lines = learned.read_text(encoding="utf-8").splitlines()
    assert {len(line.split(" ")) for line in lines} == {1 + 6}
    settings = {"DOMAIN": "MR", "MODEL": "sentence_average", "WORD_VECTORS": str(learned), "FREEZE_VECTORS": "1"}
    run_trials("mtl16", raw, work, **settings)
    result = read_result(work / "MR" / "sentence_average-frozen-vectors-seed1" / "results" / "MR.json", "accuracy")
    assert "--freeze-word-vectors" in result["settings"]["train_command"]


def test_sst_compares_scales_with_phrases_of_trees(tmp_path):
    raw = link(tmp_path / "raw", "sst/stsa.binary.train.gz", "sst/stsa.binary.dev", "sst/trees")
    work = tmp_path / "work"
    settings = {"BINARY": "1", "TREES": "1", "ALPHAS": "", "SINGLES": "N/8"}
    printed = run_trials("sst", raw, work, ("prepare", "scales"), **settings)
    run = work / "binary-trees" / "multi_scale_transformer-scalesN_8-seed1"
    result = read_result(run / "results" / "test.json", "accuracy")
    assert result["settings"]["scales"] == "N/8"
    assert result["settings"]["data_test"] == "dev"
    assert "--encoder-attention-scales N/8" in (run / "train-command.txt").read_text()
    assert "| seeds | test: accuracy | test: macro F1 | training, s | an epoch, s |" in printed
    data = work / "binary-trees" / "data"
    text = [line.split(" ", 1) for line in (data / "text" / "train.txt").read_text(encoding="utf-8").splitlines()]
    assert len(text) > 500
    assert {label for label, _ in text} == {"0", "1"}
    kept_out = {line.split(" ", 1)[1] for line in (data / "text" / "valid.txt").read_text().splitlines()}
    assert len(kept_out) == 20
    assert not kept_out.intersection(words for _, words in text)


def test_documents_are_classified_with_vectors_learned_from_them(tmp_path):
    pytest.importorskip("gensim", reason="needs gensim")
    raw = link(tmp_path / "raw", "reuters-r8/r8-train-all-terms.txt.gz", "reuters-r8/r8-test-all-terms.even.txt.gz")
    work = tmp_path / "work"
    printed = run_trials("documents", raw, work, DATASET="r8", FOLDS="2", MODELS="lama_context")
    for fold in (1, 2):
        result = read_result(work / f"r8/folds2/fold{fold}/lama_context-seed1/results/test.json", "accuracy")
        assert (result["settings"]["data_fold"], result["settings"]["data_source"]) == (fold, "even")
    assert "| lama_context | 2 |" in printed
    rows = (work / "r8/folds2/fold1/data/bin/word_vectors.txt").read_text(encoding="utf-8").splitlines()
    assert {len(row.split()) for row in rows} == {17}


def test_snli_reads_pairs_of_sick(tmp_path):
    names = ("SICK_train.txt.gz", "SICK_trial.txt", "SICK_test_annotated.txt.gz")
    raw = link(tmp_path / "raw", *(f"sick/{name}" for name in names))
    run_trials("snli", raw, tmp_path / "work", ("prepare",))
    data = tmp_path / "work" / "sick" / "data"
    label, premise, hypothesis = (data / "text" / "valid.tsv").read_text(encoding="utf-8").splitlines()[0].split("\t")
    assert label == "contradiction"
    assert premise == "the young boys are playing outdoors and the man is smiling nearby"
    assert hypothesis == "there is no boy playing outdoors and there is no man smiling"
    assert json.loads((data / "bin" / "text_pipeline.json").read_text())["data"]["pair"]


def test_a_floor_is_a_row_like_any_model(tmp_path):
    names = ("SICK_train.txt.gz", "SICK_trial.txt", "SICK_test_annotated.txt.gz")
    raw = link(tmp_path / "raw", *(f"sick/{name}" for name in names))
    printed = run_trials("snli", raw, tmp_path / "work", BASELINE="linear")
    result = read_result(tmp_path / "work" / "sick" / "linear-seed1" / "results" / "test.json", "accuracy", "python ")
    assert result["settings"]["model"] == "linear"
    assert "| seeds | train: accuracy |" in printed


def test_snli_reads_the_small_pieces(tmp_path):
    raw = link(tmp_path / "raw", "snli-counterfactual/original/train.tsv", "snli/dev.txt.gz", "snli/test.txt.gz")
    run_trials("snli", raw, tmp_path / "work", ("prepare",), DATASET="snli-small")
    lines = (tmp_path / "work" / "snli-small" / "data" / "text" / "train.tsv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 200
    label, premise, hypothesis = lines[0].split("\t")
    assert label == "neutral"
    assert premise == "a man is riding a red motorcycle with a small child sitting in front of him"
    assert hypothesis.endswith(" his motorcyle with his won")


def test_the_distance_network_runs_on_the_small_pieces_of_scitail(tmp_path):
    raw = link(tmp_path / "raw", "scitail/dev.txt.gz", "scitail/test.txt.gz")
    run_trials("snli", raw, tmp_path / "work", DATASET="scitail-small", MODEL="distance_attention_network")
    results = tmp_path / "work" / "scitail-small" / "distance_attention_network-seed1" / "results"
    assert {path.name for path in results.glob("*.json")} == {"train.json", "test.json"}
    assert float(read_result(results / "test.json", "accuracy")["settings"]["seconds_per_epoch"]) >= 0


def test_head_wise_match_compares_systems_on_paraphrases(tmp_path):
    raw = link(tmp_path / "raw", "mrpc/msr_paraphrase_train.txt.gz", "mrpc/msr_paraphrase_test.txt.gz")
    work = tmp_path / "work"
    run_trials("head_wise_match", raw, work, DATASET="mrpc", ENCODER="transformer", TABLE="2")
    results = sorted((work / "mrpc").glob("transformer-*/results/*.json"))
    assert len(results) == 3
    for path in results:
        read_result(path, "accuracy")
        read_result(path, "f1")
    table = (work / "mrpc" / "RESULTS.md").read_text(encoding="utf-8")
    assert table.count("| Transformer |") == 3
    run_trials("head_wise_match", raw, work, DATASET="mrpc", BASELINE="linear")  # its table is another one
    assert (work / "mrpc" / "RESULTS.md").read_text(encoding="utf-8") == table
    assert "linear" in (work / "mrpc" / "RESULTS-linear.md").read_text(encoding="utf-8")
    # The kept runs make the same table.
    program, kept = [sys.executable, EXAMPLES / "head_wise_match" / "compare.py"], tmp_path / "runs.jsonl"
    subprocess.run([*program, *results, "--keep", kept, "--output", tmp_path / "1.md"], check=True)
    subprocess.run([*program, kept, "--output", tmp_path / "2.md"], check=True)
    assert len(kept.read_text(encoding="utf-8").splitlines()) == 3
    assert (tmp_path / "1.md").read_text(encoding="utf-8") == (tmp_path / "2.md").read_text(encoding="utf-8") == table


def test_head_wise_match_reads_word_pieces_of_a_bert(tmp_path):
    raw = link(tmp_path / "raw", "mrpc/msr_paraphrase_train.txt.gz", "mrpc/msr_paraphrase_test.txt.gz")
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        *"abcdefghijklmnopqrstuvwxyz0123456789.,",
        "the",
        "of",
        "##s",
        "##ing",
    ]
    make_bert(tmp_path / "bert", vocab_size=len(pieces), max_position_embeddings=64)
    (tmp_path / "bert" / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    work = tmp_path / "work"
    run_trials("head_wise_match", raw, work, DATASET="mrpc", BERT_DIR=str(tmp_path / "bert"))
    (path,) = (work / "mrpc").glob("bert-*/results/*.json")
    read_result(path, "accuracy")


def test_head_wise_match_goes_on_from_a_translation_model(tmp_path):
    raw = link(
        tmp_path / "raw", *(f"sick/SICK_{part}" for part in ("train.txt.gz", "trial.txt", "test_annotated.txt.gz"))
    )
    (tmp_path / "mt").mkdir()
    model = save_translation_model(tmp_path / "mt")
    (model / "bin").mkdir()
    shutil.copy(model / "dict.en.txt", model / "bin" / "dict.en.txt")
    work = tmp_path / "work"
    settings = {"DATASET": "sick", "ENCODER": "translation", "TRANSLATION_DATA": str(model), "SEEDS": "3"}
    run_trials("head_wise_match", raw, work, TRANSLATION_CHECKPOINT=str(model / "checkpoint_avg.pt"), **settings)
    run = work / "sick" / "translation-element-max-all-seed3"
    result = json.loads((run / "results" / "test.json").read_text(encoding="utf-8"))
    assert re.fullmatch(r"checkpoint_avg\.pt@[0-9]+", result["settings"]["translation"])
    assert re.fullmatch(r"mt@[0-9]+", result["settings"]["data_vocabulary"])
    dictionary = Dictionary.load(str(work / "sick" / "data-translation" / "bin" / "input0" / "dict.txt"))
    assert dictionary.symbols == Dictionary.load(str(model / "dict.en.txt")).symbols
    # Two updates of warm-up leave the encoder nearly as it was.
    before = torch.load(model / "checkpoint_avg.pt", weights_only=False)["model"]["encoder.embed_tokens.weight"]
    after = PairModel.load(run / "checkpoints" / "checkpoint_best.pt", cpu=True).model.encoder.embed_tokens.weight
    assert (after - before).abs().max() < 1e-3
    assert before.abs().max() > 0.1


def test_pos_tagging_keeps_case_and_has_unknown_words(tmp_path):
    raw = link(tmp_path / "raw", *(f"ud-english-ewt/en_ewt-ud-{part}.conllu.gz" for part in ("train", "dev", "test")))
    run_trials("pos_tagging", raw, tmp_path / "work", ("prepare",))
    folder = tmp_path / "work" / "xpos" / "data" / "bin"
    assert {"NN", "DT", "VBD"} <= {line.split()[0] for line in (folder / "label" / "dict.txt").read_text().splitlines()}
    prepared = json.loads((folder / "text_pipeline.json").read_text())
    assert prepared["data"]["vocabulary"]["threshold"] == 2
    assert not prepared["texts"]["text"]["lower_case"]
    assert prepared["data"]["characters"]


def test_ner_scores_entities(tmp_path):
    pytest.importorskip("seqeval", reason="entities need seqeval")
    names = ("wnut17train.conll.gz", "emerging.dev.conll", "emerging.test.annotated")
    raw = link(tmp_path / "raw", *(f"wnut17-ner/{name}" for name in names))
    run_trials("ner", raw, tmp_path / "work", CHARACTERS="cnn")
    run = tmp_path / "work" / "multi_scale_transformer-cnn-seed1"
    result = read_result(run / "results" / "test.json", "entity_f1")
    assert result["settings"]["best"] == "entity_f1"
    assert "person" in result["per_entity"]
    assert "| valid | epoch 001 |" in (run / "train.log").read_text(encoding="utf-8")


def test_mirrored_summation_measures_and_draws(tmp_path):
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    printed = run_trials("mirrored_summation", tmp_path, tmp_path / "work", MODELS="flex", TERMS="4")
    folder = tmp_path / "work" / "trial"
    result = json.loads((folder / "terms4" / "flex-seed1" / "results.json").read_text(encoding="utf-8"))
    assert result["scores"]["mse"]["mean"] > 0
    assert result["scores"]["valid_mse"]["mean"] > 0
    assert (result["settings"]["model"], result["settings"]["terms"]) == ("flex", 4)
    assert "| 4 | 0.1944 | " in printed
    assert "nothing to judge: no K has all four models" in printed
    assert (folder / "mirrored-summation.svg").read_bytes().startswith(b"<?xml")
    assert (folder / "mirrored-summation.png").read_bytes().startswith(b"\x89PNG")
