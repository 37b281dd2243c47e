"""The recipe of head-wise match: conversions and table on made-up files, and the commands that its scripts run."""

import io
import json
import re
import sys
from pathlib import Path

import pytest
from support.fairseq_commands import parse_training
from support.helpers import REPOSITORY, assert_refused, load_program, parse_flags
from support.recipes import WRITE_DOWN, mark_prepared, read_calls, run_main, run_pairs, run_written_down

import muse_plugin  # noqa: F401  (registers the models)

RECIPE = REPOSITORY / "examples" / "head_wise_match"
NLI_HEADER = "gold_label\tsentence1_binary_parse\tsentence1\tsentence2\tpairID\n"
QQP_HEADER = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"


# pairs.py


@pytest.fixture(scope="module")
def pairs():
    return load_program(RECIPE / "pairs.py")


def convert(pairs, form, content):
    """Label, first and second text of each pair of a form."""
    return list(sys.modules["pair_forms"].read_pairs(pairs.FORMS[form], io.BytesIO(content.encode("utf-8"))))


def squad(*articles):
    """SQuAD's JSON of articles with one paragraph: (context, [(question, impossible), ...]) each."""
    data = [
        {
            "title": "t",
            "paragraphs": [{"context": text, "qas": [{"question": q, "is_impossible": i} for q, i in questions]}],
        }
        for text, questions in articles
    ]
    return json.dumps({"version": "v2.0", "data": data})


@pytest.mark.parametrize(
    ("form", "content", "expected"),
    [
        ("nli", NLI_HEADER + 'neutral\t( A )\tA "man.\tHe  runs!\t1\n', ("neutral", 'A "man.', "He runs!")),
        ("sick", "4\tNo boy's here\tA boy.\t3.6\tCONTRADICTION\n", ("contradiction", "No boy's here", "A boy.")),
        ("mrpc", '\ufeff1\t11\t12\tHe said "no.\tShe.\r\n', ("paraphrase", 'He said "no.', "She.")),
        ("mrpc", "0\t11\t12\tA\tB\n", ("no_paraphrase", "A", "B")),
        ("qqp", QQP_HEADER + "7\t1\t2\tWhy\u00a0me?\tWhy?\t1\n", ("duplicate", "Why me?", "Why?")),
        ("qqp-numbered", "a\tb\t0\n", ("not_duplicate", "a", "b")),
        ("qnli", "index\tquestion\tsentence\tlabel\n0\tWho?\tHe.\tnot_entailment\n", ("not_entailment", "Who?", "He.")),
        ("wikiqa", "Q\tA \u2028 b\t1\n", ("right", "Q", "A b")),
        ("wikiqa", "Q\tA\t0\n", ("wrong", "Q", "A")),
        ("squad", squad(("a\tb\nc", [("Q?", True)])), ("unanswerable", "Q?", "a b c")),
        ("squad", squad(("a", [("Q?", False)])), ("answerable", "Q?", "a")),
    ],
)
def test_every_form_becomes_the_same(pairs, form, content, expected):
    assert convert(pairs, form, content) == [expected]


def test_pairs_without_a_label_are_left_out_and_counted():
    rows = "neutral\t( A )\tA man.\tHe.\t1\n-\t( A )\tA.\tB.\t2\nentailment\t( A )\tC.\tD.\t3\n"
    done = run_pairs("head_wise_match", "nli", NLI_HEADER + rows)
    assert done.returncode == 0
    assert done.stdout.decode() == "neutral\tA man.\tHe.\nentailment\tC.\tD.\n"
    assert done.stderr.decode() == "nli: 2 pairs, 1 without a label left out\n"


def test_some_pairs_can_be_chosen():
    content = "".join(f"a\tb{n}\t{n % 2}\n" for n in range(6))
    done = run_pairs("head_wise_match", "wikiqa", content, "--skip", "2", "--limit", "3")
    assert done.stdout.decode() == "wrong\ta\tb2\nright\ta\tb3\nwrong\ta\tb4\n"
    assert (
        run_pairs("head_wise_match", "wikiqa", content, "--skip", "4").stdout.decode() == "wrong\ta\tb4\nright\ta\tb5\n"
    )


