"""What the heads of a pooling look at: words by class, distributions, similarity of heads, shaded documents."""

import csv
import io
import json
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from support import muse_models, sentence_models
from support.analysis_results import read_table, ticks_of
from support.helpers import assert_close
from support.reference import make_dictionary

from muse_plugin.analysis import attended_words, head_similarity, shaded_document
from muse_plugin.analysis.analyzed_model import choose_sentences, load_model
from muse_plugin.analysis.attended_words import (
    AttendedRow,
    ClassRow,
    Uses,
    WordSettings,
    WordWeightRow,
    average_by_class,
    sum_by_word,
)
from muse_plugin.analysis.head_similarity import HeadSimilarity
from muse_plugin.analysis.pooled_attention import find_pooling, list_classes, read_pooling
from muse_plugin.analysis.report import format_csv
from muse_plugin.analysis.shaded_document import Place, ShadedRow
from muse_plugin.modules.attention_heads import Heads
from muse_plugin.modules.disagreement import penalize
from muse_plugin_command import cli

ATOL = 1e-6  # float32 weights, sums in float64
MODELS = ["lama", "structured", "pooled_pairs"]


def run(*words):
    return cli.main(["analyze", "model", *map(str, words), "--cpu"])


# ---- words in documents ---------------------------------------------------------------------------------------------


def test_weights_are_added_up_by_word_and_averaged_over_heads():
    tokens = torch.tensor([[5, 6, 5, 1], [7, 6, 1, 1], [6, 6, 6, 8]])
    lengths = torch.tensor([3, 2, 4])
    weights = torch.tensor(
        [
            [[0.5, 0.3, 0.2, 0.9], [0.1, 0.7, 0.2, 0.9]],  # what is at padding must not count
            [[0.25, 0.75, 0.9, 0.9], [0.75, 0.25, 0.9, 0.9]],
            [[0.1, 0.2, 0.3, 0.4], [0.3, 0.0, 0.1, 0.6]],
        ]
    )
    rows, words, counts, sums, ratios = sum_by_word(tokens, lengths, weights)
    assert list(zip(rows.tolist(), words.tolist(), counts.tolist(), strict=True)) == [
        (0, 5, 2), (0, 6, 1), (1, 6, 1), (1, 7, 1), (2, 6, 3), (2, 8, 1)
    ]  # fmt: skip
    assert_close(sums, torch.tensor([0.5, 0.5, 0.5, 0.5, 0.5, 0.5]).double(), atol=ATOL)
    # 0.5 of the weight for 2 of 3 words, for 1 of 3, ...
    assert_close(ratios, torch.tensor([0.75, 1.5, 1.0, 1.0, 2 / 3, 2.0]).double(), atol=ATOL)


def make_uses(*entries):
    """(word, class, document, count, weight, ratio) each."""
    words, labels, documents, counts, weights, ratios = zip(*entries, strict=True)
    whole = [torch.tensor(column) for column in (words, labels, documents, [1] * len(words), counts)]
    return Uses(*whole, *(torch.tensor(column, dtype=torch.float64) for column in (weights, ratios)))


DICTIONARY = make_dictionary(10)  # 4 signs, then words
A, B, C, D = 4, 5, 6, 7
UNKNOWN = DICTIONARY.unk()
USES = make_uses(
    (A, 0, 0, 2, 0.4, 0.5), (A, 0, 1, 1, 0.2, 0.9),  # mean 0.3 and 0.7
    (B, 0, 0, 1, 0.1, 2.0), (B, 0, 1, 3, 0.3, 1.0), (B, 0, 2, 1, 0.2, 3.0),  # 0.2 and 2.0
    (C, 0, 2, 1, 0.9, 9.0),  # in one document alone
    (UNKNOWN, 0, 0, 1, 0.8, 8.0), (UNKNOWN, 0, 1, 1, 0.8, 8.0),
    (A, 1, 3, 1, 0.5, 1.5), (A, 1, 4, 1, 0.3, 0.5),  # 0.4 and 1.0
    (B, 1, 3, 1, 0.05, 1.5), (B, 1, 4, 1, 0.05, 2.1),  # 0.05 and 1.8
    (D, 1, 4, 1, 0.6, 6.0),
)  # fmt: skip


def rank(measure="weight", count=10, min_documents=2):
    means = average_by_class(USES, 3, len(DICTIONARY))
    settings = WordSettings(None, count, min_documents, measure)
    return attended_words.rank_words("M", ["x", "y", "z"], means, DICTIONARY, settings)


