"""The command as a whole: what goes in, what is printed, what is in the JSON, and what it refuses."""

import gzip
import json
import re
import shutil
import sys

import pytest
import sacrebleu
from sacremoses import MosesDetokenizer, MosesTokenizer

from muse_plugin.evaluation import evaluate
from muse_plugin.evaluation.report import shorten_names
from muse_plugin_command import cli

SOURCES = [
    "die Katze saß auf der Matte .",
    "er ist heim@@ gegangen , oder ?",
    "ein dritter Satz &quot; a &quot; .",
    "ja .",
]
REFERENCES = [
    "the cat sat on the well-known mat .",
    "he &apos;s gone home , hasn &apos;t he ?",
    "a third sentence , &quot; a &quot; .",
    "yes , I do not think so .",
]
HYPOTHESES = [
    "the cat sat on a well-@@ known mat .",
    "he &apos;s gone home , has@@ n &apos;t he ?",
    "A third sentence , &quot; a &quot; .",
    "yes , I do not know so .",
]
WORDS = [line.replace("@@ ", "") for line in HYPOTHESES]
WORSE = ["the cat on mat .", "he &apos;s gone , &apos;t he ?", "a sentence .", "yes , I do think ."]


@pytest.fixture
def log(write_log):
    return write_log("a.log", HYPOTHESES, REFERENCES, SOURCES)


@pytest.fixture
def references(write_lines):
    return write_lines("references.txt", REFERENCES)


def raw(lines):
    return [MosesDetokenizer(lang="en").detokenize(line.split()) for line in lines]


def test_log_and_plain_text_give_the_same_scores(run_evaluate, log, references, write_lines, slow_multi_bleu):
    flags = ("--target-lang", "en", "--compound-split")
    from_log = run_evaluate("--generation-log", log, *flags)
    plain = write_lines("hypotheses.txt", HYPOTHESES)
    sources = write_lines("sources.txt", SOURCES)
    from_text = run_evaluate("--hypotheses", plain, "--references", references, "--sources", sources, *flags)
    assert from_log.json["scores"] == from_text.json["scores"]
    assert from_log.json["length_buckets"] == from_text.json["length_buckets"]
    line = slow_multi_bleu(WORDS, REFERENCES)
    assert f"\n{line}\n" in from_log.out
    assert from_log.json["files"][0]["tokenized_bleu"]["line"] == line
    scores = from_log.json["scores"]
    assert list(scores) == ["tokenized_bleu", "compound_split_bleu", "bleu", "chrf", "ter"]
    for name, metric in {"bleu": sacrebleu.BLEU(), "chrf": sacrebleu.CHRF(), "ter": sacrebleu.TER()}.items():
        assert scores[name]["mean"] == round(metric.corpus_score(raw(WORDS), [raw(REFERENCES)]).score, 4)
        assert scores[name]["signature"] in from_log.out
        assert re.search(rf"^{name} +{scores[name]['mean']:.2f}$", from_log.out, re.MULTILINE | re.IGNORECASE)
    assert from_log.json["num_sentences"] == 4
    assert from_log.json["subwords_removed"] == "subword_nmt"


def test_compressed_files_are_read(run_evaluate, log, tmp_path):
    packed = tmp_path / "a.log.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    assert (
        run_evaluate("--generation-log", packed).json["scores"] == run_evaluate("--generation-log", log).json["scores"]
    )


def test_lowercase_ignores_case(run_evaluate, write_log, slow_multi_bleu):
    log = write_log("a.log", [line.upper() for line in REFERENCES], REFERENCES)
    mixed = run_evaluate("--generation-log", log, "--target-lang", "en")
    lowered = run_evaluate("--generation-log", log, "--target-lang", "en", "--lowercase", "--compound-split")
    assert mixed.json["scores"]["tokenized_bleu"]["mean"] < 50
    for name in ("tokenized_bleu", "compound_split_bleu"):
        assert lowered.json["scores"][name]["mean"] == 100.0
        assert "case:lc" in lowered.json["scores"][name]["signature"]
    assert "case:lc" in lowered.json["scores"]["chrf"]["signature"]
    assert "case ignored" in lowered.out
    assert "; case kept\n" in mixed.out


