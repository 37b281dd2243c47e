"""Seconds of an epoch against the length of documents, LAMA and Transformer: ``python speed.py --output DIR``.

An epoch is --documents documents of one length in batches of 32: forward, backward, and the step of SGD as in train.sh.
It is not run whole: the median of --repeats batches counts for all. Words are random. LAMA's encoder (no GRU) has the
published width, 100, and that of the Transformer, 512. Writes DIR/speed.json (with versions, hardware) and speed.svg.
"""

import argparse
import json
import logging
import math
import statistics
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "recipe"))

import markdown_table

NAMES = {
    "lama_encoder": "LAMA encoder, width 100",
    "lama_encoder_512": "LAMA encoder, width 512",
    "sentence_transformer_documents": "Transformer encoder, width 512",
}
WORDS, CLASSES, WIDTH = 10_000, 5, 512


def time_batches(name: str, length: int, batch: int, repeats: int, device: str) -> float:
    """The median of the seconds that a batch takes, after two that do not count."""
    import torch
    from networks import build

    torch.manual_seed(1)
    flags = {} if name == "lama_encoder" else {"encoder_embed_dim": WIDTH}
    if name == "lama_encoder_512":
        flags["word_embed_dim"] = WIDTH
    model = build(name.removesuffix("_512"), WORDS, CLASSES, **flags).to(device).train()
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    lengths = torch.full((batch,), length)
    seconds = []
    for _ in range(repeats + 2):
        tokens = torch.randint(4, WORDS, (batch, length)).to(device)
        target = torch.randint(CLASSES, (batch,)).to(device)
        if device == "cuda":
            torch.cuda.synchronize()
        started = time.perf_counter()
        sgd.zero_grad()
        torch.nn.functional.cross_entropy(model(tokens, lengths).logits, target).backward()
        sgd.step()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[2:])


def make_table(epochs: dict[str, dict[int, float]]) -> str:
    """A Markdown table of seconds: a row per length, a column per encoder."""
    header = ["words", *(NAMES[name] for name in epochs)]
    lengths = next(iter(epochs.values()))
    rows = [[str(length), *(f"{epoch[length]:.1f}" for epoch in epochs.values())] for length in lengths]
    return markdown_table.make_table(header, rows, num_left=0)


def draw(epochs: dict[str, dict[int, float]], documents: int, path: Path) -> None:
    """Writes the figure."""
    from muse_plugin.results.figures import COLORS, MARKERS, open_figure

    with open_figure(path, 4.6, 3.2, "--output") as figure:
        axes = figure.add_subplot()
        axes.grid(axis="y")
        for (name, epoch), color, marker in zip(epochs.items(), COLORS, MARKERS, strict=False):
            axes.plot([*epoch], [*epoch.values()], color=color, marker=marker, markersize=5, label=NAMES[name])
        axes.set_ylim(bottom=0)
        axes.set_xticks([*next(iter(epochs.values()))])
        axes.set_xlabel("words of a document")
        axes.set_ylabel(f"seconds per {documents:,} documents")
        axes.legend(frameon=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--output", type=Path, required=True, help="folder for speed.json and speed.svg")
    add("--lengths", type=int, nargs="+", default=[50, 100, 150, 200, 250], help="words of a document")
    add("--documents", type=int, default=5_000, help="of an epoch (default: 5000)")
    add("--batch", type=int, default=32, help="documents of a batch (default: 32)")
    add("--repeats", type=int, default=20, help="batches that are measured (default: 20)")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    args = parser.parse_args()
    numbers = {"lengths": min(args.lengths), "documents": args.documents, "batch": args.batch, "repeats": args.repeats}
    wrong = [f"--{name} must be at least 1, but got {value}." for name, value in numbers.items() if value < 1]
    if wrong:
        print(f"speed: error: {' '.join(wrong)}", file=sys.stderr)
        return 2
    for name in ("fairseq", "muse_plugin"):
        logging.getLogger(name).setLevel(logging.ERROR)
    import torch

    from muse_plugin.results.run_record import describe_run

    if args.device == "cuda" and not torch.cuda.is_available():
        print(
            "speed: error: --device cuda needs a GPU that torch sees, but there is none; use --device cpu.",
            file=sys.stderr,
        )
        return 2
    try:
        args.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"speed: error: {error}", file=sys.stderr)
        return 2
    batches = math.ceil(args.documents / args.batch)
    epochs: dict[str, dict[int, float]] = {name: {} for name in NAMES}
    for length in args.lengths:
        for name in NAMES:
            epochs[name][length] = batches * time_batches(name, length, args.batch, args.repeats, args.device)
            print(f"{NAMES[name]}, {length} words: {epochs[name][length]:.1f} s", flush=True)
    settings = {name: value for name, value in vars(args).items() if name != "output"}
    record = {"seconds_per_epoch": epochs, "settings": settings, **describe_run()}
    (args.output / "speed.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(make_table(epochs))
    try:
        draw(epochs, args.documents, args.output / "speed.svg")
    except ImportError as error:
        print(f"speed: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
