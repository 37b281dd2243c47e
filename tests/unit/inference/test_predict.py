"""One answer for every line, in order, the same as in training and in any batch; bad input is named."""

import json
import shutil

import pytest
import torch
from support.sentence_checkpoints import make_pair_model, prepare_text, save_model

from muse_plugin.inference import predict as predict_module
from muse_plugin.inference.predict import Answer, Predictor, load_sentence_model
from muse_plugin_command import cli

TEXTS = ["good film", "bad film", "good good story", "bad story indeed", "good", "bad"] * 3


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier")
    text = "".join(f"{'pos' if 'good' in t else 'neg'}\t{t}\n" for t in TEXTS)
    prepare_text(folder, text, "--format", "label-tab-text", "--lower-case")
    return folder, *save_model(folder, "muse_sentence_classification", "sentence_bigru", "--max-words", "6")


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagger")
    text = "Ann\tN\nsees\tV\n\nBob\tN\n\nAnn\tN\nsings\tV\n\n" * 2
    prepare_text(folder, text, "--format", "conll", "--characters")
    flags = ["--character-encoder", "cnn", "--crf", "--max-words", "2"]
    return folder, *save_model(folder, "muse_sequence_tagging", "sentence_average", *flags)


def predict(capsys, folder, text, *flags):
    source, target = folder / "in.txt", folder / "out.txt"
    source.write_bytes(text if isinstance(text, bytes) else text.encode())
    code = cli.main(
        ["predict", "--path", str(folder), "--input", str(source), "--output", str(target), "--cpu", *flags]
    )
    error = capsys.readouterr().err
    return (target.read_text().split("\n")[:-1] if code == 0 else None), error


def test_every_line_has_its_answer_and_blank_lines_blank_ones(classifier, capsys):
    folder, model, task = classifier
    lines, error = predict(capsys, folder, "Good film\n\n \t \nbad story\n\u200b\nindeed\n")
    assert [bool(line) for line in lines] == [True, False, False, True, False, True]
    assert "columns: label, then the probability of: neg pos" in error
    assert f"using checkpoint_best.pt, the only checkpoint in the folder {folder}\n" in error
    label, *probabilities = lines[0].split("\t")
    tokens = torch.tensor([[task.source_dictionary.index(word) for word in ("good", "film")]])
    expected = model(tokens, torch.tensor([2])).logits.softmax(-1)[0]
    assert [float(p) for p in probabilities] == pytest.approx(expected.tolist(), abs=1e-5)
    assert label == ("neg", "pos")[int(expected.argmax())]


def test_answers_do_not_depend_on_batches_and_order(classifier, capsys):
    folder, _, _ = classifier
    text = "good\nbad story indeed\ngood good story film\nfilm\n"
    one_by_one, _ = predict(capsys, folder, text, "--batch-size", "1", "--format", "jsonl")
    together, _ = predict(capsys, folder, text, "--format", "jsonl")
    assert len(together) == 4
    for a, b in zip(map(json.loads, one_by_one), map(json.loads, together), strict=True):
        assert a["label"] == b["label"]
        assert a["probabilities"] == pytest.approx(b["probabilities"], abs=1e-6)
        assert sum(a["probabilities"].values()) == pytest.approx(1.0, abs=1e-5)


def test_long_and_invalid_lines_are_answered_with_a_warning(classifier, capsys, caplog):
    folder, _, _ = classifier
    lines, _ = predict(capsys, folder, b"good " * 9 + b"\nbad \xff film\n" + b"good " * 6 + b"\n" + b"bad " * 7 + b"\n")
    assert "2 texts were longer than 6 words; only those were read" in caplog.text
    assert "line 2 is not valid UTF-8" in caplog.text
    assert lines[0] == lines[2]


@pytest.mark.parametrize("kind", ["tags", "classes"])
def test_learned_positions_end_where_their_table_does(kind, classifier, tagger, tmp_path, capsys, caplog, monkeypatch):
    monkeypatch.setattr("muse_plugin.models.sentence_transformer._LONGEST_LEARNED", 4)
    task = "muse_sequence_tagging" if kind == "tags" else "muse_sentence_classification"
    shutil.copytree((tagger if kind == "tags" else classifier)[0] / "data", tmp_path / "data")
    flags = "--encoder-positions", "learned", "--encoder-attention-heads", "2", "--encoder-layers", "1"
    save_model(tmp_path, task, "sentence_transformer", *flags, *(() if kind == "tags" else ("--max-words", "9")))
    lines, _ = predict(capsys, tmp_path, "good film\n" + "good " * 9 + "\nbad\n")
    read = 4 if kind == "tags" else 3  # and the classification token
    assert f"1 texts were longer than {read} words; only those were read." in caplog.messages
    assert [len(line.split()) for line in lines] == ([2, 4, 1] if kind == "tags" else [3, 3, 3])
    _, error = predict(capsys, tmp_path, "good\n", "--max-words", str(read + 1))
    assert f"--max-words must be at most {read} for this model, but got {read + 1}." in error