def test_sentencepiece_text_is_raw(run_evaluate, write_lines):
    encoded = ["\u2581the \u2581c at , \u2581sat !", "\u2581no"]
    files = ("--hypotheses", write_lines("h", encoded), "--references", write_lines("r", ["the cat, sat!", "no"]))
    outcome = run_evaluate(*files, "--post-process", "sentencepiece", "--detokenized")
    assert outcome.json["scores"]["bleu"]["mean"] == 100.0
    assert "tokenized_bleu" not in outcome.json["scores"]
    assert "NOTE: tokenised BLEU is left out, for it needs words" in outcome.out
    assert "'\u2581' occurs in the hypotheses" in run_evaluate(*files).out


def test_raw_text_with_a_language_has_words_of_moses(run_evaluate, write_lines, slow_multi_bleu):
    hypotheses, references = raw(WORDS), raw(REFERENCES)
    files = ("--hypotheses", write_lines("h", hypotheses), "--references", write_lines("r", references))
    outcome = run_evaluate(*files, "--detokenized", "--target-lang", "en")
    tokenizer = MosesTokenizer(lang="en")
    tokenized = [[tokenizer.tokenize(line, return_str=True) for line in lines] for lines in (hypotheses, references)]
    assert outcome.json["files"][0]["tokenized_bleu"]["line"] == slow_multi_bleu(*tokenized)
    expected = sacrebleu.BLEU().corpus_score(hypotheses, [references]).score
    assert outcome.json["scores"]["bleu"]["mean"] == round(expected, 4)


def test_without_a_language_sacrebleu_is_left_out_and_said_so(run_evaluate, log):
    outcome = run_evaluate("--generation-log", log)
    assert list(outcome.json["scores"]) == ["tokenized_bleu"]
    assert "NOTE: sacreBLEU's BLEU, chrF and TER are left out" in outcome.out
    assert outcome.json["notes"] == [re.search(r"NOTE: (sacre.*)\.", outcome.out)[1]]


def test_raw_references_replace_detokenised_ones(run_evaluate, log, write_lines):
    references = ["The cat sat on the well-known mat.", "He's gone home, hasn't he?", '"A" third sentence.', "Yes!"]
    outcome = run_evaluate(
        "--generation-log", log, "--target-lang", "en", "--raw-references", write_lines("r", references)
    )
    expected = sacrebleu.BLEU().corpus_score(raw(WORDS), [references]).score
    assert outcome.json["scores"]["bleu"]["mean"] == round(expected, 4)
    plain = run_evaluate("--generation-log", log)
    assert outcome.json["scores"]["tokenized_bleu"] == plain.json["scores"]["tokenized_bleu"]


def test_given_references_replace_those_of_the_log(run_evaluate, write_log, references, slow_multi_bleu):
    log = write_log("a.log", HYPOTHESES, ["<<unk>>"] * 4)
    outcome = run_evaluate("--generation-log", log, "--references", references)
    assert outcome.json["files"][0]["tokenized_bleu"]["line"] == slow_multi_bleu(WORDS, REFERENCES)
    assert "unknown" not in outcome.out


@pytest.mark.parametrize("mark", ["<<unk>>", "<unk>"])
def test_unknown_reference_words_never_match(run_evaluate, write_log, mark):
    line = "a <unk> c d e <unk> g"
    log = write_log("a.log", [line], [line.replace("<unk>", mark)])
    outcome = run_evaluate("--generation-log", log, "--target-lang", "en")
    tokenised, bleu = (outcome.json["files"][0][name] for name in ("tokenized_bleu", "bleu"))
    assert tokenised["precisions"] == pytest.approx([500 / 7, 200 / 6, 20, 0], abs=1e-4)
    assert bleu["precisions"][0] == pytest.approx(500 / 11, abs=1e-4)  # < unk > are three words of 13a, all wrong
    assert "NOTE: 2 words of the references are unknown" in outcome.out
    one = run_evaluate("--generation-log", write_log("b.log", ["a b c d e"], [f"a {mark} c d e"]))
    assert "NOTE: 1 word of the references is unknown to the dictionary" in one.out