def test_words_are_ranked_by_their_mean_over_the_documents_of_a_class():
    rows = rank()
    assert [(row.label, row.rank, row.word, row.documents, row.occurrences) for row in rows] == [
        ("x", 1, DICTIONARY[A], 2, 3), ("x", 2, DICTIONARY[B], 3, 5),
        ("y", 1, DICTIONARY[A], 2, 2), ("y", 2, DICTIONARY[B], 2, 2),
    ]  # fmt: skip
    assert [row.weight for row in rows] == pytest.approx([0.3, 0.2, 0.4, 0.05])
    assert [row.ratio for row in rows] == pytest.approx([0.7, 2.0, 1.0, 1.8])
    assert [(row.label, row.word) for row in rank("ratio", count=1)] == [("x", DICTIONARY[B]), ("y", DICTIONARY[B])]
    first = [row.word for row in rank(min_documents=1)]
    assert first == [DICTIONARY[word] for word in (C, A, B, D, A, B)]
    assert rank(min_documents=4) == []


def test_chosen_words_are_those_whose_means_are_furthest_apart():
    means = average_by_class(USES, 3, len(DICTIONARY))

    def choose(min_documents, measure="weight", count=5):
        settings = WordSettings(min_documents=min_documents, measure=measure)
        return attended_words.choose_words(means, DICTIONARY, settings, count)

    assert choose(2) == [B, A]  # apart by 0.15 and 0.1
    assert choose(2, "ratio") == [A, B]  # 0.3 and 0.2
    assert choose(1) == [B, A, C, D]  # in one class: last, the heavier first
    assert choose(3) == [B]
    assert choose(2, count=1) == [B]


def test_distributions_have_a_row_for_each_document_with_the_word():
    rows = attended_words.read_word_weights("M", ["x", "y", "z"], USES, DICTIONARY, [B, D])
    assert [row[:6] for row in rows] == [
        ("M", DICTIONARY[B], "x", 1, 1, 1), ("M", DICTIONARY[B], "x", 2, 1, 3), ("M", DICTIONARY[B], "x", 3, 1, 1),
        ("M", DICTIONARY[B], "y", 4, 1, 1), ("M", DICTIONARY[B], "y", 5, 1, 1), ("M", DICTIONARY[D], "y", 5, 1, 1),
    ]  # fmt: skip
    assert [row.weight for row in rows] == [0.1, 0.3, 0.2, 0.05, 0.05, 0.6]
    assert [row.ratio for row in rows] == [2.0, 1.0, 3.0, 1.5, 2.1, 6.0]


# ---- against the attention itself -----------------------------------------------------------------------------------


def attend_alone(analyzed, index):
    """(words, weights, vectors) of each text of a document, from the parts of the pooling: without padding or batch."""
    (part,) = analyzed.model.pooling.parts
    for text in analyzed.dataset[index]["texts"]:
        tokens, lengths = text.tokens[None], torch.tensor([len(text.tokens)])
        with torch.no_grad():
            words, sizes, _ = analyzed.model.embed(tokens, lengths)
            states = analyzed.model.encoder(words, sizes, None)
            weights = torch.softmax(part.score(states, None, words)[0], dim=0).t()  # (m, T)
        yield [analyzed.task.source_dictionary[token] for token in text.tokens], weights, weights @ states[0]


