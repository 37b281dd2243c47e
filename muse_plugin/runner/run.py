#!/usr/bin/env python3
"""Translates raw text with the model in this file's folder; needs neither fairseq nor torch.

    python run.py < in.txt > out.txt

or ``Translator("folder").translate(["Wo ist der Bahnhof?"])``. Needs numpy, onnxruntime and what cuts the text (see
README.md). ``muse-plugin export`` copies this file; nothing else in the folder is executed or unpickled.
"""

import argparse
import codecs
import functools
import hashlib
import io
import itertools
import json
import logging
import math
import os
import re
import sys
import unicodedata
from pathlib import Path
from typing import NamedTuple

import numpy as np

logger = logging.getLogger(__name__)
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # or onnxruntime 1.29 and later report to their maker

PAD, EOS, UNK = 1, 2, 3  # as in every dictionary of fairseq
SPECIAL_SYMBOLS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
HARMLESS = {symbol: f"&lt;{symbol[1:-1]}&gt;" for symbol in SPECIAL_SYMBOLS if symbol != "<unk>"}
CLOCK_TIME = re.compile(r"\b(\d{1,2}): (\d\d)\b")  # the detokeniser writes the time of day "2 : 30" as "2: 30"
LONGEST_LINE, LARGEST_SETTINGS = 1 << 22, 1 << 20  # bytes of a line of text, of config.json
LONGEST_WORD = 200  # characters that byte-pair encoding takes at once: its time is quadratic
CHARACTERS_PER_TOKEN = 20  # a line is cut to this many for each token that the model can read
FORMAT_VERSION = 2
WAY_OUT = "export the model again, or copy the whole folder again"


class Hypothesis(NamedTuple):
    """A translation; its score is log2-probability / length ** length penalty."""

    text: str
    tokens: list
    score: float


class Translator:
    """A model, its dictionaries and its text pipeline, read from an exported folder.

    Args:
        folder: what ``muse-plugin export`` wrote; every file is compared with the checksums in ``config.json``.
        threads: of onnxruntime; all cores if None.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a file is damaged or not the one that was exported.
        ImportError: if a package is missing.
    """

    def __init__(self, folder, threads=None):
        import onnxruntime

        self.folder = Path(folder)
        self.config = read_config(self.folder)
        texts = read_json(self.folder / "text_pipeline.json")["texts"]
        self.source, self.target = (Text(self.folder, texts[side]) for side in ("source", "target"))
        self.source_words, self.target_words = (
            read_dictionary(self.folder / self.config[f"{side}_dictionary"]) for side in ("source", "target")
        )
        self.indices = {word: index for index, word in reversed(list(enumerate(self.source_words)))}
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 3, threads or 0
        self.encoder, self.step = (
            load_session(onnxruntime, self.folder / name, options) for name in ("encoder.onnx", "decoder_step.onnx")
        )
        self.longest_source = self.config["max_source_positions"]

    def translate(self, lines, **settings):
        """Translates raw lines, one line for each; see ``translate_nbest`` for the settings."""
        return [best[0].text if best else "" for best in self.translate_nbest(lines, **settings)]

    def translate_nbest(self, lines, nbest=1, batch_size=64, max_tokens=4000, first_line=1, **settings):
        """The ``nbest`` translations of each raw line, the best first; none of a blank line.

        At most ``batch_size`` sentences of ``max_tokens`` source tokens, padding included, are translated at once; of
        each, ``nbest`` is at most ``beam``. Warnings count from ``first_line``; the settings are those of ``search``.
        """
        if isinstance(lines, str):
            raise TypeError(f"lines must be a list of them, but got the text {lines[:60]!r}; give [text] for one.")
        check_settings({"beam": 5, "nbest": nbest, "batch_size": batch_size, "max_tokens": max_tokens, **settings})
        encoded = {i: tokens for i, line in enumerate(lines) if (tokens := self.read_line(line, first_line + i))}
        answers, batch = [[] for _ in lines], []
        for number, following in itertools.pairwise([*sorted(encoded, key=lambda i: len(encoded[i])), None]):
            batch.append(number)
            length = 0 if following is None else len(encoded[following]) + 1
            if following is None or len(batch) == batch_size or (len(batch) + 1) * length > max_tokens:
                found_of = self.search([encoded[own] for own in batch], **settings)
                for own, found in zip(batch, found_of, strict=True):
                    answers[own] = [self.describe(*hypothesis) for hypothesis in found[:nbest]]
                batch = []
        return answers

    def read_line(self, line, number=1):
        """The tokens of a raw line, cut to what the model can read; empty for a blank line."""
        text = clean_line(line)
        kept = text[: CHARACTERS_PER_TOKEN * self.longest_source]
        tokens = self.source.split(kept)
        if len(kept) < len(text) or len(tokens) >= self.longest_source:  # one place is for the end of the sentence
            limit = f"the {self.longest_source} tokens that the model can read"
            logger.warning(f"line {number} is longer than {limit}; only its beginning is translated.")
        return tokens[: self.longest_source - 1]

    def describe(self, score, ids):
        """A hypothesis of ``search`` as text."""
        tokens = [self.target_words[index] for index in ids if index != 0]
        return Hypothesis(self.target.join(tokens), tokens, score)

    def search(self, sentences, beam=5, lenpen=1.0, min_len=1, max_len_a=1.5, max_len_b=30):
        """Beam search as in ``fairseq-generate``, all sentences, lists of tokens, at once.

        A translation has ``min_len`` tokens or more, and ``max_len_a`` times those of the source and its end plus
        ``max_len_b`` at most. Returns (score, ids without the end) of ``beam`` for each, the best first.
        """
        check_settings({"beam": beam, "lenpen": lenpen, "min_len": min_len, "a": max_len_a, "b": max_len_b})
        ids = [[*(self.indices.get(token, UNK) for token in tokens), EOS] for tokens in sentences]
        width, is_left = max(map(len, ids)), self.config["left_pad_source"]
        fill = [[PAD] * (width - len(row)) for row in ids]
        padded = [more * is_left + row + more * (not is_left) for row, more in zip(ids, fill, strict=True)]
        limits = [min(int(max_len_a * len(row) + max_len_b), self.config["max_target_positions"] - 1) for row in ids]
        graphs = self.encoder, self.step, self.config["histories"]
        candidates = min(2 * beam + 2, len(self.target_words))
        found = beam_search(*graphs, np.array(padded, np.int64), np.array(limits), candidates, beam, lenpen, min_len)
        return [[(score / math.log(2), ids) for score, ids, _ in own] for own in found]