def test_long_lines_are_counted_by_each_of_two_runs(classifier, tmp_path, capsys, caplog, monkeypatch):
    folder, _, _ = classifier
    (tmp_path / "in.txt").write_text("good film\ngood good film\nbad\nbad bad film\nbad bad bad\nbad\n")
    monkeypatch.setattr(predict_module, "BUFFER_SIZE", 2)
    answer = Predictor.answer

    def stop_at_second(self, lines, first_line):
        if first_line == 3:
            raise KeyboardInterrupt
        return answer(self, lines, first_line)

    files = "--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out.txt"), "--max-words", "2"
    with monkeypatch.context() as patch:
        patch.setattr(Predictor, "answer", stop_at_second)
        with pytest.raises(KeyboardInterrupt):
            cli.main(["predict", "--path", str(folder), "--cpu", *files])
    assert "1 texts were longer than 2 words; only those were read." in caplog.messages
    caplog.clear()
    assert cli.main(["predict", "--path", str(folder), "--cpu", *files]) == 0
    assert "2 texts were longer than 2 words; only those were read." in caplog.messages


def test_long_lines_are_refused_on_request(classifier, capsys):
    folder, _, _ = classifier
    _, error = predict(capsys, folder, "good\n" + "good " * 9, "--long-texts", "refuse")
    assert "--long-texts refuse allows 6 words, but line 2 has 9; raise --max-words, or truncate." in error
    lines, _ = predict(
        capsys, folder, "good\n" + "good " * 9, "--long-texts", "refuse", "--max-words", "9", "--restart"
    )
    assert len(lines) == 2


def test_long_lines_are_refused_where_they_were_in_training(tmp_path, capsys):
    prepare_text(tmp_path, "pos\tgood film\nneg\tbad\n" * 3, "--format", "label-tab-text")
    flags = ("--max-words", "2", "--long-texts", "refuse")
    save_model(tmp_path, "muse_sentence_classification", "sentence_average", *flags)
    _, error = predict(capsys, tmp_path, "good bad film\n")
    assert "--long-texts refuse allows 2 words, but line 1 has 3" in error
    assert len(predict(capsys, tmp_path, "good bad film\n", "--long-texts", "truncate", "--restart")[0]) == 1


def test_the_text_is_not_replaced_by_its_answers(classifier, tmp_path, capsys):
    folder, _, _ = classifier
    (tmp_path / "text").write_text("good film\n")
    text = str(tmp_path / "text")
    assert cli.main(["predict", "--path", str(folder), "--cpu", "--input", text, "--output", text]) == 2
    assert "--output must not replace what is read" in capsys.readouterr().err
    assert (tmp_path / "text").read_text() == "good film\n"


def test_an_interrupted_prediction_goes_on_to_the_same_bytes(classifier, tmp_path, capsys, monkeypatch):
    folder, _, _ = classifier
    (tmp_path / "in.txt").write_text("".join(f"{text} {'film ' * (i % 4)}\n" for i, text in enumerate(TEXTS)))
    command = ["predict", "--path", str(folder), "--cpu", "--batch-size", "2", "--input", str(tmp_path / "in.txt")]
    monkeypatch.setattr(predict_module, "BUFFER_SIZE", 5)
    assert cli.main([*command, "--output", str(tmp_path / "whole.txt")]) == 0
    answer = Predictor.answer
    starts = []

    def stop_at_third(self, lines, first_line):
        starts.append(first_line)
        if len(starts) == 3:
            raise KeyboardInterrupt
        return answer(self, lines, first_line)

    monkeypatch.setattr(Predictor, "answer", stop_at_third)
    command += ["--output", str(tmp_path / "out.txt")]
    with pytest.raises(KeyboardInterrupt):
        cli.main(command)
    assert "10 lines are kept in" in capsys.readouterr().err
    assert cli.main([*command, "--format", "jsonl", "--max-words", "3", "--batch-size", "4"]) == 2
    differences = "--format tsv (now jsonl) and --batch-size 2 (now 4) and --max-words 6 (now 3); give --restart"
    assert differences in capsys.readouterr().err
    assert cli.main(command) == 0
    assert starts == [1, 6, 11, 11, 16]
    assert (tmp_path / "out.txt").read_bytes() == (tmp_path / "whole.txt").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.txt", "whole.txt"]