def test_articles_of_squad_are_for_training_or_for_validation(pairs):
    content = squad(*((f"text {n}", [("Q?", False), ("R?", True)]) for n in range(1, 41)))
    train, valid = convert(pairs, "squad-train", content), convert(pairs, "squad-valid", content)
    assert [second for _, _, second in valid] == ["text 20", "text 20", "text 40", "text 40"]
    assert len(train) == 76
    assert not {second for _, _, second in train} & {second for _, _, second in valid}
    assert sorted(train + valid) == sorted(convert(pairs, "squad", content))


@pytest.mark.parametrize(
    ("form", "content", "sentence"),
    [
        ("sick", "1\ta\tb\n", "sick: line 1: must have 5 columns separated by tabs, but has 3."),
        ("sick", "1\ta\tb\t3\tMAYBE\n", "line 1: the label must be one of entailment, neutral, contradiction, but is"),
        ("wikiqa", "a\tb\t1\n\na\tb\t7\n", "line 3: the label must be one of wrong, right, but is '7'."),
        ("qqp", QQP_HEADER + "\n1\t2\t3\ta\tb\tyes\n", "line 3: the label must be one of not_duplicate, duplicate"),
        ("qqp", QQP_HEADER + "1\t2\n", "line 2: must have 6 columns separated by tabs, but has 2."),
        ("nli", "gold_label\tsentence1\n", "line 1: must name each of the columns sentence2 once."),
        ("mrpc", b"1\t1\t2\ta\tb\n0\t\xff\n", "line 2: must be UTF-8, but is not"),
        ("squad", "{", "squad: must be SQuAD's JSON, an object with 'data', but is not"),
        ("squad", '{"data": 3}', "must be SQuAD's JSON, but its 'data' is no list of articles."),
        ("squad", '{"data": [3]}', "article 1: must be as SQuAD 2.0 has it, but is not"),
        (
            "squad",
            '{"data": [{"paragraphs": []}, {"paragraphs": [{"context": "", "qas": [{"question": "Q"}]}]}]}',
            "article 2, paragraph 1, question 1: must be as SQuAD 2.0 has it, but is not (KeyError('is_impossible')).",
        ),
        ("squad", squad(("a", [("Q", 1)])), "question 1: must be as SQuAD 2.0 has it, but is not (TypeError("),
    ],
)
def test_what_is_no_pair_is_named(form, content, sentence):
    done = run_pairs("head_wise_match", form, content)
    assert done.returncode == 2
    assert sentence in done.stderr.decode()


# downloads.tsv


def read_sections():
    """Names and addresses of each data set's files."""
    sections, name = {}, None
    for line in (RECIPE / "downloads.tsv").read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            name = line[2:]
        else:
            sections.setdefault(name, []).append(line.split("\t"))
    return sections


def test_lists_of_files_are_sound():
    sections = read_sections()
    count = {"snli": 1, "mnli": 1, "qqp": 1, "qqp-small": 2, "squad_binary": 2, "mrpc": 2, "sick": 3}
    count |= {"qnli": 1, "qnli-small": 1, "wikiqa": 3}
    assert {name: len(rows) for name, rows in sections.items()} == count
    for rows in sections.values():
        assert len({name for _, _, name, _ in rows}) == len(rows)
        for sha256, size, name, url in rows:
            assert len(sha256) == 64
            assert size == "-" or int(size) > 0
            assert url.startswith("https://")
            assert url.endswith("/" + name)


# The scripts


def run_script(folder, script, **settings):
    """Runs a script in which fairseq-train and muse-plugin only write down their arguments, call by call."""
    ours = f'if [ "$2" = muse_plugin.cli ]; then {WRITE_DOWN}; else exec "{sys.executable}" "$@"; fi'
    programs = {"fairseq-train": WRITE_DOWN, "python": ours}
    return run_written_down(folder, "head_wise_match", script, programs=programs, **settings)