def test_several_files_have_mean_and_sample_deviation(run_evaluate, write_log, log, slow_multi_bleu):
    worse = write_log("b.log", WORSE, REFERENCES, SOURCES)
    outcome = run_evaluate("--generation-log", log, worse)
    score = outcome.json["scores"]["tokenized_bleu"]
    first, second = (
        run_evaluate("--generation-log", path).json["scores"]["tokenized_bleu"]["mean"] for path in (log, worse)
    )
    assert score["values"] == [first, second]
    assert score["mean"] == pytest.approx((first + second) / 2, abs=1e-4)
    assert score["sd"] == pytest.approx(abs(first - second) / 2**0.5, abs=1e-4)
    assert [file["file"] for file in outcome.json["files"]] == ["a.log", "b.log"]
    assert f"{score['mean']:.2f} ± {score['sd']:.2f}" in outcome.out
    assert f"b.log: {slow_multi_bleu(WORSE, REFERENCES)}" in outcome.out
    verdict = run_evaluate("--generation-log", log, worse, "--expect", score["mean"] - 1, score["mean"] + 1)
    assert verdict.code == 0


def test_lengths_count_words_or_subwords(run_evaluate, log, slow_multi_bleu):
    words = run_evaluate("--generation-log", log, "--length-buckets", "2,6").json["length_buckets"]
    assert [bucket["num_sentences"] for bucket in words["buckets"]] == [1, 1, 2]
    assert words["unit"] == "words"
    subwords = run_evaluate("--generation-log", log, "--length-buckets", "2,7", "--length-unit", "subword")
    assert [bucket["num_sentences"] for bucket in subwords.json["length_buckets"]["buckets"]] == [1, 3, 0]
    assert re.search(r"^source subwords +sentences +a.log\n1-2 +1 +.*\n3-7 +3 +.*$", subwords.out, re.MULTILINE)
    assert ">7" not in subwords.out  # a row without sentences is left out
    score = subwords.json["length_buckets"]["buckets"][1]["scores"][0]
    assert slow_multi_bleu(WORDS[:3], REFERENCES[:3]).startswith(f"BLEU = {score:.2f}, ")
    assert subwords.json["length_buckets"]["buckets"][2]["scores"] == [None]


def test_two_systems_are_compared(run_evaluate, log, write_log, tmp_path):
    worse = write_log("b.log", WORSE, REFERENCES, SOURCES)
    outcome = run_evaluate(
        "--generation-log", log, "--versus", worse, "--target-lang", "en", "--name", "MUSE", "--versus-name", "other",
        "--num-resamples", "50", "--seed", "3", "--plot", tmp_path / "plot.svg", "--length-buckets", "4",
    )  # fmt: skip
    tested = outcome.json["significance"]
    assert {key: tested[key] for key in ("method", "num_resamples", "seed")} == {
        "method": "bootstrap", "num_resamples": 50, "seed": 3,
    }  # fmt: skip
    (pair,) = tested["pairs"]
    assert list(pair) == ["file", "versus", "tokenized_bleu", "bleu", "chrf", "ter"]
    for name in ("tokenized_bleu", "bleu", "chrf", "ter"):
        assert pair[name]["system"]["score"] == outcome.json["scores"][name]["mean"]
        assert pair[name]["versus"]["score"] == outcome.json["versus"]["scores"][name]["mean"]
        low, high = pair[name]["system"]["interval_95"]
        assert low <= pair[name]["system"]["mean"] <= high
        assert 0 < pair[name]["p_value"] <= 1
    assert pair["chrf"]["p_value"] < 0.2
    assert outcome.json["versus"]["name"] == "other"
    assert re.search(r"^ +MUSE +other +difference +p$", outcome.out, re.MULTILINE)
    assert re.search(r"^chrF +.* \(.* ± .*\) +.* \(.* ± .*\) +\+\d+\.\d\d +0\.\d{4}$", outcome.out, re.MULTILINE)
    assert len(outcome.json["length_buckets"]["buckets"][0]["versus_scores"]) == 1
    assert {"<!-- MUSE -->", "<!-- other -->"} <= set(map(str.strip, (tmp_path / "plot.svg").read_text().split("\n")))


