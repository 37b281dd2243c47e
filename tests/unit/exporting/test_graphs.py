"""The exported graphs compute what the model computes, in every variant, whatever the lengths and the order of rows."""

import numpy as np
import pytest
import torch
from support.helpers import assert_close
from support.muse_models import ATOL, SYMBOLS, VARIANTS, build, built, lengths_of, make_pair
from torch import nn

from muse_plugin.models.onnx.graphs import make_graphs

LENGTHS = [((7, 5, 3), (9, 9, 9)), ((1,), (22,)), ((20, 18, 2, 2), (5, 5, 5, 5))]
# One for each way that something is computed; the others differ in numbers only.
WRITTEN = [
    *("muse", "muse_simple", "plain_transformer", "lightweight", "depthwise", "standard", "separate_projection"),
    *("even_decoder_kernel", "long_kernel", "no_gate", "long_short_range", "multi_scale", "distance", "ffn_shared"),
    *("multi_scale_layers", "distance_layers"),
    *("everything_limited", "conv_before_cross_attention", "growing_kernels", "normalize_before", "no_positions"),
    *("learned_positions", "embedding_norm", "other_output_width", "adaptive_softmax", "share_all_embeddings"),
]
MORE = {"leaky": {"conv_padding": "leaky"}, "fairseq_decoder": {"decoder_layer_type": "fairseq"}}
FAIRSEQ = {
    "transformer": {},
    "transformer_normalized_before": {"encoder_normalize_before": True, "decoder_normalize_before": True},
    "transformer_with_learned_positions": {"encoder_learned_pos": True, "decoder_learned_pos": True},
    "transformer_sharing_embeddings": {"share_all_embeddings": True, "layernorm_embedding": True},
}


def build_of_fairseq(**flags):
    return build("transformer", **{"max_source_positions": 30, "max_target_positions": 30, **flags}).eval()


def build_variant(name):
    if name in MORE:
        return build(**MORE[name]).eval()
    return build_of_fairseq(**FAIRSEQ[name]) if name in FAIRSEQ else built(name)


def expected_of(net, source, previous):
    with torch.no_grad():
        out = net.decoder(previous, net.encoder(source, lengths_of(source)))
        return net.get_normalized_probs(out, log_probs=True)


def compare(net, graphs, encode, step):
    """Steps through sentences, rows in another order at every step, and compares with all positions at once."""
    for lengths, target_lengths in LENGTHS:
        _, _, source, previous = make_pair(lengths, target_lengths)
        encoded = encode(source)
        # Three hypotheses for each sentence: the same words, moved on by one and by two.
        tokens = torch.stack([previous, previous.roll(1, 1), previous.roll(2, 1)], 1).flatten(0, 1)
        expected = expected_of(net, source.repeat_interleave(3, 0), tokens)
        histories = graphs[1].make_histories(len(tokens), 0)
        order = torch.arange(len(tokens))  # where the rows of the last step are
        for position in range(tokens.shape[1]):
            # Within a sentence only, as in a beam.
            swap = torch.cat([torch.arange(i, i + 3).roll(position) for i in range(0, len(tokens), 3)])
            order = order[swap]
            scores, histories = step(tokens[order, position], position, swap, encoded, histories)
            assert_close(scores, expected[order, position], atol=ATOL)


@pytest.mark.parametrize("name", [*MORE, *VARIANTS, *FAIRSEQ])
def test_steps_with_explicit_histories_equal_the_model(name):
    net = build_variant(name)
    graphs = make_graphs(net)

    def step(tokens, position, order, encoded, histories):
        with torch.no_grad():
            scores, *new = graphs[1](tokens, torch.tensor(position), order, *encoded, *histories)
        return scores, new

    with torch.no_grad():
        compare(net, graphs, graphs[0], step)


@pytest.mark.parametrize("name", [*WRITTEN, "transformer", "transformer_sharing_embeddings"])
def test_onnx_files_equal_the_model(name, tmp_path):
    pytest.importorskip("onnx", reason="needs the extra 'export'")
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra 'export'")
    from muse_plugin.models.onnx.onnx_file import write_encoder, write_step

    net = build_variant(name)
    graphs = make_graphs(net)
    write_encoder(graphs[0], tmp_path / "encoder.onnx")
    write_step(graphs[1], tmp_path / "step.onnx")
    encoder, decoder = (onnxruntime.InferenceSession(str(tmp_path / f"{n}.onnx")) for n in ("encoder", "step"))
    wanted = {own.name for own in decoder.get_inputs()}

    def encode(source):
        return encoder.run(None, {"tokens": source.numpy()})

    def step(tokens, position, order, encoded, histories):
        numbers = {"tokens": tokens, "position": torch.tensor(position), "order": order}
        inputs = {name: number.numpy() for name, number in numbers.items()}
        inputs["candidates"] = np.array([SYMBOLS])
        inputs |= dict(zip(["padding", *graphs[1].encoder_names], encoded, strict=True))
        inputs |= {n: np.asarray(h) for n, h in zip(graphs[1].history_shapes, histories, strict=True)}
        scores, words, eos, *new = decoder.run(None, {n: x for n, x in inputs.items() if n in wanted})
        by_word = np.empty_like(scores)
        np.put_along_axis(by_word, words, scores, axis=1)
        assert (by_word[:, 2] == eos).all()
        return torch.from_numpy(by_word), new

    compare(net, graphs, encode, step)


@pytest.mark.parametrize(("name", "most"), [("muse", 45), ("muse_simple", 32), ("transformer", 44)])
def test_a_layer_of_the_step_has_few_operators(name, most, tmp_path):
    onnx = pytest.importorskip("onnx", reason="needs the extra 'export'")
    from muse_plugin.models.onnx.onnx_file import write_step

    counts = []
    for layers in (1, 2):
        flags = {"encoder_layers": layers, "decoder_layers": layers}
        net = build_of_fairseq(**flags) if name == "transformer" else build(**{**VARIANTS[name], **flags}).eval()
        write_step(make_graphs(net)[1], tmp_path / "step.onnx")
        nodes = onnx.load(str(tmp_path / "step.onnx")).graph.node
        counts.append(sum(node.op_type not in ("Constant", "Identity") for node in nodes))
    assert counts[1] - counts[0] <= most


def test_another_kind_of_model_is_refused():
    with pytest.raises(NotImplementedError, match=r"but of this model it is a Linear; translate by PyTorch"):
        make_graphs(nn.Linear(2, 2))


def test_an_addition_to_the_transformer_is_refused():
    with pytest.raises(NotImplementedError, match="but of this model its decoder has no cross-attention of its own;"):
        make_graphs(build_of_fairseq(no_cross_attention=True, cross_self_attention=True))
    with pytest.raises(NotImplementedError, match="but of this model its layers have attn_ln, ffn_layernorm;"):
        make_graphs(build_of_fairseq(scale_attn=True, scale_fc=True))


@pytest.mark.parametrize(
    ("make", "backends"),
    [(build, {"auto"}), (lambda: build_of_fairseq().half(), set())],
    ids=["muse", "transformer"],
)
def test_the_model_stays_as_it_is(make, backends):
    net = make()
    training, before = net.training, {name: value.clone() for name, value in net.state_dict().items()}
    make_graphs(net)
    assert net.training == training
    assert {module.backend for module in net.modules() if hasattr(module, "backend")} == backends
    for name, value in net.state_dict().items():
        assert value.dtype == before[name].dtype, name
        assert value.equal(before[name]), name