def tabulate(analyzed, indices):
    """(label, word) -> what it is given in each document: (weight, ratio, count)."""
    table, sizes = {}, dict.fromkeys(analyzed.task.labels, 0)
    for index in indices:
        label = analyzed.task.labels[int(analyzed.dataset.targets[index])]
        for words, weights, _ in attend_alone(analyzed, index):
            sizes[label] += 1
            for word in set(words):
                places = [place for place, other in enumerate(words) if other == word]
                weight = sum(float(head[place]) for head in weights for place in places) / len(weights)
                entry = weight, weight * len(words) / len(places), len(places)
                table.setdefault((label, word), []).append(entry)
    return table, sizes


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("max_tokens", [1, 60])
def test_words_of_a_model_are_those_of_its_attention_matrix(shop, name, max_tokens):
    analyzed = load_model(getattr(shop, name), "valid", cpu=True)
    chosen = choose_sentences(analyzed, 9)
    pooled = read_pooling(analyzed, chosen, max_tokens)
    table, sizes = tabulate(analyzed, chosen)
    classes, dictionary = list_classes(analyzed), analyzed.task.source_dictionary
    assert pooled.class_sizes == sizes
    means = average_by_class(pooled.uses, len(classes), len(dictionary))
    rows = attended_words.rank_words("M", classes, means, dictionary, WordSettings(None, 99, 1))
    assert {(row.label, row.word) for row in rows} == set(table)
    for row in rows:
        weights, ratios, counts = zip(*table[row.label, row.word], strict=True)
        assert row.weight == pytest.approx(np.mean(weights), abs=ATOL)
        assert row.ratio == pytest.approx(np.mean(ratios), abs=10 * ATOL)  # up to the length of a document larger
        assert (row.documents, row.occurrences) == (len(weights), sum(counts))
    for label in classes:
        weights = [row.weight for row in rows if row.label == label]
        assert weights == sorted(weights, reverse=True)
    words = [dictionary.index(row.word) for row in rows[:2]]
    alone = {index: list(attend_alone(analyzed, index)) for index in chosen}
    for row in attended_words.read_word_weights("M", classes, pooled.uses, dictionary, words):
        texts = alone[row.document - 1]
        assert row.label == analyzed.task.labels[int(analyzed.dataset.targets[row.document - 1])]
        read, weights, _ = texts[row.text - 1]
        assert row.occurrences == read.count(row.word)
        given = sum(weights[:, place].mean() for place, other in enumerate(read) if other == row.word)
        assert row.weight == pytest.approx(float(given), abs=ATOL)
    assert {len(alone[chosen[0]]), max(pooled.uses.texts.tolist())} == {1 + (name == "pooled_pairs")}


def test_documents_are_as_long_as_the_task_reads_them(shop):
    analyzed = load_model(shop.lama, "valid", cpu=True)  # --max-words 6
    places = range(len(analyzed.dataset))
    lines = [line.split() for line in shop.make_lines(21)]
    assert max(map(len, lines)) == 9
    uses = read_pooling(analyzed, places).uses
    for place in places:
        own = uses.documents == place
        assert int(uses.counts[own].sum()) == min(6, len(lines[place]))
        assert float(uses.weights[own].sum()) == pytest.approx(1, abs=1e-5)  # float32 weights of six words
        words = {analyzed.task.source_dictionary[word] for word in uses.words[own].tolist()}
        assert words == set(lines[place][:6])


@pytest.mark.parametrize("name", MODELS)
def test_similarity_of_heads_is_that_of_penalties_and_of_slow_loops(shop, name):
    analyzed = load_model(getattr(shop, name), "valid", cpu=True)
    found = [pair for index in range(7) for pair in attend_alone(analyzed, index)]
    rows = head_similarity.read_similarity("M", read_pooling(analyzed, range(7)).similarity)
    heads = analyzed.model.pooling.parts[0].num_heads
    assert [row[1:3] for row in rows] == [(i, j) for i in range(heads) for j in range(heads)]
    for row in rows:
        for column, which in (("weight_cosine", 1), ("vector_cosine", 2)):
            first = [texts[which][row.head] for texts in found]
            other = [texts[which][row.other_head] for texts in found]
            cosines = [float(a @ b / (a.norm() * b.norm())) for a, b in zip(first, other, strict=True)]
            assert getattr(row, column) == pytest.approx(np.mean(cosines), abs=ATOL), column
    pairs = [Heads(weights[None], vectors[None]) for _, weights, vectors in found]
    penal = np.mean([float(penalize(pair, "penal")) for pair in pairs])
    emb = np.mean([float(penalize(pair, "emb")) for pair in pairs])
    assert sum(row.overlap_penalty for row in rows) == pytest.approx(penal, abs=ATOL)
    assert np.mean([row.vector_cosine for row in rows]) == pytest.approx(emb, abs=ATOL)
    text = head_similarity.make_results(rows)[0].text
    assert f"is {emb:.4g}; penal" in text
    assert f"is {penal:.4g}." in text
    apart = np.mean([row.weight_cosine for row in rows if row.head != row.other_head])
    assert f"it is {apart:.3f} on average" in text


def test_heads_that_do_the_same_have_cosine_one_and_those_that_share_no_word_zero():
    similarity = HeadSimilarity()
    weights = torch.tensor([[[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5]]])
    similarity.add(Heads(weights, torch.tensor([[[2.0, 0.0], [4.0, 0.0], [-1.0, 0.0]]])))
    assert_close(similarity.means()[0], torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 1]]).double(), atol=1e-9)
    assert_close(similarity.means()[1], torch.tensor([[1, 1, -1], [1, 1, -1], [-1, -1, 1]]).double(), atol=1e-9)
    assert_close(similarity.means()[2], torch.tensor([[0, 1, 0], [1, 0, 0], [0, 0, 0.25]]).double(), atol=1e-9)