def test_a_bad_line_can_be_mended_without_doing_those_before_it_again(tmp_path, capsys, monkeypatch):
    make_pair_model(tmp_path)
    monkeypatch.setattr(predict_module, "BUFFER_SIZE", 2)
    _, error = predict(capsys, tmp_path, "a b\tc\nc\ta\na b\n")
    assert "line 3 has 1: 'a b'" in error
    assert "2 lines are kept in" in error
    _, error = predict(capsys, tmp_path, "a b\tc\nc\ta\na b\tc\n", "--long-texts", "refuse")
    assert "--long-texts truncate (now refuse); give --restart" in error
    lines, error = predict(capsys, tmp_path, "a b\tc\nc\ta\na b\tc\n")
    assert "3 lines, 1 now in" in error
    assert lines[0] == lines[2] != ""


def _change_text_settings(data):
    content = json.loads((data / "text_pipeline.json").read_text())
    content["texts"]["text"]["lower_case"] ^= True
    (data / "text_pipeline.json").write_text(json.dumps(content))


def _change_dictionary(data):
    words = (data / "input0" / "dict.txt").read_text().split("\n")
    (data / "input0" / "dict.txt").write_text("\n".join([words[1], words[0], *words[2:]]))


@pytest.mark.parametrize("change", [_change_text_settings, _change_dictionary])
def test_other_data_do_not_go_on(classifier, tmp_path, capsys, monkeypatch, change):
    folder, _, _ = classifier
    data = shutil.copytree(folder / "data", tmp_path / "data")
    # As earlier versions wrote it, without fingerprints of the dictionaries.
    state = torch.load(folder / "checkpoint_best.pt", weights_only=True)
    torch.save({**state, "task_state": {}}, tmp_path / "checkpoint_best.pt")
    monkeypatch.setattr(predict_module, "BUFFER_SIZE", 2)
    with monkeypatch.context() as patch:
        patch.setattr(predict_module, "_write_columns", lambda answer: 1 / 0 if "odd" in answer.words else "x")
        with pytest.raises(ZeroDivisionError):
            predict(capsys, tmp_path, "good\nbad\nodd\n", "--data", str(data))
    change(data)
    _, error = predict(capsys, tmp_path, "good\nbad\nodd\n", "--data", str(data))
    assert "was made with dictionaries and text_pipeline.json of sha256" in error
    lines, _ = predict(capsys, tmp_path, "good\nbad\nodd\n", "--data", str(data), "--restart")
    assert len(lines) == 3
    assert "x" not in lines


def test_text_of_unknown_words_is_reported(classifier, capsys, caplog):
    folder, _, _ = classifier
    predict(capsys, folder, "strange words here\n" * 40)
    assert "100 % of the words are not in the dictionary" in caplog.text
    caplog.clear()
    predict(capsys, folder, "good film here\n" * 40)
    assert "not in the dictionary" not in caplog.text


def test_a_split_comes_with_its_right_answers_in_order(classifier, capsys):
    folder, _, _ = classifier
    target = folder / "split.jsonl"
    words = ["predict", "--path", str(folder), "--split", "test", "--format", "jsonl", "--output", str(target), "--cpu"]
    assert cli.main(words) == 0
    entries = [json.loads(line) for line in target.read_text().splitlines()]
    assert [entry["target"] for entry in entries] == ["pos" if "good" in text else "neg" for text in TEXTS]
    assert [entry["length"] for entry in entries] == [len(text.split()) for text in TEXTS]
    raw, _ = predict(capsys, folder, "\n".join(TEXTS) + "\n", "--format", "jsonl")
    for entry, line in zip(entries, raw, strict=True):
        assert entry["probabilities"] == pytest.approx(json.loads(line)["probabilities"], abs=1e-6)
    assert cli.main(["score-labels", str(target)]) == 0


def predict_split(capsys, folder, *flags):
    target = folder / "split.jsonl"
    words = ["predict", "--path", str(folder), "--split", "test", "--format", "jsonl", "--output", str(target), "--cpu"]
    code = cli.main([*words, *flags])
    error = capsys.readouterr().err
    return ([json.loads(line) for line in target.read_text().splitlines()] if code == 0 else None), error