def make_data(folder, dataset, kind="pieces", pairs=100):
    data = mark_prepared(folder / "work" / dataset / f"data-{kind}", f"dataset={dataset}\n")
    record = {"splits": {"train": {"sentences": pairs}}}
    (data / "bin" / "text_pipeline.json").write_text(json.dumps({"data": record}), encoding="utf-8")


def train(folder, **settings):
    """Runs train.sh; the arguments of each call of fairseq-train: flag -> value; fairseq knows all of them."""
    done = run_script(folder, "train", **settings)
    assert done.returncode == 0, done.stderr
    commands = []
    for words in read_calls(folder):
        parse_training(*words)
        following = [*words[1:], "--"]
        flags = [(word, value) for word, value in zip(words, following, strict=True) if word.startswith("--")]
        commands.append({flag: None if value.startswith("--") else value for flag, value in flags})
    return commands


MATCH_FLAGS = ("--match", "--match-aggregation", "--match-levels", "--match-no-hierarchy")


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("2", [("classic",), ("element", "max", "last"), ("element", "max", "all")]),
        (
            "4",
            [
                ("cosine", "concat", "all"),
                ("bilinear", "concat", "all"),
                ("element", "concat", "all"),
                ("element", "concat", "all", None),
                ("element", "max", "all"),
            ],
        ),
    ],
)
def test_a_table_is_one_command(tmp_path, table, expected):
    make_data(tmp_path, "snli")
    commands = train(tmp_path, TABLE=table, BERT_DIR="/models/bert-x")
    assert [tuple(flags[name] for name in MATCH_FLAGS if name in flags) for flags in commands] == expected
    assert len({flags["--save-dir"] for flags in commands}) == len(expected)
    published = [line.split("\t") for line in (RECIPE / "published.tsv").read_text().splitlines()[2:]]
    if table == "4":
        rows = [(row[2], row[3], row[4], *([None] if row[5] == "0" else [])) for row in published]
        assert sorted(map(str, rows)) == sorted(map(str, expected))


def test_bert_is_trained_as_published(tmp_path):
    make_data(tmp_path, "squad_binary", pairs=1000)
    (flags,) = train(tmp_path, DATASET="squad_binary", BERT_DIR="/models/bert-x")
    # 63 batches of 16, 3 epochs: 189 updates
    expected = {
        "--task": "head_wise_match",
        "--arch": "head_wise_match",
        "--bert-dir": "/models/bert-x",
        "--batch-size": "16",
        "--lr": "2e-5",
        "--max-epoch": "3",
        "--lr-scheduler": "polynomial_decay",
        "--warmup-updates": "19",
        "--total-num-update": "190",
        "--weight-decay": "0.01",
        "--max-words": "382",
        "--best-checkpoint-metric": "accuracy",
        "--maximize-best-checkpoint-metric": None,
    }
    assert {name: flags.get(name, "absent") for name in expected} == expected
    settings = (tmp_path / "work" / "squad_binary" / "bert-element-max-all-seed1" / "settings.txt").read_text()
    assert "match=element\naggregation=max\nlevels=all\nhierarchy=1\nseed=1\n" in settings
    assert "bert=bert-x@" in settings
    assert "data_dataset=squad_binary" in settings


@pytest.mark.parametrize("encoder", ["transformer", "multi_scale", "muse"])
def test_an_own_encoder_is_trained_with_the_task(tmp_path, encoder):
    make_data(tmp_path, "wikiqa", "words")
    (flags,) = train(tmp_path, DATASET="wikiqa", ENCODER=encoder, MATCH="cosine", LEVELS="0,2", HIERARCHY="0")
    assert flags["--arch"] == f"head_wise_match_{encoder}"
    assert (flags["--match"], flags["--match-aggregation"], flags["--match-levels"]) == ("cosine", "concat", "0,2")
    assert "--match-no-hierarchy" in flags
    assert (flags["--max-words"], flags["--encoder-embed-dim"], flags["--batch-size"]) == ("62", "200", "32")
    assert (flags["--lr"], flags["--embedding-dropout"], flags["--attention-dropout"]) == ("0.0005", "0", "0")
    assert (flags["--best-checkpoint-metric"], "--maximize-best-checkpoint-metric" in flags) == ("loss", False)
    assert (tmp_path / "work" / "wikiqa" / f"{encoder}-cosine-concat-0,2-flat-seed1").is_dir()