def test_seeds_of_two_systems_are_compared_one_to_one(run_evaluate, log, write_log):
    worse = write_log("b.log", WORSE, REFERENCES)
    outcome = run_evaluate(
        "--generation-log", log, worse, "--versus", worse, log, "--num-resamples", "20",
        "--significance", "approximate_randomization",
    )  # fmt: skip
    first, second = outcome.json["significance"]["pairs"]
    assert first["tokenized_bleu"]["system"]["score"] == second["tokenized_bleu"]["versus"]["score"]
    assert "bs:1000|ar:20|seed:12345" in first["tokenized_bleu"]["signature"]
    assert "1: a.log" in outcome.out
    with pytest.raises(
        ValueError, match=r"--versus must name as many files as the system has.*got 1 and the system has 2"
    ):
        run_evaluate("--generation-log", log, worse, "--versus", worse)


@pytest.mark.parametrize(
    ("low", "high", "code", "word"), [(10, 90, 0, "PASS"), (99, 100, 1, "OUTSIDE"), (0, 1, 1, "OUTSIDE")]
)
def test_verdict_is_the_last_line_and_the_exit_code(run_evaluate, log, low, high, code, word):
    outcome = run_evaluate("--generation-log", log, "--expect", low, high)
    assert outcome.code == code
    last = outcome.out.rstrip("\n").split("\n")[-1]
    assert last.startswith(f"{word}: tokenised BLEU ")
    expected = outcome.json["expectation"]
    assert expected == {
        "metric": "tokenized_bleu", "low": low, "high": high, "passed": code == 0, "sentence": last,
    }  # fmt: skip


def test_verdict_is_on_the_system_alone(run_evaluate, log, write_log):
    worse = write_log("b.log", WORSE, REFERENCES)
    score = run_evaluate("--generation-log", log).json["scores"]["tokenized_bleu"]["mean"]
    outcome = run_evaluate(
        "--generation-log", log, "--versus", worse, "--num-resamples", 2, "--expect", score - 0.1, score + 0.1
    )
    assert outcome.code == 0


def test_verdict_on_another_score(run_evaluate, log):
    score = run_evaluate("--generation-log", log, "--target-lang", "en").json["scores"]["ter"]["mean"]
    flags = ("--generation-log", log, "--target-lang", "en", "--expect-metric", "ter", "--expect")
    assert run_evaluate(*flags, score - 0.1, score + 0.1).out.rstrip().split("\n")[-1].startswith("PASS: TER ")
    assert run_evaluate(*flags, 0, score - 0.1).code == 1


def test_json_records_settings_options_and_machine(run_evaluate, log, tmp_path):
    (tmp_path / "settings.json").write_text('{"seed": 5, "arch": "muse"}')
    outcome = run_evaluate(
        "--generation-log", log, "--record", "seed=7", "--record", "note=a b", "--lowercase",
        "--record-file", tmp_path / "settings.json",
    )  # fmt: skip
    assert outcome.json["settings"] == {"seed": 7, "arch": "muse", "note": "a b"}
    assert outcome.json["options"] == {"generation_log": [str(log)], "lowercase": True}
    assert outcome.json["versions"]["sacrebleu"] == sacrebleu.__version__
    assert {"git", "hardware", "threads"} <= set(outcome.json)
    assert 0 < outcome.json["seconds"]["total"] < 60


def test_log_without_its_closing_line_is_noticed(run_evaluate, write_log):
    log = write_log("cut.log", HYPOTHESES, REFERENCES, closing=None)
    assert "NOTE: cut.log lacks the closing line" in run_evaluate("--generation-log", log).out
    assert "closing line" not in run_evaluate("--generation-log", log, "--num-sentences", "4").out


# What it refuses