def test_long_texts_of_a_split_are_cut_as_raw_ones_are_and_counted(classifier, capsys, caplog):
    folder, _, _ = classifier
    entries, _ = predict_split(capsys, folder, "--max-words", "2")
    assert [entry["length"] for entry in entries] == [min(2, len(text.split())) for text in TEXTS]
    assert "test: 6 texts (33.3 %) are longer than 2 words and truncated" in caplog.text
    raw, _ = predict(capsys, folder, "\n".join(TEXTS) + "\n", "--format", "jsonl", "--max-words", "2")
    for entry, line in zip(entries, raw, strict=True):
        assert entry["probabilities"] == pytest.approx(json.loads(line)["probabilities"], abs=1e-6)
    _, error = predict_split(capsys, folder, "--max-words", "2", "--long-texts", "refuse")
    assert "--long-texts refuse allows 2 words, but 6 texts" in error


def test_every_word_of_a_split_gets_a_tag(tagger, capsys):
    folder, _, _ = tagger  # trained with --max-words 2
    flags = ("--format", "conll", "--characters", "--dict-from", str(folder / "data"))
    long = prepare_text(folder, "Ann\tN\nsees\tV\nBob\tN\nsings\tV\n\n", *flags, data="long")
    (entry,), _ = predict_split(capsys, folder, "--data", str(long))
    assert entry["words"] == ["Ann", "sees", "Bob", "sings"]
    assert (len(entry["tags"]), entry["target"]) == (4, ["N", "V", "N", "V"])


def test_a_split_needs_no_text_settings(classifier, tmp_path, capsys):
    folder, _, _ = classifier
    data = shutil.copytree(folder / "data", tmp_path / "data")
    (data / "text_pipeline.json").unlink()
    shutil.copy(folder / "checkpoint_best.pt", tmp_path)
    assert predict_split(capsys, tmp_path, "--data", str(data))[0] == predict_split(capsys, folder)[0]
    _, error = predict(capsys, tmp_path, "good\n", "--data", str(data))
    assert "text_pipeline.json, but there is no such file" in error


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("pos\tfine day\nneg\tpoor day\n", "input0/dict.txt"),
        ("yes\tgood film\nno\tbad film\n", "label/dict.txt"),
        ("yes\tfine day\nno\tpoor day\n", "input0/dict.txt and label/dict.txt"),
    ],
)
def test_dictionaries_of_the_same_size_are_told_apart(tmp_path, capsys, change, named):
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, text in ((one, "pos\tgood film\nneg\tbad film\n"), (other, change)):
        folder.mkdir()
        prepare_text(folder, text * 3, "--format", "label-tab-text")
    save_model(one, "muse_sentence_classification", "sentence_average")
    assert predict_split(capsys, one)[0]
    for answer in (predict_split, lambda *words: predict(*words[:2], "good\n", *words[2:])):
        _, error = answer(capsys, one, "--data", str(other / "data"))
        assert f"the data must be those that the model was trained with, but {named} in {other / 'data'} has" in error


def test_every_word_gets_a_tag_however_long_the_line(tagger, capsys):
    folder, _, _ = tagger
    lines, _ = predict(capsys, folder, "Ann sees Bob sings\n\nBob\n")
    assert [len(line.split()) for line in lines] == [4, 0, 1]
    assert set(" ".join(lines).split()) <= {"N", "V"}
    entries, _ = predict(capsys, folder, "Ann sees Bob sings\n", "--format", "jsonl")
    assert json.loads(entries[0])["words"] == ["Ann", "sees", "Bob", "sings"]


def test_pairs_are_read_with_a_tab_between_them(tmp_path, capsys):
    make_pair_model(tmp_path)
    lines, _ = predict(capsys, tmp_path, "a b\tc\n\nc\ta\n")
    assert [bool(line) for line in lines] == [True, False, True]
    _, error = predict(capsys, tmp_path, "a b\tc\na b c\n")
    assert "this model reads pairs, two texts in a line with a tab between them, but line 2 has 1: 'a b c'" in error
    _, error = predict(capsys, tmp_path, "a b\t\n")
    assert "both texts of a pair must have a word, but in line 1 one is blank" in error


