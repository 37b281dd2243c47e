"""Scores the translations of the quickstart, shows ten of them, and says whether the score is the expected one.

Run by run.sh: ``python report.py --run-dir RUN_DIR --expect 30 36``. Reads what fairseq-generate wrote, checks that
every test sentence was translated, and writes ``result.json`` with scores, settings, versions, times and hardware.
"""

import argparse
import json
import os
import shlex
import sys
from pathlib import Path

import sacrebleu

from muse_plugin.evaluation.expectation import judge
from muse_plugin.evaluation.generation_log import check_complete, read_generation_log
from muse_plugin.files.lines import read_lines
from muse_plugin.results.run_record import describe_run
from muse_plugin.text.text_pipeline import TextPipeline

NUM_SHOWN = 10


def read_times(path: Path) -> dict[str, int]:
    times: dict[str, int] = {}
    for line in read_lines(path, "--run-dir"):
        name, seconds = line.split("\t")
        times[name] = times.get(name, 0) + int(seconds)
    return times


def show_examples(sources: list[str], references: list[str], translations: list[str]) -> None:
    step = max(1, len(sources) // NUM_SHOWN)
    chosen = range(step // 2, len(sources), step)[:NUM_SHOWN]
    print(f"\n{len(chosen)} of {len(sources)} test sentences, evenly spaced:\n")
    for i in chosen:
        print(f"  German       {sources[i]}\n  reference    {references[i]}\n  translation  {translations[i]}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--expect", type=float, nargs=2, metavar=("LOW", "HIGH"), help="BLEU interval; else no verdict")
    args = parser.parse_args()
    run_dir: Path = args.run_dir

    sources = read_lines(run_dir / "text" / "test.raw.de", "--run-dir")
    references = read_lines(run_dir / "text" / "test.raw.en", "--run-dir")
    log = read_generation_log(run_dir / "generated" / "generate-test.txt", "the output of fairseq-generate")
    check_complete(log, len(references), "the output of fairseq-generate")
    pipeline = TextPipeline.load(run_dir / "model")
    translations = [pipeline.decode(hypothesis) for hypothesis in log.in_order("H") or []]
    (run_dir / "translations.en").write_bytes("".join(line + "\n" for line in translations).encode("utf-8"))

    bleu_metric, chrf_metric = sacrebleu.BLEU(), sacrebleu.CHRF()
    bleu = bleu_metric.corpus_score(translations, [references])
    chrf = chrf_metric.corpus_score(translations, [references])
    times = read_times(run_dir / "times.tsv")

    show_examples(sources, references, translations)
    print(f"BLEU {bleu.score:.1f}   ({bleu_metric.get_signature()})")
    print(f"chrF {chrf.score:.1f}   ({chrf_metric.get_signature()})")
    print(
        f"time {sum(times.values())} s after set-up ({', '.join(f'{name} {value}' for name, value in times.items())})"
    )

    verdict = {"passed": None, "sentence": "No verdict on the score: this was not the run with the default settings."}
    if args.expect:
        verdict = judge("bleu", bleu.score, *args.expect)
    result = {
        "bleu": round(bleu.score, 2),
        "bleu_signature": str(bleu_metric.get_signature()),
        "chrf": round(chrf.score, 2),
        "chrf_signature": str(chrf_metric.get_signature()),
        "test_sentences": len(references),
        "expected_bleu": args.expect,
        "passed": verdict["passed"],
        "settings": (run_dir / "settings.txt").read_text(encoding="utf-8").strip(),
        "train_command": (run_dir / "train-command.txt").read_text(encoding="utf-8").strip(),
        "seconds": times,
        **describe_run(),
    }
    (run_dir / "result.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")

    print(f"\n{verdict['sentence']}\n\nAll numbers and settings: {run_dir / 'result.json'}\nA sentence of your own:\n")
    print(f"  echo 'Ich habe Hunger.' | muse-plugin translate --path {shlex.quote(str(run_dir / 'model'))}\n")
    if "VIRTUAL_ENV" not in os.environ and (Path(sys.prefix) / "bin" / "activate").is_file():
        print(f"(after: source {shlex.quote(str(Path(sys.prefix) / 'bin' / 'activate'))})\n")
    return 1 if verdict["passed"] is False else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError) as error:
        print(f"report: error: {error}", file=sys.stderr)
        sys.exit(2)
