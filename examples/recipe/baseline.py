"""Floors for the tables of recipes, by kept libraries: ``python baseline.py linear|crf DATA/bin RUN``.

What a network reads, a simple model reads too: the words of the prepared data, up to as many of a text. ``linear`` is
naive Bayes or logistic regression (scikit-learn) on words and pairs of neighbours, of two texts on the words that both
or one of them has. ``crf`` tags words by a conditional random field (python-crfsuite) on words, affixes and
shapes around each. Model and settings are chosen on ``valid``. Answers to all splits are written as
``muse-plugin predict --split`` writes them, RUN/predictions/SPLIT.jsonl, for ``muse-plugin score-labels``.
"""

import argparse
import functools
import itertools
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from muse_plugin.evaluation.label_scores import score_entities, score_labels
from muse_plugin.files.atomic_files import open_atomically
from muse_plugin.tasks.sentence_classification import MuseSentenceClassificationTask, SentenceClassificationConfig
from muse_plugin.tasks.sequence_tagging import MuseSequenceTaggingTask, SequenceTaggingConfig
from muse_plugin.text.bio_tags import is_bio_tag
from muse_plugin.text.text_settings import load_text_settings

Words = list[str]
CRF_GRID = ({"c1": 0.1, "c2": 0.01}, {"c1": 0.01, "c2": 0.1}, {"c1": 0.5, "c2": 0.01})
CRF_ITERATIONS = 100
NEIGHBOURS = (-2, -1, 1, 2)


class Split(NamedTuple):
    """One split.

    Attributes:
        texts: the words of each example, of one text or of two.
        targets: a label, or the tag of each word.
    """

    texts: list[tuple[Words, ...]]
    targets: list[Any]


def main(words: Sequence[str]) -> int:
    """Trains, chooses, and answers."""
    parser = argparse.ArgumentParser(description="Trains a simple model and writes its answers.")
    parser.add_argument("kind", choices=("linear", "crf"))
    parser.add_argument("data", type=Path, help="folder that prepare-text made")
    parser.add_argument("run", type=Path, help="gets predictions/SPLIT.jsonl")
    parser.add_argument("--max-words", type=int, default=512, help="words read of a text (default: 512)")
    args = parser.parse_args(words)
    try:
        run(args)
    except (ImportError, OSError, ValueError) as error:
        print(f"baseline.py: error: {error}", file=sys.stderr)
        return 2
    return 0


def run(args: argparse.Namespace) -> None:
    """The body of ``main``.

    Raises:
        ImportError: if the package of the model is missing.
        ValueError: if the data are of another kind than the model, or have no validation split.
    """
    _, record = load_text_settings(args.data)
    tags = record.tags
    if record.numbers or tags != (args.kind == "crf"):
        have = "numbers" if record.numbers else "a tag for each word" if tags else "a label for each text"
        raise ValueError(f"BASELINE=crf is for tags and BASELINE=linear for labels, but {args.data} has {have}.")
    if "valid" not in record.splits:
        raise ValueError(f"a floor chooses its settings on the split valid, but {args.data} has none; prepare one.")
    splits = {name: read_split(args.data, name, tags, args.max_words) for name in record.splits}
    best, best_score, best_answers = "", -1.0, {}
    for name, answer in (iterate_crfs if tags else iterate_linear)(splits["train"]):
        score = measure(answer(splits["valid"].texts), splits["valid"].targets, tags)
        print(f"valid {score:.2f}: {name}", flush=True)
        if score > best_score:
            best, best_score = name, score
            best_answers = {split: answer(rows.texts) for split, rows in splits.items()}
    print(f"chosen: {best}")
    (args.run / "predictions").mkdir(parents=True, exist_ok=True)
    for split, answers in best_answers.items():
        with open_atomically(args.run / "predictions" / f"{split}.jsonl") as file:
            for (texts, target), fields in zip(zip(*splits[split], strict=True), answers, strict=True):
                row = {**fields, "target": target, "length": max(map(len, texts))}
                file.write((json.dumps(row, ensure_ascii=False) + "\n").encode())


def read_split(folder: Path, split: str, tags: bool, max_words: int) -> Split:
    """Reads the words of a split; as they were written where the data have their characters."""
    task: Any
    if tags:
        task = MuseSequenceTaggingTask(SequenceTaggingConfig(data=str(folder), max_words=sys.maxsize))
    else:
        task = MuseSentenceClassificationTask(SentenceClassificationConfig(data=str(folder), max_words=max_words))
    dataset = task.load_dataset(split)

    def spell(sentence: Any) -> Words:
        if sentence.characters is None:
            return [task.dictionary[token] for token in sentence.tokens.tolist()]
        return ["".join(task.character_dictionary[c] for c in word.tolist()) for word in sentence.characters]

    texts = [tuple(spell(column[i]) for column in dataset.texts) for i in range(len(dataset))]
    if tags:
        return Split(texts, [[task.labels[tag] for tag in row.tolist()] for row in dataset.targets])
    return Split(texts, [task.labels[label] for label in dataset.targets.tolist()])


