"""Tiny MUSE models in every variant, and sentences for them."""

from argparse import Namespace
from functools import cache
from types import SimpleNamespace

import torch
from fairseq.models import build_model
from fairseq.sequence_generator import SequenceGenerator
from omegaconf import OmegaConf
from support.helpers import assert_close, sentences_of
from support.reference import make_dictionary
from torch import nn

from muse_plugin.models.muse_config import MuseConfig

PAD, EOS = 1, 2
SYMBOLS = 20
# float32, sums in another order; the largest difference over all variants was 1.3e-6, on numbers of up to 4.
ATOL = 2e-5

SMALL = {
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in {"layers": 2, "embed_dim": 16, "ffn_embed_dim": 24, "attention_heads": 2}.items()
}


def both(**flags):
    return {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in flags.items()}


VARIANTS = {
    "muse": {},
    "muse_simple": {"model": "muse_simple"},
    "lightweight": both(conv_type="lightweight"),
    "depthwise": both(conv_type="depthwise"),
    "standard": both(conv_type="standard"),
    "single_kernel": both(kernel_sizes="7"),
    "kernel_of_one": both(kernel_sizes="1,3"),
    "long_kernel": both(kernel_sizes="31"),
    "even_decoder_kernel": {"decoder_kernel_sizes": "2,4"},
    "separate_projection": both(conv_projection="separate"),
    "separate_standard": both(conv_projection="separate", conv_type="standard", kernel_sizes="3"),
    "conv_heads": both(conv_heads=8),
    "no_gate": {"no_conv_gate": True},
    "ffn_shared": both(ffn_projection="shared"),
    "ffn_reads_conv": both(conv_projection="separate", ffn_projection="conv"),
    "encoder_ffn_shared": {"encoder_ffn_projection": "shared"},
    "no_ffn": {"encoder_branches": "self_attention,conv", "decoder_branches": "self_attention,conv,cross_attention"},
    "encoder_without_conv": {"encoder_branches": "self_attention,ffn"},
    "decoder_without_conv": {"decoder_branches": "self_attention,cross_attention,ffn"},
    "conv_without_attention": {"encoder_branches": "conv,ffn", "decoder_branches": "conv,cross_attention,ffn"},
    "long_short_range": {
        "encoder_branches": "long_short_range,ffn",
        "decoder_branches": "long_short_range,cross_attention,ffn",
    },
    "plain_transformer": {"model": "plain_transformer"},
    "conv_before_cross_attention": {
        "encoder_branches": "self_attention/conv,ffn",
        "decoder_branches": "self_attention,conv/cross_attention,ffn",
    },
    "multi_scale": {
        **both(attention_bias="multi-scale", attention_heads=4),
        "encoder_attention_scales": "1,3,N/2,all",
        "decoder_attention_scales": "1,2,all",
    },
    "transformer_multi_scale": {
        "model": "plain_transformer",
        **both(attention_bias="multi-scale"),
        "encoder_attention_scales": "3,N/4",
        "decoder_attention_scales": "1,4",
    },
    "distance": {
        **both(distance_slopes="learned"),
        "encoder_attention_bias": "distance,bidirectional-split",
        "decoder_attention_bias": "distance",
    },
    "everything_limited": {
        **both(attention_heads=4, distance_slopes="geometric"),
        "decoder_attention_bias_layers": "1",
        "encoder_attention_bias": "multi-scale,distance,backward",
        "encoder_attention_diagonal": "kept",
        "encoder_attention_scales": "3,5",
        "decoder_attention_bias": "multi-scale,distance",
        "decoder_attention_scales": "2,5",
    },
    "limited_long_short_range": {
        "encoder_branches": "long_short_range,ffn",
        "decoder_branches": "long_short_range,cross_attention,ffn",
        **both(attention_bias="multi-scale"),
        "encoder_attention_scales": "1,N/2",
        "decoder_attention_scales": "2,all",
    },
    "multi_scale_layers": {
        "encoder_layer_type": "multi_scale",
        "encoder_attention_bias": "multi-scale",
        "encoder_attention_heads": 5,
        "encoder_head_dim": 6,
        "encoder_attention_scales": "1,3,N/4,all",
        "encoder_positions": "none",
    },
    "distance_layers": {"encoder_layer_type": "distance", "encoder_positions": "none"},
    "growing_kernels": both(kernel_sizes="[[3], [7, 15]]"),
    "normalize_before": both(normalize_before=True),
    "learned_positions": {**both(learned_pos=True), "max_source_positions": 30, "max_target_positions": 30},
    "no_positions": {"no_token_positional_embeddings": True},
    "embedding_norm": {"layernorm_embedding": True, "no_scale_embedding": True, "activation_fn": "gelu"},
    "other_widths": {"encoder_embed_dim": 24, "decoder_embed_dim": 16, "decoder_attention_heads": 4},
    "other_output_width": {"decoder_output_dim": 10},
    "adaptive_softmax": {"adaptive_softmax_cutoff": "8,14"},
    "share_all_embeddings": {"share_all_embeddings": True},
    "share_decoder_embeddings": {"share_decoder_input_output_embed": True},
}


def make_task(target_symbols=None):
    """What a model asks of its task; one dictionary for both languages unless the target has symbols of its own."""
    source = make_dictionary(SYMBOLS)
    target = source if target_symbols is None else make_dictionary(target_symbols)
    return SimpleNamespace(source_dictionary=source, target_dictionary=target)


