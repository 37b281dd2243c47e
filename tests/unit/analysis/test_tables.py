"""The rows of every analysis, and that figures show them: data, not pixels."""

import math

import numpy as np
import pytest
import torch
from support import muse_models, sentence_models
from support.analysis_results import ticks_of
from support.helpers import assert_close

from muse_plugin.analysis import allocation, attention_map, convolutions, directions, head_tables
from muse_plugin.analysis.analyze_model import Report, combine
from muse_plugin.analysis.attention_sites import find_sites
from muse_plugin.analysis.attention_statistics import REACH
from muse_plugin.analysis.convolutions import GateRow
from muse_plugin.analysis.drawing import label_words
from muse_plugin.analysis.head_tables import ConcentrationRow, DistanceRow, HeadRow
from muse_plugin.analysis.load import AttentionObserver, KernelObserver, MapObserver, read_corpus
from muse_plugin.modules.attends import record_attention


def lines_of(axes):
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}


def legend_of(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def pair_batch():
    *_, source, previous = muse_models.make_pair()
    return {"src_tokens": source, "src_lengths": muse_models.lengths_of(source), "prev_output_tokens": previous}


# ---- gates --------------------------------------------------------------------------------------------------------


def test_gates_are_the_softmax_of_the_parameters():
    model = muse_models.built("muse")
    rows = convolutions.read_gates("MUSE", model)
    assert [row[:4] for row in rows] == [
        ("MUSE", side, layer, size) for side in ("encoder", "decoder") for layer in (1, 2) for size in (3, 15)
    ]
    parameter = model.decoder.layers[1].branches["conv"].gate
    assert_close([row.weight for row in rows[6:]], torch.softmax(parameter, 0), atol=1e-6)
    assert convolutions.read_gates("T", muse_models.built("no_gate")) == []
    assert [row[1:4] for row in convolutions.read_gates("G", muse_models.built("growing_kernels"))] == [
        ("encoder", 2, 7), ("encoder", 2, 15), ("decoder", 2, 7), ("decoder", 2, 15)
    ]  # fmt: skip


def test_gates_are_drawn_by_layer(tmp_path, drawn):
    rows = [GateRow("A", "encoder", layer, size, weight)
            for layer, small in ((1, 0.6), (2, 0.3)) for size, weight in ((3, small), (15, 1 - small))]  # fmt: skip
    rows += [row._replace(model="B", weight=0.5) for row in rows]
    convolutions.make_gate_results(rows)[0].draw(tmp_path / "gates.svg")
    (axes,) = drawn[0].axes
    lines = lines_of(axes)
    assert lines["3 tokens, A"] == ([1, 2], [0.6, 0.3])
    assert lines["15 tokens, A"] == ([1, 2], [0.4, 0.7])
    assert lines["3 tokens, B"] == ([1, 2], [0.5, 0.5])
    assert legend_of(axes) == ["3 tokens, A", "15 tokens, A", "3 tokens, B", "15 tokens, B"]
    assert axes.get_xlabel() == "layer (1 = bottom)"
    assert axes.get_ylabel() == "weight of the kernel size (0 to 1)"
    assert axes.get_title() == "encoder"


# ---- kernels ------------------------------------------------------------------------------------------------------


def test_kernels_have_a_row_for_each_tap_and_are_drawn_as_means_over_heads(tmp_path, drawn):
    model = muse_models.built("even_decoder_kernel")
    observer = KernelObserver(convolutions.find_kernel_sites(model))
    read_corpus(model, [pair_batch()], [observer], muse_models.PAD)
    rows = convolutions.read_kernels("M", observer)
    assert len(rows) == 2 * 2 * (3 + 15) + 2 * 2 * (2 + 4)
    own = [row for row in rows if row[1:4] == ("decoder", 2, 4)]
    assert [(row.head, row.offset_tokens) for row in own] == [(h, o) for h in (0, 1) for o in (-3, -2, -1, 0)]
    means = observer.means[3].means()[1]
    assert_close(torch.tensor([row.weight for row in own]).double(), means.flatten(), atol=1e-6)
    (result,) = convolutions.make_kernel_results(rows)
    assert result.columns == ("model", "side", "layer", "kernel_size_tokens", "head", "offset_tokens", "weight")
    result.draw(tmp_path / "kernels.png")
    titles = [axes.get_title() for axes in drawn[0].axes]
    assert titles == [f"{side}, kernel of {size}" for side in ("encoder", "decoder") for size in (2, 3, 4, 15)]
    offsets, weights = lines_of(drawn[0].axes[6])["2"]
    assert offsets == [-3, -2, -1, 0]
    assert_close(means.mean(0), weights, atol=1e-6)
    assert {axes.get_xlabel() for axes in drawn[0].axes} == {"offset of the word that is read (tokens)"}
    assert drawn[0].axes[4].get_ylabel() == "mean weight (0 to 1)"


# ---- attention ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def observed():
    model = muse_models.built("multi_scale")
    observer = AttentionObserver(find_sites(model))
    read_corpus(model, [pair_batch()], [observer], muse_models.PAD)
    return observer


def test_heads_have_a_row_each(observed):
    rows = head_tables.read_tables("M", observed)[0]
    assert [row[:4] for row in rows] == [
        ("M", side, layer, head) for side in ("encoder", "decoder", "cross") for layer in (1, 2) for head in range(4)
    ]
    assert rows[0].mean_distance_tokens == 0.0  # a window of one word
    assert rows[0].largest_weight == 1.0
    assert rows[0].normalized_entropy == 0.0
    assert all(math.isnan(row.mean_distance_tokens) == (row.side == "cross") for row in rows)
    third = observed.statistics[2]
    assert rows[9].mean_distance_tokens == pytest.approx(float(third.offsets.mean_distance()[1]))
    assert rows[9].entropy_bits == pytest.approx(float(third.overall().entropy[1]))


def test_distances_are_both_directions_together_and_add_up(observed):
    rows = head_tables.read_tables("M", observed)[1]
    assert {row.side for row in rows} == {"encoder", "decoder"}
    for number, (site, statistics) in enumerate(zip(observed.sites, observed.statistics, strict=True)):
        own = [row for row in rows if (row.side, row.layer) == (site.side, site.layer)]
        if site.side == "cross":
            assert own == []
            continue
        for head in range(site.heads):
            shares = [row.share for row in own if row.head == head]
            assert sum(shares) == pytest.approx(1, abs=1e-5), number
            middle = statistics.offsets.shares()[head]
            assert sum(row.strongest_share for row in own if row.head == head) == pytest.approx(1, abs=1e-5)
            assert shares[0] == pytest.approx(float(middle[REACH]))
            assert shares[1] == pytest.approx(float(middle[REACH - 1] + middle[REACH + 1]))


def test_sharpness_has_a_row_for_each_range_of_lengths(observed):
    rows = head_tables.read_tables("M", observed)[2]
    first = [row for row in rows if (row.side, row.layer) == ("encoder", 1)]
    assert [(row.shortest_tokens, row.longest_tokens, row.sentences) for row in first] == [(1, 5, 2), (6, 10, 1)]
    part = observed.statistics[0].by_length()[0]
    assert first[0].entropy_bits == pytest.approx(float(part.entropy.mean()))
    assert first[0].largest_weight == pytest.approx(float(part.largest.mean()))
    assert first[0].normalized_entropy == pytest.approx(float(part.normalized_entropy.mean()))


def test_mean_distances_are_drawn_as_a_table_of_layers_and_heads(tmp_path, drawn):
    rows = [
        HeadRow("A", "encoder", layer, head, layer + head / 10, 1.0, 0.5, 0.5) for layer in (1, 2) for head in (0, 1)
    ]
    rows.append(HeadRow("A", "cross", 1, 0, math.nan, 1.0, 0.5, 0.5))
    distances = [DistanceRow("A", "encoder", 1, 0, 0, 1.0, 1.0)]
    head_tables.make_results(rows, distances, [])[0].draw(tmp_path / "a.png")
    panel, bar = drawn[0].axes
    assert_close(np.asarray(panel.images[0].get_array()), [[1.0, 1.1], [2.0, 2.1]], atol=1e-9)
    assert [text.get_text() for text in panel.texts] == ["1.0", "1.1", "2.0", "2.1"]
    assert ticks_of(panel.yaxis) == ["1", "2"]
    assert panel.images[0].origin == "lower"
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("head", "layer (1 = bottom)")
    assert bar.get_ylabel() == "mean distance (tokens)"


def test_distributions_are_drawn_for_heads_and_layers_without_what_is_far_away(tmp_path, drawn):
    shares = {(1, 0): [0.6, 0.4], (1, 1): [0.2, 0.3], (2, 0): [1.0, 0.0], (2, 1): [0.5, 0.5]}
    rows = [
        DistanceRow("A", "encoder", *key, d, share, share / 2)
        for key, found in shares.items()
        for d, share in enumerate(found)
    ]
    rows += [DistanceRow("A", "encoder", 1, 1, REACH, 0.5, 0.5)]
    head_tables.draw_distances(rows, tmp_path / "a.svg")
    left, middle, right = drawn[0].axes
    for axes, part in ((left, 1), (right, 0.5)):
        assert [list(line.get_ydata()) for line in axes.lines] == [
            pytest.approx([part * share for share in curve]) for curve in ([0.6, 0.4], [0.2, 0.3], [0.4, 0.35])
        ]
    assert legend_of(left) == ["a head", "mean of heads"]
    assert lines_of(middle)["1"] == ([0, 1], pytest.approx([0.4, 0.35]))
    assert lines_of(middle)["2"] == ([0, 1], pytest.approx([0.75, 0.25]))
    assert middle.get_title() == "encoder\nmean over heads"
    assert left.get_ylabel() == "share (0 to 1)"
    assert [axes.get_xlabel().rpartition(" ")[2] for axes in (left, middle, right)] == ["weight", "weight", "words"]


def test_sharpness_is_drawn_as_means_over_layers_for_both_models(tmp_path, drawn):
    rows = [
        ConcentrationRow("A", "encoder", 1, 1, 5, 3, 1.0, 0.5, 0.8),
        ConcentrationRow("A", "encoder", 2, 1, 5, 3, 2.0, math.nan, 0.6),
        ConcentrationRow("A", "encoder", 1, 151, None, 1, 4.0, 0.9, 0.2),
        ConcentrationRow("B", "encoder", 1, 151, None, 1, 3.0, 0.7, 0.3),
    ]
    head_tables.make_results([], [], rows)[0].draw(tmp_path / "a.png")
    entropy, normalized, largest = drawn[0].axes
    assert lines_of(entropy) == {"A": ([0, 1], [1.5, 4.0]), "B": ([1], [3.0])}
    assert lines_of(normalized) == {"A": ([0, 1], [0.5, 0.9]), "B": ([1], [0.7])}
    assert lines_of(largest) == {"A": ([0, 1], [pytest.approx(0.7), 0.2]), "B": ([1], [0.3])}
    assert ticks_of(entropy.xaxis) == ["1-5", ">150"]
    assert entropy.get_ylabel() == "entropy (bits)"
    assert normalized.get_ylabel() == "normalised entropy (0 to 1)"
    assert largest.get_ylabel() == "largest weight (0 to 1)"
    assert {axes.get_xlabel() for axes in drawn[0].axes} == {"sentence length (tokens)"}
    assert legend_of(largest) == ["A", "B"]


# ---- maps ---------------------------------------------------------------------------------------------------------


def test_maps_have_the_weights_with_their_words(tmp_path, drawn):
    model = muse_models.built("muse")
    source, target = muse_models.make_sentence(4), muse_models.make_sentence(3).roll(1)
    inputs = {"src_tokens": source[None], "src_lengths": torch.tensor([4]), "prev_output_tokens": target[None]}
    observer = MapObserver(find_sites(model))
    read_corpus(model, [inputs], [observer], muse_models.PAD)
    words = ["w$", "a_long_word_indeed", "c", "</s>"], ["</s>", "x", "y"]
    rows = attention_map.read_maps("M", observer.sites, observer.maps, *words)
    results = attention_map.make_results(rows)
    assert [result.name for result in results] == [f"attention_map_{side}" for side in ("encoder", "decoder", "cross")]
    with torch.no_grad(), record_attention([observer.sites[1].module]) as weights:
        model(**inputs)
    own = [row for row in results[0].rows if row.layer == 2]
    assert_close([row.weight for row in own], weights[0].flatten(), atol=1e-6)
    assert (own[6].head, own[6].query, own[6].query_word, own[6].key, own[6].key_word) == (
        0, 1, "a_long_word_indeed", 2, "c"
    )  # fmt: skip
    assert {(row.query_word, row.key_word) for row in results[2].rows} == {(q, k) for q in words[1] for k in words[0]}
    results[2].draw(tmp_path / "map.png")
    axes, bar = drawn[0].axes
    image = np.ma.filled(axes.images[0].get_array(), np.nan)
    assert image.shape == (2 * 4 - 1, 2 * 5 - 1)
    cross = observer.maps[5].double()
    assert_close(image[:3, :4], cross[0], atol=1e-6)  # the upper layer is above
    assert_close(image[:3, 5:], cross[1], atol=1e-6)
    assert_close(image[4:, 5:], observer.maps[4][1].double(), atol=1e-6)
    assert np.isnan(image[3]).all()
    assert ticks_of(axes.xaxis) == ["w\\$", "a_long_word_i…", "c", "</s>"] * 2
    assert ticks_of(axes.yaxis) == ["</s>", "x", "y"] * 2
    names = ["head 0", "head 1", "query (word or position)", "layer 2", "layer 1"]
    assert [text.get_text() for text in axes.texts] == names
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(axes.figure).get_renderer()
    boxes = [text.get_window_extent(renderer) for text in axes.texts]
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])
    assert axes.get_xlabel() == "key (word or position)"
    assert bar.get_ylabel() == "weight (0 to 1)"