def test_a_single_head_is_like_none():
    similarity = HeadSimilarity()
    similarity.add(Heads(torch.ones(1, 1, 1), torch.ones(1, 1, 2)))
    assert head_similarity.read_similarity("M", similarity) == []


def test_only_poolings_with_heads_are_found():
    for name in ("lama", "lama_encoder", "sentence_structured_attention", "windows_with_low_rank_attention"):
        assert find_pooling(sentence_models.built(name)) is not None, name
    for name in ("sentence_bigru", "multi_scale_transformer", "directional_attention_network"):
        assert find_pooling(sentence_models.built(name)) is None, name
    assert find_pooling(muse_models.built("muse")) is None


# ---- figures --------------------------------------------------------------------------------------------------------


def test_words_are_drawn_in_a_panel_for_each_class(tmp_path, drawn):
    sizes = [ClassRow("M", "x", 3), ClassRow("M", "y", 1), ClassRow("M", "$z", 0)]
    rows = [AttendedRow("M", "x", 1, "good$", 0.5, 1.5, 3, 4), AttendedRow("M", "x", 2, "plot", 0.2, 0.8, 2, 2)]
    rows.append(AttendedRow("M", "y", 1, "bad", 0.25, 3.0, 1, 1))
    (result,) = attended_words.make_results(rows, [], sizes, WordSettings(min_documents=1))
    assert result.name == "attended_words"
    assert "at least 1." in result.text
    result.draw(tmp_path / "a.png")
    panels = drawn[0].axes
    assert [axes.get_title() for axes in panels] == ["x (3 documents)", "y (1 document)", r"\$z (0 documents)"]
    bars = [[(bar.get_x(), bar.get_width(), bar.get_y() + bar.get_height() / 2) for bar in a.patches] for a in panels]
    assert bars == [[(0, 0.5, 1), (0, 0.2, 2)], [(0, 0.25, 1)], []]
    assert [ticks_of(axes.yaxis) for axes in panels] == [[r"good\$", "plot"], ["bad"], []]
    assert panels[0].yaxis_inverted()
    assert [text.get_text() for text in panels[2].texts] == ["no word is frequent enough"]
    assert drawn[0].get_supxlabel() == "mean weight of the word in a document (0 to 1)"
    assert panels[0].get_ylabel() == "word"


def test_ratios_are_drawn_from_one(tmp_path, drawn):
    sizes = [ClassRow("M", label, 2) for label in "vwxyz"]
    rows = [AttendedRow("M", "v", 1, "good", 0.5, 1.5, 2, 2), AttendedRow("M", "v", 2, "plot", 0.2, 0.75, 2, 2)]
    (result,) = attended_words.make_results(rows, [], sizes, WordSettings(measure="ratio"))
    result.draw(tmp_path / "a.svg")
    assert [(bar.get_x(), bar.get_width()) for bar in drawn[0].axes[0].patches] == [(1, 0.5), (1, -0.25)]
    assert drawn[0].get_supxlabel() == "mean weight of the word relative to equal weights (1: equal)"
    assert [axes.axison for axes in drawn[0].axes] == [True] * 5 + [False] * 3