@pytest.mark.parametrize(("encoder", "flag"), [("bert", "--bert-layers"), ("multi_scale", "--encoder-layers")])
def test_an_encoder_may_have_fewer_layers(tmp_path, encoder, flag):
    make_data(tmp_path, "sick", "pieces" if encoder == "bert" else "words")
    (flags,) = train(tmp_path, DATASET="sick", ENCODER=encoder, BERT_DIR="/models/bert-x", LAYERS="2")
    assert flags[flag] == "2"
    run = tmp_path / "work" / "sick" / f"{encoder}-layers2-element-max-all-seed1"
    assert "\nlayers=2\n" in (run / "settings.txt").read_text()


@pytest.mark.parametrize("encoder", ["transformer", "multi_scale", "muse"])
def test_many_pairs_train_a_wide_encoder(tmp_path, encoder):
    make_data(tmp_path, "snli", "words")
    (flags,) = train(tmp_path, ENCODER=encoder)
    assert (flags["--lr"], flags["--encoder-embed-dim"], flags["--batch-size"]) == ("0.00025", "600", "128")
    assert (flags["--embedding-dropout"], flags["--attention-dropout"]) == ("0.5", "0.3")


def test_the_encoder_of_a_translation_model_is_trained_further(tmp_path):
    make_data(tmp_path, "sick", "translation")
    checkpoint = str(tmp_path / "checkpoint_avg.pt")
    (tmp_path / "checkpoint_avg.pt").write_text("one")
    settings = {"DATASET": "sick", "ENCODER": "translation", "TABLE": "2", "TRANSLATION_CHECKPOINT": checkpoint}
    commands = train(tmp_path, **settings)
    assert [flags["--match"] for flags in commands] == ["classic", "element", "element"]
    for flags in commands:
        assert (flags["--arch"], flags["--translation-checkpoint"]) == ("head_wise_match_translation", checkpoint)
        assert "--encoder-embed-dim" not in flags
    kept = (tmp_path / "work" / "sick" / "translation-classic-seed1" / "settings.txt").read_text()
    assert "translation=checkpoint_avg.pt@" in kept
    (tmp_path / "checkpoint_avg.pt").write_text("other")
    assert_refused(run_script(tmp_path, "train", **settings), "was made with other settings")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"DATASET": "cola"}, "DATASET must be one of snli mnli"),
        (
            {"ENCODER": "bert gpt"},
            "ENCODER must be one or more of bert transformer multi_scale muse translation, but one is 'gpt'.",
        ),
        (
            {"MODEL": "muse"},
            "named by ENCODER (one or more of bert transformer multi_scale muse translation), but MODEL or MODELS",
        ),
        ({"TABLE": "3"}, "TABLE must be 2 or 4, but is '3'."),
        ({"TABLE": "4", "MATCH": "cosine"}, "TABLE=4 names all its systems, so MATCH, AGGREGATION"),
        *(
            (
                {"BASELINE": "linear", name: value},
                "BASELINE=linear stands for an encoder and its match, so ENCODER, TABLE, ",
            )
            for name, value in {
                "ENCODER": "muse",
                "TABLE": "4",
                "MATCH": "classic",
                "LEVELS": "3",
                "LAYERS": "2",
            }.items()
        ),
        ({"MATCH": "dot"}, "MATCH must be element, cosine, bilinear or classic, but is 'dot'."),
        ({"MATCH": "classic", "LEVELS": "all"}, "MATCH=classic compares one vector of each text, so AGGREGATION"),
        ({"MATCH": "cosine", "AGGREGATION": "max"}, "AGGREGATION must be concat or, with MATCH=element, max;"),
        ({"LEVELS": "first"}, "LEVELS all, last or numbers such as 3,7,11; but they are 'max' and 'first'."),
        ({"HIERARCHY": "no"}, "HIERARCHY must be 0 or 1, but is 'no'."),
        (
            {},
            "ENCODER=bert needs BERT_DIR, the folder of a BERT, with config.json, vocab.txt and model.safetensors, but",
        ),
        ({"ENCODER": "transformer bert"}, "ENCODER=bert needs BERT_DIR, the folder of a BERT"),
        (
            {"ENCODER": "transformer translation"},
            "ENCODER=translation needs TRANSLATION_CHECKPOINT, a checkpoint of muse",
        ),
        ({"BERT_DIR": ".", "WARMUP": "9"}, "WARMUP and DECAY are not for ENCODER=bert, whose rate rises over a tenth"),
        ({"ENCODER": "muse"}, "there is no data in"),
        ({"ENCODER": "translation", "TRANSLATION_CHECKPOINT": "x"}, "there is no data in"),
        ({"ENCODER": "translation", "LAYERS": "2"}, "that of a translation model comes as it is; use another ENCODER."),
        (
            {"ENCODER": "translation", "TRANSLATION_CHECKPOINT": "x", "WORD_VECTORS": __file__},
            "but ENCODER has translation, which brings its own.",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path, settings, sentence):
    make_data(tmp_path, "snli")
    done = run_script(tmp_path, "train", **settings)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert not (tmp_path / "arguments").exists()