def test_different_numbers_of_lines_are_refused_with_both_counts(run_evaluate, write_lines, references, log):
    short = write_lines("short", WORDS[:3])
    with pytest.raises(ValueError, match=r"--references and --hypotheses must have.*\.txt has 4 and .*short has 3;"):
        run_evaluate("--hypotheses", short, "--references", references)
    with pytest.raises(ValueError, match=r"--sources and the references must have.*short has 3 and the log has 4;"):
        run_evaluate("--generation-log", log, "--sources", short)
    with pytest.raises(ValueError, match=r"--raw-references must.*short has 3 and there are 4 references"):
        run_evaluate("--generation-log", log, "--raw-references", short, "--target-lang", "en")
    with pytest.raises(
        ValueError, match=r"--generation-log must hold the 3 sentences 0 to 2, but .* has 1 more \(ids 3\)"
    ):
        run_evaluate("--generation-log", log, "--references", short)
    with pytest.raises(ValueError, match="--num-sentences must be the number of lines of --references, but got 9 and"):
        run_evaluate("--generation-log", log, "--references", references, "--num-sentences", 9)
    with pytest.raises(ValueError, match=r"--references and --versus must have.* has 4 and .*short has 3;"):
        run_evaluate("--hypotheses", references, "--references", references, "--versus", short)


def test_logs_of_different_test_sets_are_refused(run_evaluate, log, write_log):
    fewer = write_log("b.log", HYPOTHESES[:3], REFERENCES[:3])
    with pytest.raises(ValueError, match=r"same sentences, but .*a\.log has 4 of them and .*b\.log has 3"):
        run_evaluate("--generation-log", log, "--versus", fewer)
    other = write_log("c.log", HYPOTHESES, [*REFERENCES[:3], "other"])
    with pytest.raises(ValueError, match=r"the T- lines of .* differ in 1 sentences, first in 3: 'yes.*' and 'other'"):
        run_evaluate("--generation-log", log, "--versus", other)
    gap = write_log("d.log", [*HYPOTHESES, "x"], [*REFERENCES, "x"])
    gap.write_text("".join(line for line in gap.read_text().splitlines(True) if not re.match(r"[SHTDP]-2\t", line)))
    with pytest.raises(
        ValueError, match=r"--versus must hold the 5 sentences 0 to 4, but .*d\.log lacks 1 of them \(ids 2\)"
    ):
        run_evaluate("--generation-log", log, "--versus", gap)


def test_log_without_references_needs_them(run_evaluate, log, references):
    log.write_text("".join(line for line in log.read_text().splitlines(True) if not line.startswith("T-")))
    with pytest.raises(ValueError, match=r"has no T- lines: its data had no target side; give them by --references"):
        run_evaluate("--generation-log", log)
    assert run_evaluate("--generation-log", log, "--references", references).code == 0


def test_detokenised_log_is_noticed(run_evaluate, log):
    lines = [
        f"{re.match('D-[0-9]+', line)[0]}\t-0.25\tThe cat!\n" if line.startswith("D-") else line
        for line in log.read_text().splitlines(True)
    ]
    log.write_text("".join(lines))
    with pytest.raises(ValueError, match=r"sentence 0 is 'The cat!' after D- and 'the cat.*' after H-.*--detokenized"):
        run_evaluate("--generation-log", log)
    outcome = run_evaluate("--generation-log", log, "--detokenized")
    expected = sacrebleu.BLEU().corpus_score(["The cat!"] * 4, [REFERENCES]).score
    assert outcome.json["scores"]["bleu"]["mean"] == round(expected, 4)