def measure(answers: list[dict[str, Any]], targets: list[Any], tags: bool) -> float:
    """Accuracy of labels or tags, or F1 of entities where all tags are those of entities; in percent."""
    if not tags:
        return float(score_labels([row["label"] for row in answers], targets)["scores"]["accuracy"])
    predicted = [row["tags"] for row in answers]
    flat = [[tag for row in rows for tag in row] for rows in (predicted, targets)]
    if all(map(is_bio_tag, flat[1])):
        return float(score_entities(predicted, targets)["scores"]["entity_f1"])
    return float(score_labels(*flat)["scores"]["accuracy"])


Answer = Callable[[list[tuple[Words, ...]]], list[dict[str, Any]]]


def iterate_linear(train: Split) -> Iterator[tuple[str, Answer]]:
    """Trains linear models, one after the other.

    Raises:
        ImportError: if scikit-learn is missing.
    """
    try:
        from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.naive_bayes import MultinomialNB
    except ImportError as error:
        raise ImportError(
            "BASELINE=linear needs the package scikit-learn, which is missing; run 'pip install scikit-learn'."
        ) from error
    counts = CountVectorizer(analyzer=list_pair_features if len(train.texts[0]) == 2 else list_ngrams, binary=True)
    weights = TfidfVectorizer(analyzer=counts.analyzer, sublinear_tf=True)

    def make_answer(vectorizer: Any, model: Any) -> Answer:
        def answer(texts: list[tuple[Words, ...]]) -> list[dict[str, Any]]:
            rows = model.predict_proba(vectorizer.transform(texts)).tolist()
            names = model.classes_.tolist()
            shown = [dict(zip(names, map(float, row), strict=True)) for row in rows]
            return [{"label": max(row, key=row.__getitem__), "probabilities": row} for row in shown]

        return answer

    regression = functools.partial(LogisticRegression, max_iter=500)
    for vectorizer, title, make, values in (
        (counts, "naive Bayes, alpha", lambda alpha: MultinomialNB(alpha=alpha), (0.1, 0.5, 1)),
        (counts, "logistic regression of counts, C", lambda c: regression(C=c), (0.03, 0.1, 0.3)),
        (weights, "logistic regression of tf-idf, C", lambda c: regression(C=c), (1, 10, 100)),
    ):
        matrix = vectorizer.fit_transform(train.texts)
        for value in values:
            yield f"{title} {value}", make_answer(vectorizer, make(value).fit(matrix, train.targets))


def list_ngrams(texts: tuple[Words, ...]) -> list[str]:
    """Words and pairs of neighbours; of unknown words neither."""
    (words,) = texts
    pairs = [f"{one} {other}" for one, other in itertools.pairwise(words)]
    return [ngram for ngram in (*words, *pairs) if "<unk>" not in ngram]


def list_pair_features(texts: tuple[Words, ...]) -> list[str]:
    """Which words both texts have, which one of them, and in tenths how many those are."""
    first, second = ({*words} - {"<unk>"} for words in texts)
    both = first & second
    features = [f"both:{word}" for word in both]
    features += [f"first:{word}" for word in first - second] + [f"second:{word}" for word in second - first]
    for name, size in (("first", len(first)), ("second", len(second)), ("either", len(first | second))):
        share = round(10 * len(both) / max(size, 1))
        features += [f"share of {name} at least {tenth}" for tenth in range(1, share + 1)]
    features += [f"left in {name} {min(len(rest), 6)}" for name, rest in (("1", first - second), ("2", second - first))]
    return features


def iterate_crfs(train: Split) -> Iterator[tuple[str, Answer]]:
    """Trains conditional random fields, one after the other.

    Raises:
        ImportError: if python-crfsuite is missing.
    """
    try:
        import pycrfsuite
    except ImportError as error:
        raise ImportError(
            "BASELINE=crf needs the package python-crfsuite, which is missing; run 'pip install python-crfsuite'."
        ) from error
    rows = [describe_words(words) for (words,) in train.texts]
    for penalties in CRF_GRID:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "model")
            trainer = pycrfsuite.Trainer(verbose=False)
            for row, tags in zip(rows, train.targets, strict=True):
                trainer.append(row, tags)
            trainer.set_params({**penalties, "max_iterations": CRF_ITERATIONS})
            trainer.train(path)
            tagger = pycrfsuite.Tagger()
            tagger.open(path)

            def answer(texts: list[tuple[Words, ...]], tagger: Any = tagger) -> list[dict[str, Any]]:
                return [{"words": words, "tags": tagger.tag(describe_words(words))} for (words,) in texts]

            yield f"conditional random field, c1 {penalties['c1']}, c2 {penalties['c2']}", answer
            tagger.close()


def describe_words(words: Words) -> list[list[str]]:
    """The features of each word: itself, its affixes and shape, and word and shape of those around it."""
    own = [(word.lower(), re.sub(r"(.)\1{3,}", r"\1\1\1\1", _outline(word))) for word in words]
    rows = []
    for i, (lower, shape) in enumerate(own):
        row = ["bias", f"word={lower}", f"shape={shape}"]
        row += [f"prefix={lower[:n]}" for n in (1, 2, 3)] + [f"suffix={lower[-n:]}" for n in (1, 2, 3, 4)]
        for offset in NEIGHBOURS:
            inside = 0 <= i + offset < len(own)
            row += [f"{offset}:{feature}" for feature in (own[i + offset] if inside else ("<none>",))]
        rows.append(row)
    return rows


def _outline(word: str) -> str:
    return "".join("X" if c.isupper() else "x" if c.isalpha() else "0" if c.isdigit() else c for c in word)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