@pytest.mark.parametrize("lower_case", ["1", "0"])
def test_pairs_are_cut_as_the_translation_model_reads_them(tmp_path, lower_case):
    raw = tmp_path / "raw"
    raw.mkdir()
    for name in ("train.txt", "dev.txt", "test.txt"):
        (raw / name).write_text("Who?\tHe\t1\n" * 6, encoding="utf-8")
    settings = {"DATASET": "wikiqa", "ENCODER": "translation", "RAW_DIR": str(raw), "TRIAL": "1"}
    refused = run_script(tmp_path, "prepare", **settings)
    assert_refused(
        refused, "ENCODER=translation needs TRANSLATION_DATA, the folder with bpe.codes and bin/dict.en.txt of"
    )
    assert_refused(
        run_script(tmp_path, "prepare", **{**settings, "ENCODER": "muse", "LOWER_CASE": "0"}),
        "LOWER_CASE=0 is for ENCODER=translation, but ENCODER is 'muse'; unset it.",
    )
    assert not list(tmp_path.rglob(".*.done"))  # before anything is fetched
    settings |= {"TRANSLATION_DATA": "/runs/multi30k/en-de", "LOWER_CASE": lower_case}
    done = run_script(tmp_path, "prepare", **settings)
    assert done.returncode == 0, done.stderr
    (call,) = read_calls(tmp_path)
    args = parse_flags(*call[2:])
    assert args.output == tmp_path / "work" / "wikiqa" / "data-translation" / "bin"
    assert (args.tokenizer, bool(args.lower_case)) == ("moses", lower_case == "1")
    assert (str(args.bpe_codes), str(args.dictionary)) == (
        "/runs/multi30k/en-de/bpe.codes",
        "/runs/multi30k/en-de/bin/dict.en.txt",
    )


