#!/usr/bin/env python3
"""How fast sentences are encoded once and matched many times, and in how much memory.

    python examples/head_wise_match/throughput.py --json results.json --markdown results.md
    python examples/head_wise_match/throughput.py --path RUN --sizes 1000 3000 --corpus-rows 0

Three measurements, each in a process of its own: encoding sentences; n sentences against n for each of --sizes; queries
against a corpus of --corpus-rows vectors that stays on the disk. Without --path a model with random weights is made:
speed does not depend on what was learnt. Stored vectors are random too. Times are without starting and loading; memory
is the most that the process held, with and without what it held once the model was loaded.

The corpus takes 4 x --corpus-rows x the width of a vector in bytes in --work: 1.2 GB for a million of width 300.
"""

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "recipe"))

import markdown_table

ROOT = Path(__file__).resolve().parents[2]
ROWS_AT_ONCE = 1 << 24  # numbers that are made up at a time
COLUMNS = ("measurement", "case", "width", "seconds", "per second", "peak MiB", "above the model MiB")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--path", type=Path, help="a trained model of pairs (default: random weights)")
    parser.add_argument("--arch", default="sentence_transformer", help="of the model with random weights")
    parser.add_argument("--arch-flags", default="", help="further flags of fairseq-train for it, in one string")
    parser.add_argument("--vocabulary", type=int, default=20000, help="its words")
    parser.add_argument("--sentences", type=int, default=10000, help="sentences to encode; 0 leaves this out")
    parser.add_argument("--words", type=int, default=20, help="words of a sentence are 1 to twice this, less 1")
    parser.add_argument("--batch-size", type=int, default=128, help="sentences encoded at once")
    parser.add_argument("--sizes", type=int, nargs="*", default=[1000, 3000, 10000], help="n of n against n")
    parser.add_argument("--corpus-rows", type=int, default=1_000_000, help="vectors to search; 0 leaves this out")
    parser.add_argument("--queries", type=int, default=10, help="of the search")
    parser.add_argument("--top", type=int, default=10, help="matches per query")
    parser.add_argument("--first-stages", nargs="*", default=["none", "cosine"], help="none, cosine, faiss")
    parser.add_argument("--memory", type=int, default=1024, help="as of muse-plugin match, in MiB")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16"], help="of stored vectors")
    parser.add_argument("--threads", type=int, help="of PyTorch (default: what it chooses)")
    parser.add_argument("--cpu", action="store_true", help="do not use the GPU")
    parser.add_argument("--work", type=Path, help="an existing folder for temporary files (default: the system's)")
    parser.add_argument("--json", type=Path, help="write every number, and the machine, here")
    parser.add_argument("--markdown", type=Path, help="write the table here (it is printed in any case)")
    return parser.parse_args()


# ---- what runs in a process of its own -------------------------------------------------------------------------------


def make_model(order):
    """Writes a data set of random pairs and a checkpoint of random weights."""
    import torch
    from fairseq import checkpoint_utils, options, tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    from muse_plugin_command import cli

    folder = Path(order["folder"])
    words = [f"w{i}" for i in range(order["vocabulary"])]
    rows = [
        f"{' '.join(words[i : i + 50])}\t{words[0]}\t{('no', 'yes')[i // 50 % 2]}" for i in range(0, len(words), 50)
    ]
    rows += ["w0\tw0\tno", "w0\tw0\tyes"]  # both labels, however few the words
    (folder / "train.tsv").write_text("\n".join(rows) + "\n")
    files = ["--train", str(folder / "train.tsv"), "--valid", str(folder / "train.tsv")]
    form = ["--format", "tsv:text=1,pair=2,label=3", "--output", str(folder / "data")]
    if cli.main(["prepare-text", *files, *form]) != 0:
        raise SystemExit("the random data could not be prepared")
    task = "muse_sentence_classification"
    flags = ["--task", task, "--criterion", task, "--optimizer", "adam", "--cpu", "--arch", order["arch"]]
    flags += order["arch_flags"]
    args = options.parse_args_and_arch(options.get_training_parser(), [str(folder / "data"), *flags])
    cfg = convert_namespace_to_omegaconf(args)
    torch.manual_seed(1)
    model = tasks.setup_task(cfg.task).build_model(cfg.model)
    state = {
        "cfg": cfg,
        "args": None,
        "model": model.state_dict(),
        "extra_state": {"train_iterator": {"epoch": 1}},
        "optimizer_history": [
            {"optimizer_name": "FairseqAdam", "lr_scheduler_state": {"best": None}, "num_updates": 0}
        ],
        "task_state": {},
        "last_optimizer_state": None,
    }
    checkpoint_utils.torch_persistent_save(state, str(folder / "checkpoint_best.pt"))
    return {}


def load_model(order):
    import torch

    from muse_plugin.matching.pair_model import PairModel

    if order["threads"] is not None:
        torch.set_num_threads(order["threads"])
    return PairModel.load(order["path"], None, order["batch_size"], None, order["cpu"])