def test_bad_flags_and_files_are_named_in_a_sentence(classifier, tmp_path, capsys):
    folder, _, _ = classifier

    def error_of(*flags):
        assert cli.main(["predict", *map(str, flags)]) == 2
        return capsys.readouterr().err

    assert "--batch-size must be at least 1, but got 0" in error_of("--path", folder, "--batch-size", 0)
    assert "--split and --input are two sources" in error_of(
        "--path", folder, "--split", "test", "--input", folder / "in.txt"
    )
    assert "does not exist" in error_of("--path", tmp_path / "none")
    assert "text_pipeline.json" in error_of("--path", folder, "--data", tmp_path, "--cpu")
    assert "nosplit" in error_of("--path", folder, "--split", "nosplit", "--cpu")
    # Data of another vocabulary.
    text = "".join(f"{'pos' if i % 2 else 'neg'}\tword{i}\n" for i in range(40))
    other = prepare_text(tmp_path, text, "--format", "label-tab-text")
    capsys.readouterr()
    assert "must be those that" in error_of("--path", folder, "--data", other, "--cpu")


@pytest.mark.parametrize("kind", ["classifier", "tagger"])
def test_a_model_that_computes_no_numbers_gives_no_answer(kind, tmp_path, request, capsys):
    folder, _, _ = request.getfixturevalue(kind)
    shutil.copytree(folder, tmp_path / "copy")
    path = tmp_path / "copy" / "checkpoint_best.pt"
    state = torch.load(path, weights_only=False)
    name = next(name for name in state["model"] if name.endswith("projection.bias"))
    state["model"][name] = torch.full_like(state["model"][name], float("nan"))
    torch.save(state, path)
    lines, error = predict(capsys, tmp_path / "copy", "good film\n")
    assert lines is None
    assert "scores must be finite, but the model gave inf or NaN; its parameters are damaged" in error


def test_a_translation_model_is_refused(classifier, tmp_path, capsys):
    folder, _, _ = classifier
    state = torch.load(folder / "checkpoint_best.pt", weights_only=True)
    state["cfg"]["task"]["_name"] = "translation"
    torch.save(state, tmp_path / "checkpoint_best.pt")
    assert cli.main(["predict", "--path", str(tmp_path), "--cpu"]) == 2
    assert "trained with --task translation; for translation use muse-plugin translate" in capsys.readouterr().err


def test_from_python(classifier):
    folder, _, _ = classifier
    predictor = Predictor(load_sentence_model(folder), batch_size=8, cpu=True)
    first, blank = predictor.answer(["a good film", ""])
    assert first.label in ("neg", "pos")
    assert first.words == ["a", "good", "film"]
    assert blank == Answer()


def test_batches_have_a_limit_of_words(classifier, monkeypatch):
    folder, _, _ = classifier
    predictor = Predictor(load_sentence_model(folder), batch_size=8, cpu=True)
    lines = ["good", "bad story", "good film indeed", "film", "bad good bad good bad", "story"]
    expected = predictor.answer(lines)
    sizes = []
    collect = type(predictor.task).build_dataset_for_inference

    def build(self, items, *rest):
        sizes.append((len(items), max(len(sentence.tokens) for texts in items for sentence in texts)))
        return collect(self, items, *rest)

    monkeypatch.setattr(type(predictor.task), "build_dataset_for_inference", build)
    monkeypatch.setattr("muse_plugin.inference.predict.BATCH_WORDS", 4)
    answers = predictor.answer(lines)
    assert sizes == [(3, 1), (1, 2), (1, 3), (1, 5)]
    for answer, other in zip(answers, expected, strict=True):
        assert answer.scores == pytest.approx(other.scores, abs=1e-6)


def test_a_moved_data_folder_is_named_by_a_flag(classifier, tmp_path, capsys):
    folder, _, _ = classifier
    shutil.copytree(folder / "data", tmp_path / "moved")
    shutil.copy(folder / "checkpoint_best.pt", tmp_path)
    lines, _ = predict(capsys, tmp_path, "good film\n", "--data", str(tmp_path / "moved"))
    assert len(lines) == 1


def test_relative_data_are_found_from_any_folder(classifier, tmp_path, monkeypatch, capsys):
    folder = classifier[0]
    shutil.copytree(folder / "data", tmp_path / "data")
    state = torch.load(folder / "checkpoint_best.pt", weights_only=False)
    state["cfg"]["task"]["data"] = "data"
    torch.save(state, tmp_path / "checkpoint_best.pt")
    monkeypatch.chdir("/")
    lines, error = predict(capsys, tmp_path, "good film\n")
    assert len(lines) == 1
    assert f"using the data in {tmp_path / 'data'}, which the checkpoint calls data\n" in error
    shutil.rmtree(tmp_path / "data")
    _, error = predict(capsys, tmp_path, "good film\n", "--restart")
    assert error.endswith("are looked for in data, which does not exist; name their folder by --data.\n")