def test_pairs_are_prepared_for_words_and_pieces(tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    text = "".join(f"Who{n % 2}?\tHe {n}\t{n % 3 // 2}\n" for n in range(6))
    for name in ("train.txt", "dev.txt", "test.txt"):
        (raw / name).write_text(text, encoding="utf-8")
    settings = {"DATASET": "wikiqa", "ENCODER": "bert muse", "BERT_DIR": "/models/x", "RAW_DIR": str(raw), "TRIAL": "1"}
    done = run_script(tmp_path, "prepare", **settings)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "work" / "wikiqa"
    assert (folder / "data" / "text" / "test.groups").read_text().split() == ["Who0?", "Who1?"] * 3
    assert (folder / "data" / "text" / "valid.tsv").read_text().splitlines()[2] == "right\tWho0?\tHe 2"
    pieces, words = (parse_flags(*call[2:]) for call in read_calls(tmp_path))
    assert (pieces.tokenizer, pieces.bert_dir, pieces.lower_case) == ("wordpiece", Path("/models/x"), None)
    assert (words.tokenizer, words.bert_dir, words.lower_case) == ("moses", None, True)
    for kind, args in (("pieces", pieces), ("words", words)):
        assert args.output == folder / f"data-{kind}" / "bin"
        assert args.format == "tsv:text=2,pair=3,label=1"
        assert [path.name for path in (args.train, args.valid, *args.test)] == ["train.tsv", "valid.tsv", "test.tsv"]


def test_files_of_another_data_set_are_refused(tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "dev.tsv").write_text("index\n", encoding="utf-8")
    done = run_script(tmp_path, "prepare", DATASET="qnli-small", ENCODER="muse", RAW_DIR=str(raw))
    assert_refused(done, "dev.tsv has 6 bytes instead of 1367333; delete it")


# compare.py


@pytest.fixture(scope="module")
def compare():
    return load_program(RECIPE / "compare.py")


def write_result(folder, scores, test="test", seed=1, seconds=None, **settings):
    settings = {
        **{"encoder": "bert", "match": "element", "aggregation": "max", "levels": "all", "hierarchy": 1},
        **{"data_dataset": "snli", "seed": seed, "test_set": test, "lr": 2e-5, "train_command": f"train --seed {seed}"},
        **settings,
    }
    if seconds is not None:
        settings["seconds_train"] = seconds
    record = {
        "scores": {name: {"mean": value, "signature": "labels"} for name, value in scores.items()},
        "settings": settings,
        "versions": {"torch": "2"},
    }
    path = folder / f"{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    return path


def test_systems_are_compared_in_the_order_of_the_paper(compare, tmp_path):
    paths = [
        write_result(tmp_path, {"accuracy": 60.0}, encoder="muse", lr=0.1),
        write_result(tmp_path, {"accuracy": 88.0}, seed=2, seconds=10),
        write_result(tmp_path, {"accuracy": 87.0}, seed=1, seconds=30),
        write_result(tmp_path, {"accuracy": 80.0}, match="cosine", aggregation="concat"),
        write_result(tmp_path, {"accuracy": 81.0}, match="classic", aggregation="-", levels="-", hierarchy="-"),
    ]
    published = compare.read_published(RECIPE / "published.tsv")
    report = compare.make_report(compare.read_results(paths), published)
    assert report.splitlines()[:6] == [
        "| encoder | match | aggregation | levels | hierarchy | seeds | test: accuracy | paper | training, s |",
        "|---|---|---|---|---|---|--:|--:|--:|",
        "| BERT | cosine | concat | all | heads, then layers | 1 | 80.00 | 86.8 |  |",
        "| BERT | classic | - | - | - | 1 | 81.00 |  |  |",
        "| BERT | element | max | all | heads, then layers | 1, 2 | 87.50 ± 0.71 | 88.1 | 20 |",
        "| MUSE | element | max | all | heads, then layers | 1 | 60.00 |  |  |",
    ]
    assert "- settings of MUSE: `data_dataset = snli; lr = 0.1`" in report
    assert "- versions: `torch 2`" in report


def test_every_test_set_and_measure_has_a_column(compare, tmp_path):
    scores = {"accuracy": 90.0, "macro_f1": 1.0, "f1": 70.0, "map": 65.0, "mrr": 66.0}
    paths = [write_result(tmp_path, scores, test=test, data_dataset="wikiqa") for test in ("matched", "mismatched")]
    lines = compare.make_report(compare.read_results(paths), {}).splitlines()
    assert lines[0].split(" | ")[6:10] == ["matched: accuracy", "matched: F1", "matched: MAP", "matched: MRR"]
    assert lines[2].endswith("| 1 | 90.00 | 70.00 | 65.00 | 66.00 | 90.00 | 70.00 | 65.00 | 66.00 |  |")


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"seed": 2, "lr": 0.1}, "must have the same settings to be compared, but lr is '0.1' and '2e-05'; give fewer"),
        ({"encoder": "muse", "data_dataset": "sick"}, "but data_dataset is 'sick' and 'snli'"),
        ({}, "has bert element max all 1 with seed 1 on test again; give it once."),
    ],
)
def test_what_cannot_be_compared_is_refused(compare, tmp_path, other, sentence):
    paths = [write_result(tmp_path, {"accuracy": 1.0}), write_result(tmp_path, {"accuracy": 1.0}, **other)]
    with pytest.raises(ValueError, match=r"same settings|again") as caught:
        compare.read_results(paths)
    assert sentence in str(caught.value)