def test_distributions_are_drawn_as_points_and_boxes(tmp_path, drawn):
    values = [0.1, 0.5, 0.2, 0.4, 0.3]
    rows = [WordWeightRow("M", "good$", "x", n, 1, 1, value, 2 * value) for n, value in enumerate(values, start=1)]
    rows += [WordWeightRow("M", "good$", "z", 9, 1, 1, 0.7, 1.4), WordWeightRow("M", "plot", "y", 9, 1, 1, 0.6, 1.2)]
    sizes = [ClassRow("M", label, 9) for label in "xyz"]
    (result,) = attended_words.make_results([], rows, sizes, WordSettings())
    assert result.name == "word_weights"
    result.draw(tmp_path / "a.png")
    first, second = drawn[0].axes
    assert (first.get_title(), second.get_title()) == (r"good\$", "plot")
    points = [np.asarray(part.get_offsets()) for part in first.collections]
    assert [part[:, 0].tolist() for part in points] == [values, [], [0.7]]
    assert all(abs(y - place) < 0.5 for place, part in enumerate(points) for y in part[:, 1])
    (box,) = first.patches  # only x has five documents
    assert [box.get_x(), box.get_x() + box.get_width()] == pytest.approx([0.2, 0.4])
    assert box.get_y() + box.get_height() / 2 == 0
    low, high, median = (line.get_xdata() for line in first.lines)
    assert list(low) == pytest.approx([0.12, 0.2])
    assert list(high) == pytest.approx([0.4, 0.48])
    assert list(median) == pytest.approx([0.3, 0.3])
    assert ticks_of(first.yaxis) == ["x", "y", "z"]
    assert first.yaxis_inverted()
    assert first.get_xlim()[0] == 0
    assert first.get_ylabel() == "class"
    assert drawn[0].get_supxlabel() == "weight of the word in a document (0 to 1)"
    attended_words.make_results([], rows, sizes, WordSettings(measure="ratio"))[0].draw(tmp_path / "b.svg")
    assert np.asarray(drawn[1].axes[0].collections[2].get_offsets())[:, 0].tolist() == [1.4]
    assert drawn[1].get_supxlabel() == "weight of the word relative to equal weights (1: equal)"


def test_similarity_is_drawn_as_tables_of_heads(tmp_path, drawn):
    table = {(0, 0): 1.0, (0, 1): 0.25, (1, 0): 0.25, (1, 1): 1.0}
    rows = [head_similarity.SimilarityRow("M", *pair, value, 1 - (1 - value) / 50, 0) for pair, value in table.items()]
    (result,) = head_similarity.make_results(rows)
    assert result.name == "head_similarity"
    result.draw(tmp_path / "a.png")
    weights, vectors, *bars = drawn[0].axes
    assert_close(np.asarray(weights.images[0].get_array()), [[1, 0.25], [0.25, 1]], atol=1e-9)
    assert_close(np.asarray(vectors.images[0].get_array()), [[1, 0.985], [0.985, 1]], atol=1e-9)
    assert [text.get_text() for text in weights.texts] == ["1", ".25", ".25", "1"]
    assert [text.get_text() for text in vectors.texts] == ["1", ".985", ".985", "1"]
    assert weights.images[0].get_clim() == (0.25, 1)
    assert (weights.get_title(), vectors.get_title()) == ("weights over words", "vectors of the heads")
    assert {axes.get_xlabel() for axes in (weights, vectors)} == {"head"}
    assert {bar.get_ylabel() for bar in bars} == {"mean cosine (-1 to 1)"}


def test_cosines_are_written_in_few_characters():
    written = [head_similarity.write(value, 2) for value in (0.974, 0.999, -0.121, -1.0, 0.0, -0.001, 1.0)]
    assert written == [".97", "1", "-.12", "-1", ".00", ".00", "1"]


def test_many_heads_and_equal_heads_are_drawn_too(tmp_path, drawn):
    for heads in (2, 17):
        rows = [head_similarity.SimilarityRow("M", i, j, 1.0, 1.0, 0.0) for i in range(heads) for j in range(heads)]
        head_similarity.draw(rows, tmp_path / "a.png")
    assert [len(figure.axes[0].texts) for figure in drawn] == [4, 0]
    assert drawn[0].axes[0].images[0].get_clim() == (0.999, 1)


def shade_of(row):
    return round(float(row[0]), 6)


