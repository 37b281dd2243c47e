"""What the page shows are fairseq's own numbers, and translations are those of ``muse-plugin translate``."""

import json
import math

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from support.helpers import assert_close, parse_flags
from support.translation_models import ENGLISH, GERMAN
from support.view_models import GATED, MAX_SOURCE_POSITIONS, make_model_folder

from muse_plugin.analysis.convolutions import read_gates
from muse_plugin.checkpoints.model_loading import build_model, read_state
from muse_plugin.inference import translate
from muse_plugin.serve import inspect
from muse_plugin.serve.inspect import Inspector
from muse_plugin.text.text_pipeline import TextPipeline

SENTENCE = "Wo ist der Zug?"
MODELS = {
    "muse": ("muse_tiny", *GATED),
    "gates_in_the_encoder": ("muse_tiny", "--encoder-kernel-sizes=3,5", "--decoder-kernel-sizes=3"),
    "sublayers": ("plain_transformer_tiny",),
    "transformer_of_fairseq": ("transformer",),
}
KINDS = ("muse", "sublayers", "transformer_of_fairseq")
BEAM, LENPEN = 4, 0.7


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {name: make_model_folder(tmp_path_factory.mktemp(name), *words) for name, words in MODELS.items()}


@pytest.fixture(scope="module")
def inspectors(folders):
    settings = {"beam": BEAM, "lenpen": LENPEN, "cpu": True}
    return {name: Inspector(translate.Translator.load(folder, **settings), nbest=3) for name, folder in folders.items()}


def load_plain(folder):
    """The model as fairseq-generate has it, but never made fast."""
    checkpoint = folder / "checkpoint_avg.pt"
    model, task = build_model(checkpoint, read_state(checkpoint, {}), {}, folder)
    return model.eval(), task


def encode(folder, task, text):
    words = TextPipeline.load(folder).encode_source(text)
    tokens = task.source_dictionary.encode_line(words, add_if_not_exist=False).long()
    return {"src_tokens": tokens[None], "src_lengths": torch.tensor([len(tokens)])}


@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_numbers_are_those_of_fairseqs_search(name, folders, inspectors):
    model, task = load_plain(folders[name])
    inputs = encode(folders[name], task, SENTENCE)
    if hasattr(model.decoder, "needs_attention"):
        assert model.decoder.needs_attention
    generator = SequenceGenerator(
        [model], task.target_dictionary, BEAM, max_len_a=1.5, max_len_b=30, len_penalty=LENPEN
    )
    expected = generator.generate([model], {"net_input": inputs})[0][:3]
    answer = inspectors[name].inspect(SENTENCE)
    assert [token["text"] for token in answer["source"]] == [task.source_dictionary[t] for t in inputs["src_tokens"][0]]
    assert len(answer["hypotheses"]) == 3
    for shown, found in zip(answer["hypotheses"], expected, strict=True):
        assert [token["text"] for token in shown["tokens"]] == [task.target_dictionary[t] for t in found["tokens"]]
        assert_close(shown["score"], found["score"], atol=1e-4, why="folded products sum in another order")
        scores = [token["score"] for token in shown["tokens"]]
        assert_close(scores, found["positional_scores"].tolist(), atol=1e-4, why="the same")
        last = shown["attention"][-1]
        # fairseq keeps attention of the last layer, a column for each token written.
        assert_close(last["weights"], found["attention"].t().tolist(), atol=1e-4, why="the same")


@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_scores_are_those_of_the_model_that_reads_the_hypothesis(name, folders, inspectors):
    model, task = load_plain(folders[name])
    inputs = encode(folders[name], task, SENTENCE)
    for hypothesis in inspectors[name].inspect(SENTENCE)["hypotheses"]:
        tokens = torch.tensor([task.target_dictionary.index(token["text"]) for token in hypothesis["tokens"]])
        previous = torch.cat([torch.tensor([task.target_dictionary.eos()]), tokens[:-1]])[None]
        log_probs = model.get_normalized_probs(model(**inputs, prev_output_tokens=previous), log_probs=True)[0]
        expected = log_probs.gather(1, tokens[:, None])[:, 0]
        given = torch.tensor([token["score"] for token in hypothesis["tokens"]])
        last = slice(None, -1) if len(tokens) == task.max_positions()[1] else slice(None)  # where the end was forced
        assert_close(given[last], expected[last], atol=1e-4, why="folded products sum in another order")
        assert_close(hypothesis["score"], float(given.sum()) / len(tokens) ** LENPEN, atol=1e-5)


@pytest.mark.parametrize("name", KINDS)
def test_attention_has_a_row_for_each_token_and_each_sums_to_one(name, inspectors):
    answer = inspectors[name].inspect(SENTENCE)
    assert answer["attention_note"] == ""
    spread = 0.0
    for hypothesis in answer["hypotheses"]:
        assert [entry["layer"] for entry in hypothesis["attention"]] == [1, 2]
        for entry in hypothesis["attention"]:
            weights = torch.tensor(entry["weights"])
            assert weights.shape == (len(hypothesis["tokens"]), len(answer["source"]))
            assert_close(weights.sum(1), torch.ones(len(weights)), atol=1e-5, why="six decimals are sent")
            spread = max(spread, float(weights.max() - weights.min()))
    assert spread > 0.05  # not the uniform weights that would also sum to 1