def test_another_file_is_no_result(compare, tmp_path):
    (tmp_path / "x.json").write_text('{"scores": {}, "settings": {"match": "element"}}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"its settings lack encoder, aggregation, levels, hierarchy, data_dataset\."):
        compare.read_results([tmp_path / "x.json"])
    for text, sentence in (
        (
            "# c\ndataset\taccuracy\nsnli\thigh\n",
            "accuracy must be a number, but: could not convert string to float: 'high'",
        ),
        ("# c\ndataset\taccuracy\nsnli\n", "line 3: must have dataset, accuracy, separated by tabs"),
        (
            "# c\ndataset\taccuracy\n",
            "must have a line with the names of its columns and rows below it, but has no rows",
        ),
    ):
        (tmp_path / "p.tsv").write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=re.escape("p.tsv")) as caught:
            compare.read_published(tmp_path / "p.tsv")
        assert sentence in str(caught.value)


# plot_depth.py


def test_the_curve_of_depths_has_a_line_for_each_way_to_match(compare, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    monkeypatch.setitem(sys.modules, "compare", compare)
    plot_depth = load_program(RECIPE / "plot_depth.py")
    (tmp_path / "results").mkdir()
    classic = {"match": "classic", "aggregation": "-", "levels": "-", "hierarchy": "-"}
    paths = [
        write_result(tmp_path / "results", {"accuracy": accuracy}, seed=seed, layers=layers, **system)
        for layers, shift in ((2, 10), (12, 0))
        for system, own in ((classic, 60.0), ({"levels": "last"}, 62.0), ({}, 64.0))
        for seed, accuracy in ((1, own + shift), (2, own + shift + 2))
    ]

    def run(*files):
        words = [*files, "--table", tmp_path / "D.md", "--output", tmp_path / "d.svg"]
        return run_main(monkeypatch, plot_depth, *words)

    assert run(*paths) == 0
    assert (tmp_path / "D.md").read_text().splitlines() == [
        "| encoder | layers | classic | single-level | multi-level |",
        "|---|--:|--:|--:|--:|",
        "| BERT | 2 | 71.00 ± 1.41 | 73.00 ± 1.41 | 75.00 ± 1.41 |",
        "| BERT | 12 | 61.00 ± 1.41 | 63.00 ± 1.41 | 65.00 ± 1.41 |",
    ]
    figure = (tmp_path / "d.svg").read_text()
    for name in ("layers of the encoder", "test accuracy", "classic", "single-level", "multi-level"):
        assert f"<!-- {name}" in figure
    classic_alone = [path for path in paths if "classic" in path.read_text()]
    assert run(*classic_alone) == 0
    assert "<!-- single-level" not in (tmp_path / "d.svg").read_text()
    without = write_result(tmp_path / "results", {"accuracy": 1.0})
    assert run(*paths, without) == 2
    assert "must be of runs with LAYERS and TABLE=2, but one of" in capsys.readouterr().err
    other = write_result(tmp_path / "results", {"accuracy": 1.0}, test="mismatched", layers=2)
    assert run(paths[0], other) == 2
    assert "they are of mismatched of snli and test of snli; give fewer files." in capsys.readouterr().err