def test_words_of_a_document_are_shaded_by_their_weight(tmp_path, drawn):
    weights = torch.tensor([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3]])
    rows = shaded_document.read_document("M", weights, ["a", "$good", "film"], 7, "pos", "neg")
    assert rows[4] == ShadedRow("M", 7, "pos", "neg", 1, 1, "$good", pytest.approx(0.2), pytest.approx(0.4))
    assert [row.mean_weight for row in rows] == pytest.approx([0.3, 0.4, 0.3] * 2)
    (result,) = shaded_document.make_results(rows)
    assert result.name == "shaded_document"
    assert result.text.startswith("Document 7 of the split, of class pos, taken for neg. Words are shaded")
    result.draw(tmp_path / "a.png")
    *blocks, bar = drawn[0].axes
    assert [axes.get_title(loc="left") for axes in blocks] == ["mean of the heads", "head 0", "head 1"]
    shades = [[shade_of(color) for color in axes.collections[0].get_facecolor()] for axes in blocks]
    found = [shade for row in shades for shade in row]
    by_weight = sorted(zip([0.3, 0.4, 0.3, 0.1, 0.6, 0.3, 0.5, 0.2, 0.3], found, strict=True))
    # More weight, less light; the same weight is the same shade in every block.
    assert [shade for _, shade in by_weight] == sorted(found, reverse=True)
    assert len(set(found)) == 6
    assert by_weight[0][1] == 1.0  # the smallest is white
    assert bar.get_ylabel() == "weight (0 to 1)"
    assert bar.get_ylim() == pytest.approx((0.1, 0.6))
    for axes, row in zip(blocks, shades, strict=True):
        inks = {text.get_color(): text.get_text() for text in axes.texts}
        assert inks["black"].split() == [w for w, s in zip(("a", "$good", "film"), row, strict=True) if s >= 0.5]
        assert inks["white"].split() == [w for w, s in zip(("a", "$good", "film"), row, strict=True) if s < 0.5]
        assert not any(text.get_parse_math() for text in axes.texts)
        corners = [path.vertices for path in axes.collections[0].get_paths()]
        lefts = [float(part[:, 0].min()) for part in corners]
        assert lefts == pytest.approx([column * shaded_document._LETTER for column in (0, 2, 8)])
    assert inks["black"].index("$good") == 2  # below nothing: the white words leave their place empty


def test_a_single_head_is_shown_once_and_equal_weights_have_a_scale(tmp_path, drawn):
    rows = shaded_document.read_document("M", torch.full((1, 4), 0.25), list("abcd"), 1)
    (result,) = shaded_document.make_results(rows)
    assert result.text.startswith("Document 1 of the split. Words are shaded")
    result.draw(tmp_path / "a.svg")
    block, bar = drawn[0].axes
    assert bar.get_ylim() == pytest.approx((0, 0.25))
    assert len(set(map(tuple, block.collections[0].get_facecolor()))) == 1
    assert "" in format_csv(result).splitlines()[1].split(",")  # no class


def test_long_documents_are_drawn_in_part_and_are_whole_in_the_table(tmp_path, drawn, monkeypatch):
    monkeypatch.setattr(shaded_document, "_MOST_WORDS", 3)
    weights = torch.softmax(torch.arange(10.0).view(2, 5), dim=1)
    rows = shaded_document.read_document("M", weights, list("abcde"), 1, "x", "x")
    (result,) = shaded_document.make_results(rows)
    assert "the picture has the first 3 of its 5 words." in result.text
    assert len(result.rows) == 10
    result.draw(tmp_path / "a.png")
    assert [len(axes.collections[0].get_facecolor()) for axes in drawn[0].axes[:3]] == [3, 3, 3]


def test_words_are_put_in_lines():
    assert shaded_document.arrange(["aa", "bbb", "c", "dddddddd", "e"], 6) == [
        Place(0, 0, "aa"), Place(0, 3, "bbb"), Place(1, 0, "c"), Place(2, 0, "ddddd…"), Place(3, 0, "e")
    ]  # fmt: skip
    assert shaded_document.fill_line([Place(0, 3, "bbb"), Place(0, 8, "c")]) == "   bbb  c"


def test_wide_characters_take_two_columns(tmp_path, drawn):
    assert shaded_document.arrange(["中文", "a", "日本語", "日本語テ"], 6) == [
        Place(0, 0, "中文"), Place(0, 5, "a"), Place(1, 0, "日本語"), Place(2, 0, "日本…")
    ]  # fmt: skip
    rows = shaded_document.read_document("M", torch.full((1, 3), 0.3), ["中文", "a", "b"], 0)
    shaded_document.make_results(rows)[0].draw(tmp_path / "a.png")
    patches = [path.get_extents() for path in drawn[0].axes[0].collections[0].get_paths()]
    assert all(left.x1 <= right.x0 for left, right in pairwise(patches))
    # Word by word: glyphs of another font would move what follows them in one text.
    texts = [text.get_text().split() for text in drawn[0].axes[0].texts]
    assert sorted(words for words in texts if words) == [["a"], ["b"], ["中文"]]


def test_colours_of_text_and_ground_are_far_apart():
    """Every shade leaves its word readable: a contrast of at least 4.5 to 1, as for text on the web."""
    pytest.importorskip("matplotlib", reason="needs the extra 'figures'")
    scale = shaded_document._make_scale(0, 1)
    for shade in scale.to_rgba(np.linspace(0, 1, 256)):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shade[:3]]
        luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        ink = {"black": 0.0, "white": 1.0}[shaded_document._ink(tuple(shade))]
        lighter, darker = max(luminance, ink), min(luminance, ink)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5


