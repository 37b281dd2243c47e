"""``muse-plugin analyze bert``: how far the heads of a BERT look (arXiv:1912.00544, Figure 3), and how sharply.

The BERT is a folder as Hugging Face's transformers writes it; the text is raw, a sentence a line, of which each is read
alone between [CLS] and [SEP].
"""

import argparse
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from muse_plugin.analysis import attention_map, head_tables
from muse_plugin.analysis.attention_sites import find_sites
from muse_plugin.analysis.load import AttentionObserver, MapObserver, read_corpus
from muse_plugin.analysis.report import REPORT_NAME, check_output, write_results
from muse_plugin.files.lines import check_file, iterate_stream
from muse_plugin.inference import length_batches
from muse_plugin.modules.bert_encoder import BertEncoder
from muse_plugin.modules.padding_mask import mask_padding
from muse_plugin.pretrained.bert_weights import load_bert_weights, read_bert_sizes
from muse_plugin.results.run_record import describe_run
from muse_plugin.text.word_pieces import VOCABULARY_NAME, WordPieces, choose_rules, read_vocabulary
from muse_plugin_command.flag_checks import check_positive

_FIRST, _LAST = "[CLS]", "[SEP]"
_FILLING = 0  # any valid id


def run(args: argparse.Namespace) -> None:
    """Analyses a BERT; the body of ``muse-plugin analyze bert``.

    Raises:
        ValueError: if a flag is wrong or a file damaged.
        FileNotFoundError: if a file is missing.
        ImportError: if a package is missing.
    """
    check_positive(args, "sentences", "sentence", "max_tokens")
    check_file(args.input, "--input")
    check_output(args.output)
    sizes = read_bert_sizes(args.bert_dir)
    rules, _ = choose_rules(args.bert_dir)
    vocabulary = read_vocabulary(args.bert_dir / VOCABULARY_NAME)
    cutter = WordPieces(vocabulary, rules)
    sentences = read_sentences(args.input, cutter, args.sentences, sizes.max_position_embeddings)
    if args.sentence > len(sentences):
        raise ValueError(
            f"--sentence must be the number of a sentence that is read, from 1 to {len(sentences)}, but got "
            f"{args.sentence}."
        )
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    encoder = BertEncoder(sizes)
    load_bert_weights(encoder, args.bert_dir)
    if torch.cuda.is_available() and not args.cpu:
        encoder.cuda()
    sites = find_sites(nn.ModuleDict({"encoder": encoder}))
    attention, shown = AttentionObserver(sites), MapObserver(sites)
    encoded = [[ids[piece] for piece in pieces] for pieces in sentences]
    read_corpus(encoder, make_batches(encoded, args.max_tokens), [attention], padding=_FILLING, title=args.name)
    pieces = sentences[args.sentence - 1]
    read_corpus(encoder, make_batches([encoded[args.sentence - 1]], args.max_tokens), [shown], padding=_FILLING)
    results = [
        *head_tables.make_results(*head_tables.read_tables(args.name, attention)),
        *attention_map.make_results(attention_map.read_maps(args.name, sites, shown.maps, pieces, [])),
    ]
    record = {
        "models": [{"name": args.name, "bert_dir": str(args.bert_dir), "sizes": sizes._asdict()}],
        "data": {"input": str(args.input), "sentences": len(sentences), "shown_sentence": args.sentence},
        **describe_run(),
    }
    write_results(args.output, f"Analysis of {args.name}", results, {}, record)
    sys.stdout.write(f"figures written, with their numbers: {len(results)}; open {args.output / REPORT_NAME}\n")


def read_sentences(path: Path, cutter: WordPieces, count: int, longest: int) -> list[list[str]]:
    """Cuts text into word pieces with [CLS] and [SEP] around them; what is longer than the model reads is cut off.

    Args:
        path: raw text, one sentence a line; blank lines are passed over.
        cutter: of the BERT's vocabulary.
        count: most sentences read.
        longest: pieces of a sentence, [CLS] and [SEP] among them.

    Raises:
        ValueError: if there is no sentence.
    """
    with path.open("rb") as file:
        lines = (cutter.split(text) for text, _ in iterate_stream(file))
        sentences = [[_FIRST, *pieces[: longest - 2], _LAST] for pieces in itertools.islice(filter(None, lines), count)]
    if not sentences:
        raise ValueError(f"--input must have a sentence, but {path} has none.")
    return sentences


def make_batches(sentences: Sequence[Sequence[int]], max_tokens: int) -> list[dict[str, Any]]:
    """Batches of ids of similar length for ``BertEncoder``; ``max_tokens`` of a batch, padding included."""
    lengths = {number: len(sentence) for number, sentence in enumerate(sentences)}
    batches = []
    for group in length_batches.make_batches(lengths, max_tokens):
        pieces = pad_sequence([torch.tensor(sentences[number]) for number in group], True, _FILLING)
        mask = mask_padding(torch.tensor([lengths[number] for number in group]), pieces.shape[1])
        batches.append({"pieces": pieces, "key_padding_mask": mask if bool(mask.any()) else None})
    return batches