def test_long_sentences_are_numbered(tmp_path, drawn):
    sites = find_sites(muse_models.built("muse"))[:1]
    words = [f"word{i}" for i in range(30)]
    rows = attention_map.read_maps("M", sites, {0: torch.eye(30).expand(2, 30, 30)}, words, [])
    attention_map.draw(rows, tmp_path / "map.svg")
    assert ticks_of(drawn[0].axes[0].yaxis) == ["0", "10", "20"]
    assert ticks_of(drawn[0].axes[0].xaxis) == ["0", "10", "20"] * 2


def test_words_that_do_not_fit_are_refused():
    sites = find_sites(muse_models.built("muse"))[:1]
    with pytest.raises(ValueError, match=r"but got \(3, 3\) for 2 and 2 words"):
        attention_map.read_maps("M", sites, {0: torch.eye(3).expand(2, 3, 3)}, ["a", "b"], [])


def test_labels_are_short_and_no_formulas():
    assert label_words(["$a$", "x" * 14, "x" * 15]) == [r"\$a\$", "x" * 14, "x" * 13 + "…"]


# ---- windows ------------------------------------------------------------------------------------------------------


def test_allocation_is_that_of_the_windows(tmp_path, drawn):
    model = sentence_models.built("multi_scale_transformer")  # scales 1,3,N/4 for 4 heads in 2 layers
    rows = allocation.read_allocation("M", model)
    for layer in (1, 2):
        own = {row.scale: row.heads for row in rows if row.layer == layer}
        scales = [str(scale) for scale in model.encoder.layers[layer - 1].windows.scales]
        assert own == {scale: scales.count(scale) for scale in scales}
        assert sum(own.values()) == 4
    assert [row.scale for row in rows if row.layer == 2] == ["1", "3", "N/4"]
    assert allocation.read_allocation("M", sentence_models.built("sentence_transformer")) == []
    assert allocation.read_allocation("M", sentence_models.built("no_windows")) == []
    sides = {row.side for row in allocation.read_allocation("M", muse_models.built("multi_scale"))}
    assert sides == {"encoder", "decoder"}
    allocation.make_results(rows)[0].draw(tmp_path / "a.png")
    (axes,) = drawn[0].axes
    bars = sorted((round(bar.get_y() + bar.get_height() / 2), bar.get_x(), bar.get_width()) for bar in axes.patches)
    expected, start = [], {}
    for row in rows:
        expected.append((row.layer, start.get(row.layer, 0), row.heads))
        start[row.layer] = start.get(row.layer, 0) + row.heads
    assert bars == sorted(expected)
    assert set(legend_of(axes)) == {row.scale for row in rows}
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("heads", "layer (1 = bottom)")