# ---- the command ----------------------------------------------------------------------------------------------------


def test_figures_tables_and_report_of_a_pooling_are_written(shop, tmp_path, undrawn):
    out = tmp_path / "out"
    assert (
        run("--path", shop.lama, "--output", out, "--min-documents", 2, "--sentence", 3, "--name", "LAMA <+ctx>") == 0
    )
    names = ["attended_words", "head_similarity", "shaded_document", "word_weights"]
    for ending in ("png", "svg", "csv"):
        assert sorted(path.stem for path in out.glob(f"*.{ending}")) == names
    analyzed = load_model(shop.lama, "valid", cpu=True)
    table, _ = tabulate(analyzed, range(21))
    ranked = read_table(out / "attended_words.csv")
    for label in ("good", "bad"):
        frequent = {word: np.mean([e[0] for e in found]) for (own, word), found in table.items()
                    if own == label and len(found) >= 2}  # fmt: skip
        own = [row for row in ranked if row["label"] == label]
        expected = sorted(frequent, key=frequent.get, reverse=True)[:10]
        assert [row["word"] for row in own] == expected
        assert [row["rank"] for row in own] == [str(number + 1) for number in range(len(expected))]
        assert [float(row["weight"]) for row in own] == pytest.approx([frequent[word] for word in expected], abs=ATOL)
    assert {row["model"] for row in ranked} == {"LAMA <+ctx>"}
    differences = {}
    for word in {word for _, word in table}:
        means = [np.mean([entry[0] for entry in table[label, word]]) for label in ("good", "bad")
                 if len(table.get((label, word), ())) >= 2]  # fmt: skip
        if len(means) == 2:
            differences[word] = abs(means[0] - means[1])
    weights = read_table(out / "word_weights.csv")
    chosen = list(dict.fromkeys(row["word"] for row in weights))
    assert chosen == sorted(differences, key=differences.get, reverse=True)[:6]
    for word in chosen:
        own = [float(row["weight"]) for row in weights if row["word"] == word]
        expected = [entry[0] for (_, other), found in table.items() if other == word for entry in found]
        assert sorted(own) == pytest.approx(sorted(expected), abs=ATOL)
    ((words, attention, _),) = attend_alone(analyzed, 2)
    shaded = read_table(out / "shaded_document.csv")
    assert [row["word"] for row in shaded] == words * 3
    assert_close([float(row["weight"]) for row in shaded], attention.flatten(), atol=1e-6)
    assert_close([float(row["mean_weight"]) for row in shaded[: len(words)]], attention.mean(0), atol=1e-6)
    assert {(row["document"], row["label"]) for row in shaded} == {("3", "bad")}
    (item,) = [analyzed.dataset.collater([analyzed.dataset[2]])["net_input"]]
    best = int(analyzed.model(**item).logits.argmax())
    assert {row["predicted"] for row in shaded} == {analyzed.task.labels[best]}
    assert len(read_table(out / "head_similarity.csv")) == 9
    numbers = json.loads((out / "numbers.json").read_text())
    assert numbers["data"] == {"split": "valid", "sentences": 21, "shown_sentence": 3}
    assert sorted(numbers["not_applicable"]) == ["allocation", "attention", "directions", "gates", "kernels"]
    assert numbers["results"]["attended_words"]["columns"] == list(AttendedRow._fields)
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 4
    assert "a sum of 1; long documents have small ones" in page


def test_words_and_their_measure_are_chosen_by_flags(shop, tmp_path, undrawn):
    out = tmp_path / "out"
    flags = ["--words", "film", "a", "film", "--top-words", 2, "--min-documents", 1, "--word-measure", "ratio"]
    assert run("--path", shop.structured, "--output", out, "--only", "words", *flags) == 0
    assert sorted(path.stem for path in out.glob("*.csv")) == ["attended_words", "word_weights"]
    rows = read_table(out / "attended_words.csv")
    assert [(row["label"], row["rank"]) for row in rows] == [("bad", "1"), ("bad", "2"), ("good", "1"), ("good", "2")]
    table, _ = tabulate(load_model(shop.structured, "valid", cpu=True), range(21))
    best = max(np.mean([e[1] for e in found]) for (label, _), found in table.items() if label == "bad")
    assert float(rows[0]["ratio"]) == pytest.approx(best, abs=1e-5)
    assert list(dict.fromkeys(row["word"] for row in read_table(out / "word_weights.csv"))) == ["film", "a"]
    assert json.loads((out / "numbers.json").read_text())["data"]["shown_sentence"] is None