def test_lengths_need_sources_and_subword_marks(run_evaluate, write_log, tmp_path):
    log = write_log("a.log", HYPOTHESES, REFERENCES)
    for flags in (["--length-buckets", "5"], ["--length-unit", "word"], ["--plot", tmp_path / "a.svg"]):
        with pytest.raises(ValueError, match=f"{flags[0]} needs source sentences, but there are none"):
            run_evaluate("--generation-log", log, *flags)
    assert run_evaluate("--generation-log", log).json["length_buckets"] is None
    log = write_log("a.log", HYPOTHESES, REFERENCES, ["a b"] * 4)
    with pytest.raises(ValueError, match="--length-unit subword needs sources in subword tokens"):
        run_evaluate("--generation-log", log, "--length-unit", "subword")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--data", "x"], "--data works only together with --path; add that or leave it out"),
        (["--beam", "4"], "--beam works only together with --path"),
        (["--cpu"], "--cpu works only together with --path"),
        (["--seed", "4"], "--seed works only together with --versus"),
        (["--expect-metric", "ter"], "--expect-metric works only together with --expect"),
        (["--num-sentences", "0"], "--num-sentences must be at least 1, but got 0"),
        (["--versus", "x", "--seed", "0"], "--seed must be at least 1, but got 0"),
        (["--target-lang", "english"], "--target-lang must be the code of a language"),
        (["--source-lang", "xx"], "--source-lang must be the code of a language"),
        (["--length-buckets", "30,15"], "--length-buckets must be increasing"),
        (["--expect", "36.5", "35.7"], "--expect must have the lower bound first"),
        (["--plot", "a.jpg"], "--plot must end in"),
        (["--raw-references", "x"], "--raw-references needs raw hypotheses, but they are tokenised; add --target-lang"),
        (["--raw-references", "x", "--detokenized"], "--raw-references is for tokenised text, but got --detokenized"),
        (["--compound-split", "--detokenized"], "--compound-split needs words.*add --target-lang"),
        (["--expect", "1", "2", "--expect-metric", "ter"], "score ter, but it will not be computed; add --target-lang"),
        (["--expect", "1", "2", "--detokenized"], "score tokenized_bleu, but .* add --target-lang"),
        (
            ["--expect", "1", "2", "--expect-metric", "compound_split_bleu"],
            "score compound_split_bleu, but .* add --compound-split",
        ),
        (
            ["--expect", "1", "2", "--expect-metric", "ter", "--no-ter", "--target-lang", "en"],
            "score ter, but .* leave --no-ter out",
        ),
        (["--record", "x"], "--record must be KEY=VALUE"),
    ],
)
def test_flags_that_do_not_fit_are_refused_before_any_file_is_read(run_evaluate, tmp_path, flags, words):
    with pytest.raises(ValueError, match=words):
        run_evaluate("--generation-log", tmp_path / "never-read", *flags)


def test_plain_text_needs_references_and_a_checkpoint_data(run_evaluate, tmp_path):
    with pytest.raises(ValueError, match="--hypotheses needs --references, but got none"):
        run_evaluate("--hypotheses", "x")
    with pytest.raises(ValueError, match="--path needs --data, but got none"):
        run_evaluate("--path", "x")
    with pytest.raises(
        FileNotFoundError, match=r"--data must name a folder that fairseq-preprocess wrote, but .*no does not"
    ):
        run_evaluate("--path", "x", "--data", tmp_path / "no")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="--data must name a folder"):
        run_evaluate("--path", "x", "--data", tmp_path / "file")
    with pytest.raises(
        FileNotFoundError, match="--path must name a checkpoint or a folder with one, but x does not exist"
    ):
        run_evaluate("--path", "x", "--data", tmp_path)


def test_a_log_is_not_replaced_by_its_scores(log, capsys):
    before = log.read_bytes()
    assert cli.main(["evaluate", "--generation-log", str(log), "--output", str(log)]) == 2
    assert f"--output must not replace what is read, but {log} is read too" in capsys.readouterr().err
    assert log.read_bytes() == before


@pytest.mark.parametrize("flag", ["--raw-references", "--record-file"])
def test_what_else_is_read_is_not_replaced_either(log, tmp_path, capsys, flag):
    path = tmp_path / "read"
    path.write_text("{}")
    command = ["evaluate", "--generation-log", str(log), "--target-lang", "en", flag, str(path), "--output", str(path)]
    assert cli.main(command) == 2
    assert f"--output must not replace what is read, but {path} is read too" in capsys.readouterr().err
    assert path.read_text() == "{}"


