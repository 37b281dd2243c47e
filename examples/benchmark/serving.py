"""Measures muse-plugin serve with several clients at once, next to translating the same text without a server.

    python examples/benchmark/serving.py --path runs/quickstart/model --text test.de --clients 1 8 32 128
    python examples/benchmark/serving.py --path exported --text test.de --clients 32 --rounds 1 --requests 20000

Each line of the text is a request. The rounds of all numbers of clients and of translation without a server take turns,
so that a busy moment slows all of them; numbers are medians of the rounds. Without a server, all lines are translated
in one call, and in groups of as many lines as there are clients: no server that waits for its clients is faster than
these. The server is a process of its own. Both have the same number of threads, OMP_NUM_THREADS (default: 1).
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection
from itertools import count
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "recipe"))

import markdown_table
from tqdm import tqdm

os.environ.setdefault("OMP_NUM_THREADS", "1")  # which torch reads when it is imported

from muse_plugin.results.run_record import describe_run
from muse_plugin.serve.serve import load_model
from muse_plugin_command import cli


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", required=True, help="a model or an exported folder, as for muse-plugin serve")
    parser.add_argument("--text", required=True, type=Path, help="raw sentences, one a line")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--requests", type=int, default=1000, help="of a round; lines repeat (default: 1000)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    return parser.parse_args()


class Server:
    """``muse-plugin serve`` in a process of its own."""

    def __init__(self, flags):
        code = "import sys; from muse_plugin_command import cli; sys.exit(cli.main(sys.argv[1:]))"
        self.process = subprocess.Popen([sys.executable, "-c", code, *flags], stdout=subprocess.PIPE, text=True)
        found = re.search(r"http://([\d.]+):(\d+)/", self.process.stdout.readline())
        if found is None:
            sys.exit("the server did not start; see above.")
        self.address = found[1], int(found[2])
        self.languages = self.ask(HTTPConnection(*self.address), "GET", "/languages")
        self.answered = 0
        self.memory = [self.read_memory()]

    @staticmethod
    def ask(connection, method, path, **fields):
        connection.request(method, path, json.dumps(fields), {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())

    def read_memory(self):
        """(requests answered, resident memory in MiB); 0 where the system does not tell."""
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return self.answered, 0
        return self.answered, int(re.search(r"VmRSS:\s+(\d+)", status)[1]) >> 10

    def drive(self, lines, clients):
        """Lets clients send all lines; returns the translations, the seconds of each request, and of all."""
        numbers, results, seconds = count(), [None] * len(lines), [0.0] * len(lines)
        marks = {len(lines) * part // 10 for part in range(1, 11)}
        before = self.answered
        source, target = self.languages[0]["code"], self.languages[0]["targets"][0]

        def work():
            connection = HTTPConnection(*self.address)
            while (number := next(numbers)) < len(lines):
                start = time.perf_counter()
                answer = self.ask(connection, "POST", "/translate", q=lines[number], source=source, target=target)
                seconds[number] = time.perf_counter() - start
                self.answered = max(self.answered, before + number + 1)
                results[number] = answer["translatedText"]
                if number + 1 in marks:
                    self.memory.append(self.read_memory())

        threads = [threading.Thread(target=work) for _ in range(clients)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results, seconds, time.perf_counter() - start

    def end(self):
        self.process.terminate()
        self.process.wait()


def translate_in_groups(model, lines, size):
    """Translates groups of so many lines in turn; returns lines per second, and the seconds of each group."""
    seconds = []
    for first in range(0, len(lines), size):
        start = time.perf_counter()
        model.translate(lines[first : first + size])
        seconds.append(time.perf_counter() - start)
    return len(lines) / sum(seconds), seconds


def main():
    args = parse_arguments()
    text = args.text.read_text(encoding="utf-8").splitlines()
    lines = [text[i % len(text)] for i in range(args.requests)]
    flags = ["serve", "--path", args.path, "--port", "0", "--cpu", "--split", "lines"]
    model = load_model(cli.build_parser("serve").parse_args(flags))
    server = Server(flags)
    rows = {clients: [] for clients in args.clients}
    grouped = {clients: [] for clients in args.clients}
    offline, alone = [], []
    load = [os.getloadavg()[0]]
    try:
        for _ in tqdm(range(args.rounds), desc="rounds"):
            start = time.perf_counter()
            expected = model.translate(lines)
            offline.append(len(lines) / (time.perf_counter() - start))
            alone += translate_in_groups(model, lines[:50], 1)[1]
            for clients in args.clients:
                grouped[clients].append(translate_in_groups(model, lines, clients)[0])
                results, seconds, total = server.drive(lines, clients)
                if results.count(None):
                    sys.exit(f"{results.count(None)} of {len(lines)} requests were not answered.")
                same = sum(a == b for a, b in zip(results, expected, strict=True))
                rows[clients].append((len(lines) / total, statistics.quantiles(seconds, n=20), same))
            load.append(os.getloadavg()[0])
    finally:
        server.end()
    best = statistics.median(offline)
    print(f"without a server: {best:.1f} sentences/s, {1000 * statistics.median(alone):.0f} ms for one alone")
    header = "clients, sentences/s, of all in one call, of groups, median ms, p95 ms, the same translations".split(", ")
    numbers, table = [], []
    for clients, rounds in rows.items():
        speed = statistics.median(row[0] for row in rounds)
        ratio, of_groups = (
            statistics.median(row[0] / base for row, base in zip(rounds, bases, strict=True))
            for bases in (offline, grouped[clients])
        )
        middle, late = (1000 * statistics.median(row[1][i] for row in rounds) for i in (9, 18))
        same = min(row[2] for row in rounds)
        numbers.append({"clients": clients, "speed": speed, "ratio": ratio, "of_groups": of_groups})
        numbers[-1] |= {"p50": middle, "p95": late, "same": same}
        cells = [f"{speed:.1f}", f"{ratio:.0%}", f"{of_groups:.0%}", f"{middle:.0f}", f"{late:.0f}"]
        table.append([str(clients), *cells, f"{same} of {len(lines)}"])
    print(markdown_table.make_table(header, table, num_left=0))
    shown = [*server.memory[:: -(-len(server.memory) // 10)], server.memory[-1]]
    print("resident memory of the server, MiB:", ", ".join(f"{mib} after {answers:,}" for answers, mib in shown))
    print(f"load of the machine, before and after each round: {', '.join(f'{one:.1f}' for one in load)}")
    if args.json:
        settings = {name: str(value) for name, value in vars(args).items()}
        record = {"settings": settings, "offline": best, "rows": numbers}
        record |= {"memory": server.memory, "load": load, "run": describe_run()}
        args.json.write_text(json.dumps(record, indent=2, default=str) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
