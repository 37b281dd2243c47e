"""Pairs the training text with its translations: ``python gather.py LOGS --source TRAIN.de --outputs OUT.de OUT.en``.

Called by prepare.sh. The logs are those of ``fairseq-generate`` on the parts of the text; all sentences must be there.
Pairs are left out where the teacher wrote nothing, or a word that it does not know.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from muse_plugin.evaluation.generation_log import read_generation_log
from muse_plugin.files.atomic_files import open_atomically
from muse_plugin.files.lines import read_lines


def gather(logs: Sequence[Path], source: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs of source and translation, in the order of the source.

    Args:
        logs: of all parts.
        source: every sentence, in subwords.

    Raises:
        ValueError: if a sentence has no translation, or there are more translations than sentences.
    """
    translations: dict[int, str] = {}
    for path in logs:
        translations |= read_generation_log(path, "LOGS").lines["H"]
    missing = [number for number in range(len(source)) if number not in translations]
    if missing or len(translations) != len(source):
        raise ValueError(
            f"the parts must hold a translation of each of the {len(source)} sentences, but have {len(translations)}"
            f"{f', and none of line {missing[0] + 1}' if missing else ''}; delete the folder of the data and run "
            "prepare.sh again."
        )
    pairs = ((line, translations[number]) for number, line in enumerate(source))
    return [(line, text) for line, text in pairs if text.strip() and "<unk>" not in text.split()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("logs", type=Path, nargs="+", help="what fairseq-generate wrote")
    parser.add_argument("--source", type=Path, required=True, help="the text that was translated, in subwords")
    parser.add_argument("--outputs", type=Path, nargs=2, required=True, metavar=("SOURCE", "TARGET"))
    args = parser.parse_args()
    try:
        source = list(read_lines(args.source, "--source"))
        pairs = gather(args.logs, source)
    except (OSError, ValueError) as error:
        sys.exit(f"gather.py: error: {error}")
    for side, path in enumerate(args.outputs):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_atomically(path) as file:
            file.write("".join(f"{pair[side]}\n" for pair in pairs).encode())
    sys.stdout.write(f"{len(pairs)} of {len(source)} sentences have a translation to learn from\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