def test_a_plot_replaces_neither_what_is_read_nor_the_scores(log, tmp_path, capsys):
    other = shutil.copy(log, tmp_path / "other.svg")
    words = ["evaluate", "--generation-log", str(log), "--length-buckets", "5", "--plot"]
    assert cli.main([*words, str(other), "--versus", str(other)]) == 2
    assert f"--plot must not replace what is read, but {other} is read too" in capsys.readouterr().err
    assert other.read_bytes() == log.read_bytes()
    both = str(tmp_path / "both.svg")
    assert cli.main([*words, both, "--output", both]) == 2
    assert f"--plot must be another file than --output, but both are {both}; name another." in capsys.readouterr().err
    assert not (tmp_path / "both.svg").exists()


def test_another_systems_log_is_not_replaced_by_a_translation(log, tmp_path, capsys):
    other = log.rename(tmp_path / "generate-test.txt")
    before = other.read_bytes()
    command = ["evaluate", "--path", "x", "--data", str(tmp_path), "--results-path", str(tmp_path), "--versus"]
    assert cli.main([*command, str(other)]) == 2
    assert f"--results-path must not replace what is read, but {other} is read too" in capsys.readouterr().err
    assert other.read_bytes() == before


def test_settings_need_a_file_to_be_recorded_in(log, capsys):
    assert cli.main(["evaluate", "--generation-log", str(log), "--record", "seed=1"]) == 2
    assert "--record works only together with --output; add that or leave it out" in capsys.readouterr().err


def test_scores_are_kept_where_the_figure_fails(log, tmp_path, monkeypatch):
    def fail(*_):
        raise ValueError("no figure")

    monkeypatch.setattr(evaluate, "draw_length_plot", fail)
    sources, output = tmp_path / "sources", tmp_path / "scores.json"
    sources.write_text("a b\n" * len(HYPOTHESES))
    flags = ["--sources", str(sources), "--plot", str(tmp_path / "a.svg"), "--output", str(output)]
    assert cli.main(["evaluate", "--generation-log", str(log), *flags]) == 2
    assert json.loads(output.read_text())["scores"]


def test_outputs_are_checked_first(run_evaluate, tmp_path, log):
    with pytest.raises(IsADirectoryError, match="--plot must name a file"):
        run_evaluate("--generation-log", log, "--plot", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"--plot must be in an existing folder, but .*absent does not exist"):
        run_evaluate("--generation-log", log, "--plot", tmp_path / "absent" / "a.png")


def test_missing_matplotlib_is_said_before_the_work(run_evaluate, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="--plot needs matplotlib"):
        run_evaluate("--generation-log", "never-read", "--plot", tmp_path / "a.png")


def test_nothing_is_written_when_an_input_is_bad(log, tmp_path, capsys):
    output = tmp_path / "out.json"
    log.write_bytes(log.read_bytes() + b"H-9\t-1\t\xff\n")
    assert cli.main(["evaluate", "--generation-log", str(log), "--output", str(output)]) == 2
    assert re.match(r"muse-plugin evaluate: error: .*line \d+ of .* has the byte 0xff", capsys.readouterr().err)
    assert not output.exists()


def test_exactly_one_input_is_asked_for(capsys):
    assert cli.main(["evaluate"]) == 2
    assert "one of the arguments --generation-log --hypotheses --path is required" in capsys.readouterr().err
    assert cli.main(["evaluate", "--generation-log", "a", "--hypotheses", "b"]) == 2


def test_command_line_has_the_verdict_as_its_exit_code(log, capsys):
    assert cli.main(["evaluate", "--generation-log", str(log), "--expect", "99", "100"]) == 1
    assert capsys.readouterr().out.rstrip().split("\n")[-1].startswith("OUTSIDE: tokenised BLEU")
    assert cli.main(["evaluate", "--generation-log", str(log)]) == 0


def test_names_are_as_short_as_they_can_be(tmp_path):
    paths = [tmp_path / "muse" / "log", tmp_path / "base" / "log"]
    assert shorten_names(paths) == ["muse/log", "base/log"]
    assert shorten_names([tmp_path / "a", tmp_path / "b"]) == ["a", "b"]
    assert shorten_names([tmp_path / "a", tmp_path / "a"]) == ["1: a", "2: a"]
