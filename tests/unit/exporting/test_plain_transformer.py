"""fairseq's Transformer and ours are one model under two names, and CTranslate2 takes both."""

import pytest
import torch
from support.helpers import assert_close
from support.muse_models import ATOL, PAD, VARIANTS, build, logits_of, make_pair
from support.translation_models import GERMAN, save_translation_model
from torch import nn

from muse_plugin.exporting.ctranslate2_folder import check_model, name_parameters
from muse_plugin.models.onnx.plain_layers import name_as_fairseq
from muse_plugin.runner.run import Translator
from muse_plugin_command import cli


@pytest.mark.parametrize("flags", [{}, {"encoder_normalize_before": True, "decoder_normalize_before": True}], ids=str)
def test_parameters_under_the_names_of_fairseq_give_the_same_scores(flags):
    ours = build("plain_transformer", **flags).eval()
    theirs = build("transformer", **flags).eval()
    theirs.load_state_dict(name_parameters(ours))
    _, _, source, previous = make_pair()
    with torch.no_grad():
        real = previous.ne(PAD)  # behind the end of a sentence both compute anything
        pair = [logits_of(net, source, previous)[real] for net in (theirs, ours)]
        assert_close(*pair, atol=ATOL)


@pytest.mark.parametrize(
    ("model", "flags"),
    [
        ("muse", {}),
        ("muse_simple", {}),
        ("plain_transformer", {"encoder_attention_bias": "distance"}),
        ("plain_transformer", {"decoder_ffn_projection": "shared"}),
        ("plain_transformer", {"encoder_positions": "none"}),
        ("plain_transformer", {"encoder_attention_bias": "distance", "decoder_layer_type": "fairseq"}),
        ("plain_transformer", {"adaptive_softmax_cutoff": "5,8"}),
    ],
)
def test_what_ctranslate2_cannot_express_is_refused(model, flags):
    with pytest.raises(NotImplementedError, match=r"takes plain Transformers .*; export with --format onnx, or distil"):
        check_model(build(model, **flags))
    with pytest.raises(NotImplementedError, match="but this one is a Linear; export"):
        check_model(nn.Linear(2, 2))


def test_attention_to_an_encoder_of_another_width_has_names():
    named = name_as_fairseq(build("plain_transformer", **VARIANTS["other_widths"]).decoder.layers[0])
    shapes = [tuple(named[f"encoder_attn.{letter}_proj.weight"].shape) for letter in "qkv"]
    assert shapes == [(16, 16), (16, 24), (16, 24)]


@pytest.mark.parametrize("arch", ["transformer", "plain_transformer"])
@pytest.mark.parametrize("int8", [False, True])
def test_ctranslate2_translates_alike(tmp_path, arch, int8):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="needs the extra 'ctranslate2'")
    for name in ("onnx", "onnxruntime"):
        pytest.importorskip(name, reason="needs the extra 'export'")
    source = save_translation_model(tmp_path / "model", arch=arch)
    for form in ("onnx", "ctranslate2"):
        words = ["export", "--path", str(source), "--output", str(tmp_path / form), "--format", form]
        assert cli.main([*words, *["--int8"] * (int8 and form == "ctranslate2")]) == 0
    names = {path.name for path in (tmp_path / "ctranslate2").iterdir()}
    assert names >= {"model.bin", "config.json", "text_pipeline.json", "bpe.codes", "README.md"}
    ours = Translator(tmp_path / "onnx")
    sentences = [ours.read_line(line) for line in GERMAN[:3]]
    theirs = ctranslate2.Translator(str(tmp_path / "ctranslate2"), device="cpu", intra_threads=1)
    found = theirs.translate_batch(sentences, beam_size=5, length_penalty=1, max_decoding_length=10)
    if int8:
        return  # rounded weights of an untrained model: it runs
    expected = [ours.describe(*own[0]).tokens for own in ours.search(sentences, max_len_a=0, max_len_b=10)]
    assert [own.hypotheses[0] for own in found] == expected
