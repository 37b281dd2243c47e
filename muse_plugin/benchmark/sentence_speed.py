"""``muse-plugin benchmark sentence``: whole sentence models, forward, against fairseq's Transformer encoder.

The sizes are those of Figure 4 in Guo et al. 2020 (arXiv:1912.00544): batches of 128 sentences as long as those of MR,
of MTL-16 and of IMDB on average.
"""

import argparse
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial

import torch
from fairseq.models.transformer import TransformerConfig, TransformerEncoderBase
from torch import Tensor, nn

from muse_plugin.benchmark.measurement import Case
from muse_plugin.benchmark.systems import ModelFactory
from muse_plugin.models.multi_scale_transformer import MultiScaleTransformerModel
from muse_plugin.models.sentence_baselines import SentenceBiGRUModel
from muse_plugin.models.sentence_transformer import SentenceTransformerModel

FAIRSEQ = "fairseq TransformerEncoder"
TRANSFORMER = "sentence_transformer"
BIGRU = "sentence_bigru"
MULTI_SCALE = "multi_scale_transformer"


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Yields every length."""
    if args.embed_dim % args.heads:
        raise ValueError(f"--embed-dim must be a multiple of --heads, but got {args.embed_dim} and {args.heads}.")
    torch.manual_seed(args.seed)
    models = build_models(args)
    for length in args.lengths:
        tokens = torch.randint(4, args.vocabulary + 4, (args.sentences, length), device=args.device)
        lengths = torch.full((args.sentences,), length, device=args.device)
        runs = {name: partial(model, tokens, lengths) for name, model in models.items()}
        yield Case({"length": length}, runs.items(), length * args.sentences)


def build_models(args: argparse.Namespace) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The systems, from ids (B, T) and lengths (B,) to scores or states."""
    task = ModelFactory(args.vocabulary + 4).make_sentence_task(2)
    dictionary = task.source_dictionary
    sizes = {"word_embed_dim": args.embed_dim, "encoder_embed_dim": args.embed_dim}
    attention = {**sizes, "encoder_layers": args.layers, "encoder_attention_heads": args.heads}
    theirs = Namespace(
        encoder_embed_dim=args.embed_dim,
        encoder_ffn_embed_dim=4 * args.embed_dim,
        encoder_attention_heads=args.heads,
        encoder_layers=args.layers,
    )
    embedding = nn.Embedding(len(dictionary), args.embed_dim, dictionary.pad())
    encoder = TransformerEncoderBase(TransformerConfig.from_namespace(theirs), dictionary, embedding)
    models: dict[str, nn.Module] = {FAIRSEQ: encoder.to(args.device, args.dtype).eval()}
    for name, kind, flags in (
        (TRANSFORMER, SentenceTransformerModel, {**attention, "encoder_ffn_embed_dim": 4 * args.embed_dim}),
        (BIGRU, SentenceBiGRUModel, {**sizes, "encoder_hidden_size": args.embed_dim // 2}),
        (MULTI_SCALE, MultiScaleTransformerModel, {**attention, "encoder_head_dim": args.embed_dim // args.heads}),
    ):
        models[name] = kind.build_model(kind.config_class(**flags), task).to(args.device, args.dtype).eval()
        models[name].make_generation_fast_()  # type: ignore[operator]
    return {name: partial(_run, model) for name, model in models.items()}


def _run(model: nn.Module, tokens: Tensor, lengths: Tensor) -> Tensor:
    with torch.no_grad():
        out = model(tokens, lengths)
    return out["encoder_out"][0] if isinstance(out, dict) else out.logits