def test_scales_stand_from_narrow_to_wide(tmp_path, drawn):
    rows = [allocation.AllocationRow("M", "encoder", 1, scale, 1) for scale in ("all", "N/2", "15", "N/16", "3")]
    allocation.draw(rows, tmp_path / "a.svg")
    assert legend_of(drawn[0].axes[0]) == ["3", "15", "N/16", "N/2", "all"]


# ---- directions ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def directed():
    model = sentence_models.built("distance_attention_network", distance_alpha=0.5)
    sites = directions.find_directions(model)
    observer = directions.DirectionObserver(sites)
    sentences = sentence_models.make_sentences(6, 30, 4)
    read_corpus(model, [sentence_models.make_input(sentences)], [observer], sentence_models.PAD)
    return model, sites, observer, sentences


def test_masks_are_those_of_the_paper(directed, tmp_path, drawn):
    rows = directions.read_masks("M", directed[1])
    length = directions.MASK_LENGTH
    assert len(rows) == 2 * length**2
    for row in rows:
        hidden = row.key >= row.query if row.direction == "forward" else row.key <= row.query
        assert row.added_to_logit == (-math.inf if hidden else -0.5 * abs(row.key - row.query))
    directions.make_results(rows, [])[0].draw(tmp_path / "masks.png")
    forward, backward, bar = drawn[0].axes
    table = np.ma.filled(forward.images[0].get_array(), np.nan)
    assert table[3, 1] == -1.0
    assert np.isnan(table[1, 3])
    assert np.ma.filled(backward.images[0].get_array(), np.nan)[1, 3] == -1.0
    assert (forward.get_xlabel(), forward.get_ylabel()) == ("key (position)", "query (position)")
    assert bar.get_ylabel() == "added to the logit (nats)"