def build(model="muse", seed=3, target_symbols=None, **flags):
    """A tiny model through fairseq's own entry; biases and gates are random, since zeros hide mistakes."""
    torch.manual_seed(seed)
    flags = {"dropout": 0.0, **SMALL, **flags}
    net = build_model(Namespace(_name=model, arch=model, **flags), make_task(target_symbols))
    for name, parameter in net.named_parameters():
        if "bias" in name or name.endswith("gate"):
            nn.init.normal_(parameter, std=0.3)
    return net


def faults_of(**flags):
    """The sentences with which ``build`` refuses flags, one per line."""
    return sentences_of(build, **flags)


def make_config(**flags):
    """Flags as fairseq keeps them."""
    config = OmegaConf.structured(MuseConfig(**{"dropout": 0.0, **SMALL, **flags}))
    OmegaConf.set_struct(config, False)
    config._name = "muse"
    return config


def build_from_config(config, task=None):
    return build_model(config, task or make_task())


@cache
def built(variant, form="ordinary"):
    flags = {"static_decoding": "always"} if form == "static" else {}
    net = build(**{**VARIANTS[variant], **flags}).eval()
    if form != "ordinary":
        net.make_generation_fast_(need_attn=form == "inference")
    return net


def make_sentence(length, seed=0):
    words = torch.randint(
        4, SYMBOLS, (length - 1,), generator=torch.Generator(torch.get_default_device()).manual_seed(seed)
    )
    return torch.cat([words, torch.tensor([EOS])])


def make_batch(rows, left=False, longer=0):
    """Pads rows to one length, and ``longer`` beyond."""
    width = max(map(len, rows)) + longer
    batch = torch.full((len(rows), width), PAD)
    for row, tokens in enumerate(rows):
        batch[row, width - len(tokens) :] = tokens if left else batch[row, width - len(tokens) :]
        if not left:
            batch[row, : len(tokens)] = tokens
    return batch


def make_pair(lengths=(7, 5, 3), target_lengths=(4, 6, 2), left=True):
    sources = [make_sentence(n, seed=n) for n in lengths]
    targets = [make_sentence(n, seed=n + 50).roll(1) for n in target_lengths]  # eos first, as the decoder reads it
    return sources, targets, make_batch(sources, left), make_batch(targets)


def lengths_of(tokens):
    return tokens.ne(PAD).sum(1)


def logits_of(net, source, previous):
    return net(source, lengths_of(source), previous)[0]


def step_through(net, encoder_out, tokens, steps, state=None):
    """The logits of the last sum(steps) tokens, computed a few positions at a time with a cache."""
    state = {} if state is None else state
    parts, end = [], tokens.shape[1] - sum(steps)
    for new in steps:
        end += new
        parts.append(net.decoder(tokens[:, :end], encoder_out, incremental_state=state)[0])
        assert parts[-1].shape[1] == new
    return torch.cat(parts, dim=1)


@torch.no_grad()
def assert_causal(net, source_length, length, places):
    """What comes before a changed target word keeps all its bits; what is predicted from that word changes."""
    source = make_batch([make_sentence(source_length)] * 2)
    previous = torch.stack([make_sentence(length, seed).roll(1) for seed in (1, 2)])
    before = logits_of(net, source, previous)
    for at in places:
        changed = previous.clone()
        changed[:, at] = 4 + (changed[:, at] - 3) % (SYMBOLS - 4)
        after = logits_of(net, source, changed)
        assert_close(after[:, :at], before[:, :at], atol=0, rtol=0, why=f"changed {at}")
        assert not torch.equal(after[:, at], before[:, at]), f"changed {at}"


def train_once(net, loss_of):
    """The loss under a fixed seed, and gradients by name."""
    torch.manual_seed(5)
    loss = loss_of(net)
    loss.backward()
    return loss, {name: p.grad for name, p in net.named_parameters()}


def assert_same_training(expected, actual, atol=1e-6):
    """Compares two results of ``train_once``; ``atol`` is of the gradients."""
    assert_close(actual[0], expected[0], atol=1e-6)
    assert expected[1].keys() == actual[1].keys()
    for name, gradient in expected[1].items():
        assert_close(actual[1][name], gradient, atol=atol, why=name)


def search(nets, source, prefix=None, **options):
    """Hypotheses of a batch by fairseq's beam search."""
    sample = {"net_input": {"src_tokens": source, "src_lengths": lengths_of(source)}}
    options = {"beam_size": 4, "max_len_b": 12, **options}
    return SequenceGenerator(nets, make_dictionary(SYMBOLS), **options).generate([], sample, prefix_tokens=prefix)


def assert_search_of_each_alone(net, sources, source, atol=ATOL, **options):
    """What beam search finds in a padded batch is what it finds in each sentence with the same room."""
    # The longest translation follows the length of the source, padding included.
    options = {"beam_size": 4, "max_len_a": 1, "max_len_b": 4, **options}
    for row, hypotheses in enumerate(search([net], source, **options)):
        padded = make_batch([sources[row]], left=True, longer=source.shape[1] - len(sources[row]))
        alone = search([net], padded, **options)[0]
        assert len(hypotheses) == len(alone) == options["beam_size"]
        for actual, expected in zip(hypotheses, alone, strict=True):
            assert actual["tokens"].tolist() == expected["tokens"].tolist()
            assert_close(actual["score"], expected["score"], atol=atol)