def beam_search(encoder, step, histories, tokens, limits, candidates, beam, lenpen, min_len):
    """Beam search of sentences (B, S), padded numbers of words, by the graphs' sessions in onnxruntime.

    ``histories`` has heads and width of each history of the step, ``limits`` (B,) the most tokens of each translation,
    and of each hypothesis the best ``candidates`` words are looked at.

    Returns:
        For each sentence (score, ids without the end, natural log-probability of each and of the end) of ``beam``
        translations at most, the best first; a score is the sum over length ** lenpen.
    """
    from onnxruntime import OrtValue

    tensor = OrtValue.ortvalue_from_numpy
    names = [own.name for own in encoder.get_outputs()]
    encoded = dict(zip(names, encoder.run_with_ort_values(names, {"tokens": tensor(tokens)}), strict=True))
    names = ["scores", "words", "eos", *(f"new.{name}" for name in histories)]
    read = [own.name for own in step.get_inputs()]  # a model without positions, say, does not ask for them
    alive, found = np.arange(len(tokens)), [[] for _ in tokens]  # sentences that are not finished; what has ended
    zeros = {name: np.zeros((len(tokens), h, 0, width), np.float32) for name, (h, width) in histories.items()}
    histories = {name: tensor(value) for name, value in zeros.items()}
    rows, last = np.arange(len(tokens)), np.full(len(tokens), EOS)
    ids, sums = np.zeros((len(tokens), 0), np.int64), np.zeros((len(tokens), 1), np.float32)  # of each hypothesis
    for length in range(int(limits.max()) + 1):
        numbers = {"tokens": last, "position": np.array(length), "order": rows, "candidates": np.array([candidates])}
        numbers = {name: tensor(value.astype(np.int64)) for name, value in numbers.items()}
        known = numbers | encoded | histories
        results = step.run_with_ort_values(names, {name: known[name] for name in read})
        scores, words, ends = (result.numpy().copy() for result in results[:3])
        histories = dict(zip(histories, results[3:], strict=True))
        is_last = np.repeat(length >= limits[alive], len(rows) // len(alive))
        scores[np.isnan(scores) | (words == PAD) | ((words == EOS) & (length < min_len)) | is_last[:, None]] = -np.inf
        scores[is_last, 0], words[is_last, 0] = ends[is_last], EOS

        # The best 2 * beam continuations of each sentence: at most half of them end it.
        totals = (scores + sums[:, -1:]).reshape(len(alive), -1)
        order = np.argsort(-totals, axis=1, kind="stable")[:, : 2 * beam]
        parents = np.arange(len(alive))[:, None] * (len(rows) // len(alive)) + order // scores.shape[1]
        totals, words = (np.take_along_axis(x.reshape(len(alive), -1), order, 1) for x in (totals, words))
        if order.shape[1] < 2 * beam:  # of a tiny dictionary
            missing = ((0, 0), (0, 2 * beam - order.shape[1]))
            totals = np.pad(totals, missing, constant_values=-np.inf)
            words, parents = np.pad(words, missing, constant_values=UNK), np.pad(parents, missing, mode="edge")
        ends_here = (words == EOS) & (totals > -np.inf)
        for row, place in np.argwhere(ends_here[:, :beam]):
            if len(found[alive[row]]) < beam:
                path = [*sums[parents[row, place]], totals[row, place]]
                score = float(path[-1]) / (length + 1) ** lenpen
                found[alive[row]].append((score, ids[parents[row, place]].tolist(), np.diff(path)))

        left = [row for row, number in enumerate(alive) if len(found[number]) < beam and length < limits[number]]
        if not left:
            break
        if len(left) < len(alive):
            encoded = {name: tensor(value.numpy()[left]) for name, value in encoded.items()}
            alive = alive[left]
        totals, words, parents, ends_here = (x[left] for x in (totals, words, parents, ends_here))
        kept = np.argsort(ends_here, axis=1, kind="stable")[:, :beam]  # the best that do not end
        totals = np.where(ends_here, -np.inf, totals).astype(np.float32)
        totals, rows, last = (np.take_along_axis(x, kept, 1).ravel() for x in (totals, parents, words))
        ids, sums = (np.column_stack([x[rows], new]) for x, new in ((ids, last), (sums, totals)))
    return [sorted(own, key=lambda hypothesis: -hypothesis[0]) for own in found]


class Text:
    """Raw lines of one language to tokens and back, as ``text_pipeline.json`` (version 4) says."""

    def __init__(self, folder, settings):
        self.settings, lang, kind = settings, settings["lang"], settings["subwords"]
        self.normalizer = self.moses = self.detokenizer = self.pieces = None
        if settings["normalize"] or settings["tokenizer"] == "moses" or settings["detokenize"]:
            import sacremoses

            self.normalizer = sacremoses.MosesPunctNormalizer(lang=lang) if settings["normalize"] else None
            self.moses = sacremoses.MosesTokenizer(lang=lang) if settings["tokenizer"] == "moses" else None
            self.detokenizer = sacremoses.MosesDetokenizer(lang=lang) if settings["detokenize"] else None
        if kind == "subword-nmt":
            from subword_nmt.apply_bpe import BPE

            codes = (folder / settings["file"]).read_bytes().decode("utf-8", errors="replace")
            self.pieces = BPE(io.StringIO(codes), separator="@@")
        elif kind == "sentencepiece":
            from sentencepiece import SentencePieceProcessor

            self.pieces = SentencePieceProcessor()
            self.pieces.LoadFromSerializedProto((folder / settings["file"]).read_bytes())

    def split(self, line):
        """The tokens of a raw line."""
        line = clean_line(line)
        line = line if self.normalizer is None else self.normalizer.normalize(line)
        if self.moses is not None:
            dashes, escape = self.settings["aggressive_hyphens"], self.settings["escape"]
            line = self.moses.tokenize(line, aggressive_dash_splits=dashes, return_str=True, escape=escape)
        words = clean_line(line).split()
        words = [word.lower() for word in words] if self.settings["lower_case"] else words
        words = [HARMLESS.get(word, word) for word in words]
        if self.settings["subwords"] == "sentencepiece":
            pieces = self.pieces.EncodeAsPieces(" ".join(words))
            return [part for piece in pieces for part in (piece if piece in SPECIAL_SYMBOLS else (piece,))]
        return words if self.pieces is None else [piece for word in words for piece in self.cut(word)]

    def cut(self, word):
        """The sub-words of a word by byte-pair encoding."""
        if len(self.pieces.cache) > 50_000:  # words
            self.pieces.cache.clear()
        cut = [self.pieces.segment_tokens([word[i : i + LONGEST_WORD]]) for i in range(0, len(word), LONGEST_WORD)]
        cut = [p[:-1] + "@@ ".join(p[-1]).split() if p[1:] and p[-1] in SPECIAL_SYMBOLS else p for p in cut]
        return [piece + "@@" * (piece is part[-1] and part is not cut[-1]) for part in cut for piece in part]

    def join(self, tokens):
        """The text of tokens."""
        text = " ".join(tokens)
        if self.settings["subwords"] == "sentencepiece":
            text = "".join(tokens).replace("\u2581", " ")
        elif self.settings["subwords"] == "subword-nmt":
            text = (text + " ").replace("@@ ", "")
        words = text.split()
        if not words or self.detokenizer is None:
            return clean_line(" ".join(words))
        return CLOCK_TIME.sub(r"\1:\2", clean_line(self.detokenizer.detokenize(words)))


def clean_line(line):
    """One printable line: every kind of white space is a single space, invisible characters are left out."""
    return " ".join("".join(map(clean_character, line)).split())


@functools.lru_cache(maxsize=1 << 16)
def clean_character(character):
    """What stands for a character in a clean line."""
    clean = {"Cc": " ", "Zl": " ", "Zp": " ", "Zs": " ", "Cf": "", "Cs": "\N{REPLACEMENT CHARACTER}"}
    return clean.get(unicodedata.category(character), character)


def check_settings(settings):
    """Raises ValueError unless all are numbers in their range, and ``nbest`` at most ``beam``."""
    for name, value in settings.items():
        least = {"lenpen": -math.inf, "min_len": 0, "a": 0, "b": 0, "max_len_a": 0, "max_len_b": 0}.get(name, 1)
        if not isinstance(value, (int, float)) or not math.isfinite(value) or value < least:
            raise ValueError(f"{name} must be a number of at least {least}, but got {value!r}.")
    if settings.get("nbest", 1) > settings.get("beam", 1):
        raise ValueError("nbest must be at most beam, but got {nbest} and beam {beam}; raise beam.".format(**settings))


def read_json(path):
    """The object in a JSON file that is missing, damaged or something else with one sentence."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist, but an exported folder needs it; {WAY_OUT}.")
    if path.stat().st_size > LARGEST_SETTINGS:
        raise ValueError(f"{path} must have at most {LARGEST_SETTINGS:,} bytes, but has more; {WAY_OUT}.")
    try:
        content = json.loads(path.read_bytes().decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be a JSON file, but reading it gave '{error}'; {WAY_OUT}.") from error
    if isinstance(content, dict):
        return content
    raise ValueError(f"{path} must hold a JSON object, but holds a {type(content).__name__}; {WAY_OUT}.")


def read_config(folder):
    """Reads ``config.json`` and compares every file that it names with its checksum."""
    path = folder / "config.json"
    config = read_json(path)
    kinds = {"source_dictionary": str, "target_dictionary": str, "left_pad_source": bool, "histories": dict}
    kinds |= {"max_source_positions": int, "max_target_positions": int, "files": dict}
    if (found := config.get("format_version")) != FORMAT_VERSION:
        raise ValueError(f"{path} must have format_version {FORMAT_VERSION}, but has {repr(found)[:60]}; {WAY_OUT}.")
    faults = [f"{name!r} is no {kind.__name__}" for name, kind in kinds.items() if type(config.get(name)) is not kind]
    if not faults:
        needed = {"encoder.onnx", "decoder_step.onnx", "text_pipeline.json"}
        needed |= {config["source_dictionary"], config["target_dictionary"]}
        faults += [f"'files' lacks {name[:60]!r}" for name in sorted(needed - {*config["files"]})]
        faults += [f"{n[:60]!r} is no name of a file" for n in config["files"] if n in ("", "..") or n != Path(n).name]
        odd = [x for x in config["histories"].values() if not re.fullmatch(r"\[[1-9]\d*, [1-9]\d*\]", repr(x))]
        faults += ["a history has not two sizes above 0"] * len(odd)
        faults += [f"{name!r} is below 2" for name in kinds if kinds[name] is int and config[name] < 2]
    if faults:
        raise ValueError(f"{path} must be as it was written, but {'; '.join(faults[:5])}; {WAY_OUT}.")
    for name, sha256 in config["files"].items():
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name} does not exist, but {path} names it; {WAY_OUT}.")
        digest = hashlib.sha256()
        with (folder / name).open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        if digest.hexdigest() != sha256:
            found = f"sha256 {digest.hexdigest()[:12]}... in place of {ascii(sha256)[1:13]}..."
            raise ValueError(f"{folder / name} must be the file that was exported, but has {found}; {WAY_OUT}.")
    return config


def read_dictionary(path):
    """The words of a dictionary, in the order of their numbers."""
    lines = path.read_bytes().decode("utf-8").split("\n")
    return [*SPECIAL_SYMBOLS[:4], *(line.rpartition(" ")[0] for line in lines if line)]


def load_session(onnxruntime, path, options):
    """Opens a graph."""
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of classes without a common name
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"onnxruntime {onnxruntime.__version__} cannot load {path}: {reason}; update it.") from error


def read_lines(stream):
    """Yields the lines of a byte stream, whatever they hold."""
    lines = iter(lambda: stream.readline(LONGEST_LINE), b"")
    for number, raw in enumerate(lines, start=1):
        is_cut, rest = False, raw
        while len(rest) == LONGEST_LINE and not rest.endswith(b"\n"):
            rest = stream.readline(LONGEST_LINE)
            is_cut |= rest not in (b"", b"\n")
        if is_cut:
            logger.warning(f"line {number} is longer than {LONGEST_LINE} bytes; only its beginning is read.")
        raw = raw.removesuffix(b"\n").removesuffix(b"\r")
        try:
            yield codecs.utf_8_decode(raw, "strict", not is_cut)[0]  # half a character at a cut is left out
        except UnicodeDecodeError:
            logger.warning(f"line {number} is not valid UTF-8; its invalid bytes were replaced by U+FFFD.")
            yield codecs.utf_8_decode(raw, "replace", not is_cut)[0]


def main():
    """Translates standard input to standard output."""
    parser = argparse.ArgumentParser(description="Translate raw text, one sentence a line, by the model in a folder.")
    add = parser.add_argument
    add("--folder", default=Path(__file__).resolve().parent, type=Path, help="exported folder (default: of this file)")
    add("--beam", type=int, default=5, help="beam size (default: 5)")
    add("--lenpen", type=float, default=1.0, help="length penalty: above 1 favours long translations (default: 1)")
    add("--min-len", type=int, default=1, help="fewest tokens of a translation (default: 1)")
    add("--max-len-a", type=float, default=1.5, help="most tokens: this times those of the source ... (default: 1.5)")
    add("--max-len-b", type=float, default=30, help="... plus this many (default: 30)")
    add("--nbest", type=int, help="write this many lines for each: its number, score (log2), translation; tabs between")
    add("--batch-size", type=int, default=64, help="most sentences at once (default: 64)")
    add("--max-tokens", type=int, default=4000, help="most source tokens at once (default: 4000)")
    add("--threads", type=int, help="threads of onnxruntime (default: all cores)")
    settings = vars(parser.parse_args())
    folder, threads, nbest = map(settings.pop, ("folder", "threads", "nbest"))
    check_settings({**settings, "nbest": 1 if nbest is None else nbest, "threads": threads or 1})
    translator = Translator(folder, threads)
    lines, first = read_lines(sys.stdin.buffer), 1
    while block := list(itertools.islice(lines, 1 if sys.stdin.isatty() else 1000)):
        answers = translator.translate_nbest(block, nbest or 1, first_line=first, **settings)
        for number, best in enumerate(answers, start=first):
            rows = "".join(f"{number}\t{one.score:.4f}\t{one.text}\n" for one in best)
            sys.stdout.buffer.write((rows if nbest else f"{best[0].text if best else ''}\n").encode("utf-8"))
        sys.stdout.buffer.flush()
        first += len(block)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # nobody reads the output any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"run.py: error: {error}")