def test_two_models_stand_side_by_side(shop, tmp_path, undrawn):
    out = tmp_path / "out"
    words = ["--path", shop.lama, "--against", shop.structured, "--against-name", "SAN", "--only", "words,pooling"]
    assert run(*words, "--output", out, "--min-documents", 2) == 0
    names = ["attended_words", "head_similarity", "shaded_document", "word_weights"]
    assert sorted(path.stem for path in out.glob("*.csv")) == sorted([*names, *(f"{name}_against" for name in names)])
    for name in names:
        assert {row["model"] for row in read_table(out / f"{name}_against.csv")} == {"SAN"}
    assert "Attention to chosen words, by class of SAN" in (out / "report.html").read_text()


def test_encoder_and_pooling_of_one_model_show_the_same_sentence(shop, tmp_path, undrawn):
    out = tmp_path / "out"
    assert run("--path", shop.pooled_pairs, "--output", out, "--only", "attention,pooling") == 0
    shaded = read_table(out / "shaded_document.csv")
    shown = json.loads((out / "numbers.json").read_text())["data"]["shown_sentence"]
    assert {row["document"] for row in shaded} == {str(shown)}
    keys = dict.fromkeys((row["key"], row["key_word"]) for row in read_table(out / "attention_map_encoder.csv"))
    assert [word for _, word in keys] == [row["word"] for row in shaded if row["head"] == "0"]


def test_a_model_of_numbers_has_documents_but_no_classes(shop, tmp_path, capsys, undrawn):
    out = tmp_path / "out"
    assert run("--path", shop.pooled_numbers, "--output", out) == 0
    assert sorted(path.stem for path in out.glob("*.csv")) == ["head_similarity", "shaded_document"]
    assert "words does not apply: the model predicts no classes to tell words apart by" in capsys.readouterr().out
    assert {(row["label"], row["predicted"]) for row in read_table(out / "shaded_document.csv")} == {("", "")}


def test_tables_come_back_from_their_csv():
    rows = rank()
    (result,) = attended_words.make_results(rows, [], [ClassRow("M", "x", 3)], WordSettings())
    table = list(csv.reader(io.StringIO(format_csv(result))))
    assert table[0] == ["model", "label", "rank", "word", "weight", "ratio", "documents", "occurrences"]
    assert [tuple(row) for row in table[1:]] == [tuple(map(str, row)) for row in rows]
    assert all(math.isclose(float(line[4]), row.weight) for line, row in zip(table[1:], rows, strict=True))


NO_HEADS = "the model has no pooling with heads, which --pooling low_rank_attention or structured_attention gives"


@pytest.mark.parametrize(
    ("path", "flags", "sentence"),
    [
        ("recurrent", ["--only", "words"], f"--only words asks for what is not there: {NO_HEADS}; leave it out"),
        ("muse", ["--only", "pooling"], f"--only pooling asks for what is not there: {NO_HEADS}; leave it out"),
        ("multi_scale", ["--words", "a"], f"--words asks for what is not there: {NO_HEADS}; drop the flag"),
        ("pooled_numbers", ["--words", "a"], "--words asks for what is not there: the model predicts no classes to"),
        ("pooled_numbers", ["--only", "words"], "--only words asks for what is not there: the model predicts no"),
        (
            "lama",
            ["--words", "a", "--only", "pooling"],
            "--words belongs to the analysis words, but --only is pooling;",
        ),
        ("lama", ["--words", "a", "x y", "Film"], "of the model's dictionary, but it lacks 'x y', 'Film'; name others"),
        (
            "lama",
            ["--words", "story", "--sentences", 1],
            "--words must occur in what is read, but no document has 'story' (documents read: 1); raise --sentences",
        ),
        (
            "lama",
            ["--only", "words", "--min-documents", 22],
            "no word occurs in 22 documents of one class among the 21",
        ),
        ("lama", ["--top-words", 0], "--top-words must be at least 1, but got 0."),
        ("lama", ["--min-documents", 0], "--min-documents must be at least 1, but got 0."),
        ("lama", ["--sentence", 22], "--sentence must be the number of a sentence of the split, from 1 to 21, but"),
    ],
)
def test_what_cannot_be_shown_is_named(shop, tmp_path, capsys, path, flags, sentence):
    assert run("--path", getattr(shop, path), "--output", tmp_path / "out", *flags) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