@torch.no_grad()
def test_weights_by_offset_with_and_without_the_distance_mask(directed, tmp_path, drawn):
    model, sites, observer, sentences = directed
    rows = directions.read_offsets("M", observer)
    plain = sentence_models.build("distance_attention_network", distance_alpha=0.0).eval()
    plain.load_state_dict(model.state_dict())
    plain_sites = directions.find_directions(plain)
    for number, site in enumerate(sites):
        with record_attention([site.module]) as weights, record_attention([plain_sites[number].module]) as without:
            found = {"with": [], "without": []}
            for sentence in sentences:
                for net in (model, plain):
                    net(**sentence_models.make_input([sentence]))
                found["with"].append(weights[0][0])
                found["without"].append(without[0][0])
        for mask, tables in found.items():
            own = {row.offset_tokens: row for row in rows if (row.direction, row.distance_mask) == (site.side, mask)}
            expected = range(-20, 0) if site.side == "forward" else range(1, 21)
            assert sorted(own) == list(expected)
            assert {row.alpha for row in own.values()} == {0.5 if mask == "with" else 0.0}
            for offset in (expected[0], expected[-1], expected[10]):
                cells = [table[:, i, i + offset].mean() for table in tables for i in range(table.shape[1])
                         if 0 <= i + offset < table.shape[1]]  # fmt: skip
                assert own[offset].weight == pytest.approx(float(sum(cells) / len(cells)), abs=1e-5)
    directions.make_results([], rows)[1].draw(tmp_path / "weights.svg")
    (axes,) = drawn[0].axes
    assert legend_of(axes) == [f"{side}, alpha = {alpha}" for side in ("forward", "backward") for alpha in ("0.5", "0")]
    offsets, weights = lines_of(axes)["backward, alpha = 0.5"]
    assert offsets == list(range(1, 21))
    assert weights[0] == next(r.weight for r in rows if (r.direction, r.distance_mask) == ("backward", "with"))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("offset of the key (tokens)", "mean weight (0 to 1)")


def test_a_network_without_distance_mask_has_alpha_zero():
    model = sentence_models.built("no_distance_mask")
    rows = directions.read_masks("M", directions.find_directions(model))
    assert {row.added_to_logit for row in rows} == {0.0, -math.inf}


def test_sentences_of_one_word_have_no_distance_to_one_side(tmp_path):
    model = sentence_models.built("distance_attention_network")
    observer = AttentionObserver(find_sites(model))
    read_corpus(
        model, [sentence_models.make_input(sentence_models.make_sentences(1, 1))], [observer], sentence_models.PAD
    )
    heads, distances, sharpness = head_tables.read_tables("M", observer)
    assert distances == []
    assert all(math.isnan(row.mean_distance_tokens) for row in heads)
    masks = directions.read_masks("M", directions.find_directions(model))
    attention = {"heads": heads, "distances": distances, "concentration": sharpness, "maps": []}
    report = Report({**attention, "masks": masks, "offsets": []}, 1, None, {})
    results, _ = combine([report], ["attention", "directions"])
    for result in results:
        result.draw(tmp_path / f"{result.name}.svg")
    assert [result.name for result in results] == ["attention_distance", "concentration", "direction_masks"]