def make_vectors(model, folder, rows, dtype):
    """Stores random vectors as if the model had made them."""
    import torch

    from muse_plugin.matching.cache_writer import CacheWriter
    from muse_plugin.matching.vector_cache import CacheMeta, VectorCache

    generator = torch.Generator().manual_seed(rows)
    meta = CacheMeta(model.fingerprint(), "random", False, rows, model.width, dtype, model.max_words)
    step = max(1, ROWS_AT_ONCE // model.width)
    with CacheWriter(folder, meta) as writer:
        for start in range(writer.meta.done, rows, step):
            size = min(step, rows - start)
            numbers = [str(start + i + 1) for i in range(size)]
            writer.append(torch.randn(size, model.width, generator=generator), numbers)
        writer.finish()
    return VectorCache(folder)


def store(order):
    """Stores vectors for a later process, so that making them up does not count as its memory."""
    model = load_model(order)
    make_vectors(model, Path(order["cache"]), order["rows"], order["dtype"])
    return {}


def measure_encoding(order):
    import random

    from muse_plugin.matching.encode import encode_file

    model = load_model(order)
    symbols = [word for word in model.task.source_dictionary.symbols[4:] if not word.startswith("madeupword")]
    draw = random.Random(1)
    source = Path(order["folder"]) / "sentences.txt"
    with source.open("w", encoding="utf-8") as file:
        for _ in range(order["rows"]):
            file.write(" ".join(draw.choices(symbols, k=draw.randint(1, 2 * order["words"] - 1))) + "\n")
    before, start = read_peak(), time.perf_counter()
    encode_file(model, source, Path(order["cache"]), dtype=order["dtype"])
    return report(order["rows"], time.perf_counter() - start, before, model.width)


def measure_pairs(order):
    from muse_plugin.matching.score import score_all
    from muse_plugin.matching.vector_cache import plan_blocks

    model = load_model(order)
    cache = model.open_cache(Path(order["cache"]))
    blocks = plan_blocks(order["memory"], model.width, len(model.outputs))
    target = Path(order["folder"]) / "all.npy"
    before, start = read_peak(), time.perf_counter()
    score_all(model, cache, cache, 0, target, blocks)
    seconds = time.perf_counter() - start
    target.unlink()
    return report(len(cache) ** 2, seconds, before, model.width)


def measure_search(order):
    import torch

    from muse_plugin.matching.search import Finder

    model = load_model(order)
    cache = model.open_cache(Path(order["cache"]))
    queries = torch.randn(order["queries"], model.width, generator=torch.Generator().manual_seed(1))
    before = read_peak()
    finder = Finder(model, cache, order["top"], 0, order["stage"], None, order["memory"])  # makes an index, if any
    start = time.perf_counter()
    for block in queries.split(finder.blocks.queries):
        finder.find(block)
    return report(order["queries"], time.perf_counter() - start, before, model.width)


def describe(order):
    from muse_plugin.results.run_record import describe_run

    return describe_run()


def report(count, seconds, before, width):
    peak = read_peak()
    return {"width": width, "count": count, "seconds": seconds, "peak_mib": peak, "above_model_mib": peak - before}


def read_peak():
    """The most memory that this process has held, in MiB."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass  # not Linux
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024


ORDERS = {
    function.__name__: function
    for function in (make_model, store, measure_encoding, measure_pairs, measure_search, describe)
}


# ---- what the user starts --------------------------------------------------------------------------------------------


def run_order(name, order):
    """Runs a function of this file in a new process; its result is the last line that it prints."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    command = [sys.executable, __file__, "--order", name, json.dumps(order, default=str)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{name} ended with exit code {done.returncode}; its message is above.")
    return json.loads(done.stdout.splitlines()[-1])


def measure(args, folder):
    """Yields (measurement, case, result)."""
    path = args.path
    if path is None:
        path = folder
        flags = shlex.split(args.arch_flags)
        run_order(
            "make_model", {"folder": folder, "vocabulary": args.vocabulary, "arch": args.arch, "arch_flags": flags}
        )
    order = {name: getattr(args, name) for name in ("batch_size", "cpu", "threads", "memory", "dtype", "words", "top")}
    order.update(path=path, folder=folder)
    if args.sentences:
        order.update(rows=args.sentences, cache=folder / "sentences")
        yield "encode", f"{args.sentences:,} sentences", run_order("measure_encoding", order)
    for size in args.sizes:
        order.update(rows=size, cache=folder / f"vectors_{size}")
        run_order("store", order)
        yield "all pairs", f"{size:,} x {size:,}", run_order("measure_pairs", order)
    if args.corpus_rows:
        order.update(rows=args.corpus_rows, cache=folder / "corpus", queries=args.queries)
        run_order("store", order)
        for stage in args.first_stages:
            case = f"{args.queries:,} queries in {args.corpus_rows:,}, first stage {stage}"
            yield "search", case, run_order("measure_search", {**order, "stage": stage})


def format_row(measurement, case, result):
    rate = result["count"] / result["seconds"]
    numbers = [f"{result['width']:,}", f"{result['seconds']:.2f}", f"{rate:,.1f}" if rate < 100 else f"{rate:,.0f}"]
    memory = [f"{result[name]:,.0f}" for name in ("peak_mib", "above_model_mib")]
    return markdown_table.make_row([measurement, case, *numbers, *memory])


def main():
    args = parse_arguments()
    for path in (args.json, args.markdown):
        if path is not None and not path.absolute().parent.is_dir():
            raise SystemExit(f"results must be in a folder that exists, but got {path}; make the folder first.")
    lines = [markdown_table.make_table(COLUMNS, [], num_left=2)]
    print(lines[0], flush=True)
    results = []
    with tempfile.TemporaryDirectory(dir=args.work) as name:
        for measurement, case, result in measure(args, Path(name)):
            lines.append(format_row(measurement, case, result))
            print(lines[-1], flush=True)
            results.append({"measurement": measurement, "case": case, **result})
        machine = run_order("describe", {})
    settings = {name: value for name, value in vars(args).items() if name not in ("json", "markdown", "work")}
    if args.json is not None:
        content = {"settings": settings, "run": machine, "results": results}
        args.json.write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")
    if args.markdown is not None:
        args.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--order"]:
        print(json.dumps(ORDERS[sys.argv[2]](json.loads(sys.argv[3]))))
    else:
        main()