def test_translations_are_those_of_translate(folders, inspectors, tmp_path):
    texts = [GERMAN[0], "Der <b> & '", "Zug"]
    (tmp_path / "in").write_text("".join(f"{text}\n" for text in texts))
    words = ["--path", folders["muse"], "--input", tmp_path / "in", "--output", tmp_path / "out"]
    flags = ["--beam", BEAM, "--lenpen", LENPEN, "--cpu", "--batch-size", 1]
    assert translate.run(parse_flags("translate", *words, *flags)) == 0
    shown = [inspectors["muse"].inspect(text)["hypotheses"] for text in texts]
    assert [hypotheses[0]["text"] for hypotheses in shown] == (tmp_path / "out").read_text().splitlines()
    for hypotheses in shown:
        scores = [hypothesis["score"] for hypothesis in hypotheses]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)


def test_gates_are_those_of_the_layers(folders, inspectors):
    description = inspectors["muse"].describe()
    model, _ = load_plain(folders["muse"])
    expected = {(row.side, row.layer, row.kernel_size_tokens): row.weight for row in read_gates("", model)}
    shown = {
        (side, layer["layer"], weight["kernel_size"]): weight["weight"]
        for side, layers in description["gates"].items()
        for layer in layers
        for weight in layer["weights"]
    }
    assert len(shown) == 8
    assert list(shown) == list(expected)
    assert_close(list(shown.values()), list(expected.values()), atol=1e-6)
    assert len(set(shown.values())) == 8
    assert description["gate_notes"] == {}


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("gates_in_the_encoder", ["decoder"]),
        ("sublayers", ["encoder", "decoder"]),
        ("transformer_of_fairseq", ["encoder", "decoder"]),
    ],
)
def test_a_note_stands_where_there_are_no_gates(name, without, inspectors):
    description = inspectors[name].describe()
    assert list(description["gate_notes"]) == without
    for side in ("encoder", "decoder"):
        assert bool(description["gates"][side]) != (side in without)
    assert description["gate_notes"]["decoder"] == (
        "No gates: no layer of the decoder weighs convolutions of several kernel sizes against each other."
    )


def test_a_note_stands_where_there_is_no_cross_attention(folders):
    inspector = Inspector(translate.Translator.load(folders["muse"], cpu=True))
    inspector._sites = []
    answer = inspector.inspect(SENTENCE)
    assert answer["attention_note"] == "This model has no cross-attention: no decoder layer attends to the encoder."
    assert [hypothesis["attention"] for hypothesis in answer["hypotheses"]] == [[]] * 5


def test_description_has_what_the_page_says_at_the_top(inspectors):
    description = inspectors["muse"].describe()
    del description["gates"], description["gate_notes"]
    assert description == {
        "source_lang": "de",
        "target_lang": "en",
        "beam": BEAM,
        "nbest": 3,
        "lenpen": LENPEN,
        "max_tokens": MAX_SOURCE_POSITIONS - 1,
    }


def test_words_that_the_dictionary_lacks_are_marked(inspectors):
    source = inspectors["muse"].inspect("Wo ist \u4e2d?")["source"]
    assert [token["text"] for token in source if not token["known"]] == ["<unk>"]
    assert sum(token["known"] for token in source) == len(source) - 1 >= 4


@pytest.mark.parametrize("text", ["", " \t\n ", "\u200b\u00ad"])
def test_inspect_raises_error_when_text_is_blank(text, inspectors):
    with pytest.raises(
        ValueError, match=r"^a sentence must have at least one word, but the text is blank; type one\.$"
    ):
        inspectors["muse"].inspect(text)


def test_inspect_raises_error_when_sentence_has_too_many_tokens(inspectors):
    fitting = " ".join(["Zug"] * 29)
    count = len(inspectors["muse"].translator.pipeline.encode_source(fitting).split())
    assert count > 29
    with pytest.raises(
        ValueError, match=rf"^a sentence must have at most 29 tokens here, but got {count}; shorten it, or use"
    ):
        inspectors["muse"].inspect(fitting)


def test_the_longest_sentence_is_shown_whole(inspectors):
    answer = inspectors["muse"].inspect(" ".join("?" * 29))
    assert len(answer["source"]) == MAX_SOURCE_POSITIONS
    assert len(answer["hypotheses"][0]["attention"][0]["weights"][0]) == MAX_SOURCE_POSITIONS


def test_inspect_raises_error_when_text_has_too_many_characters_before_it_is_tokenised(inspectors, monkeypatch):
    monkeypatch.setattr(TextPipeline, "encode_source", lambda self, line: 1 / 0)
    with pytest.raises(
        ValueError, match=r"^a sentence must have at most 580 characters here, but got 581; shorten it, or use"
    ):
        inspectors["muse"].inspect("a" * 581)


def test_numbers_that_json_lacks_become_none(inspectors):
    numbers = [0.5, math.nan, math.inf, -math.inf, 0.0]
    assert [inspect._make_number(number) for number in numbers] == [0.5, None, None, None, 0.0]
    answer = inspectors["muse"].inspect(ENGLISH[0] + "\ud800")
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
