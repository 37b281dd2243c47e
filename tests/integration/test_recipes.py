"""Every recipe from its raw files to results.json, as a trial on real sentences; and what may go wrong."""

import gzip
import io
import json
import subprocess
import sys
import tarfile
from itertools import product
from pathlib import Path

import pytest
from sacremoses import MosesDetokenizer, MosesTokenizer
from support.helpers import REPOSITORY, assert_refused, recipe_environment
from support.recipes import EXAMPLES, run_trial, run_trials

from muse_plugin.inference.streaming import Line
from muse_plugin.inference.translate import Translator

DATA = REPOSITORY.parent / "shared" / "data"


def sample(folder, name):
    """The lines of a sample of real data; skips where the samples are absent."""
    path = DATA / folder / name
    if not path.is_file():
        pytest.skip(f"the real sentences {path.name} are not here")
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return text.decode("utf-8").split("\n")


def raw(lines, lang):
    """Tokenised text as it may have been before."""
    detokenizer = MosesDetokenizer(lang=lang)
    return [detokenizer.detokenize(line.replace("@@ ", "").split()) for line in lines]


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def make_tar(path, members):
    """An archive of texts, each given as its lines; a name that ends in .gz is compressed."""
    with tarfile.open(path, "w:gz" if path.suffix in (".tgz", ".gz") else "w") as archive:
        for name, lines in members.items():
            text = "".join(f"{line}\n" for line in lines).encode("utf-8")
            content = gzip.compress(text) if name.endswith(".gz") else text
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def segments(lines, header="<doc docid='1'>"):
    """A test set as NIST's XML or SGML."""
    return [header, *(f'<seg id="{n}"> {line} </seg>' for n, line in enumerate(lines, start=1)), "</doc>"]


def make_multi30k(folder):
    for path in (DATA / "multi30k").glob("*"):
        (folder / path.name).symlink_to(path)
    sample("multi30k", "val.lc.norm.tok.de")


def make_iwslt14(folder):
    """The archive as it is: tags around and between sentences, XML test sets."""
    members = {}
    for lang in ("de", "en"):
        sentences = raw(sample("iwslt14-de-en", f"train-sample1.bpe.{lang}.gz")[:300], lang)
        header = ["<url>http://example.org</url>", "<keywords>talks</keywords>", "<talkid>1</talkid>"]
        members[f"de-en/train.tags.de-en.{lang}"] = [*header, "<title>A talk</title>", *sentences]
        tests = raw(sample("iwslt14-de-en", f"test.{lang}.gz")[:50], lang)
        for i, name in enumerate(["TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"]):
            members[f"de-en/IWSLT14.{name}.de-en.{lang}.xml"] = segments(tests[10 * i : 10 * i + 10])
    make_tar(folder / "de-en.tgz", members)


def make_iwslt15(folder):
    for lang, name in (("en", "src"), ("vi", "tgt")):
        write(folder / f"train.{lang}", [*sample("iwslt15-en-vi-30k", f"{name}-train.txt.gz")[:300], ""])
        for test in ("tst2012", "tst2013"):
            write(folder / f"{test}.{lang}", sample("iwslt15-en-vi", f"{test}.{lang}")[:-1])


def make_wmt_en_de(folder):
    """A trial takes the smallest of the corpora."""
    source, target = (
        raw(sample("wmt-en-de-10k", f"{n}-train.txt.gz")[:300], c) for n, c in (("src", "en"), ("tgt", "de"))
    )
    corpus = "training-parallel-nc-v11/news-commentary-v11"
    members = {f"{corpus}.cs-en.en": ["x"], f"{corpus}.de-en.de": target, f"{corpus}.de-en.en": source}
    make_tar(folder / "training-parallel-nc-v11.tgz", members)
    valid = {
        lang: raw(sample("wmt-en-de-10k", f"{n}-val.txt")[:-1], lang) for n, lang in (("src", "en"), ("tgt", "de"))
    }
    members = {f"dev/newstest2013.{lang}": lines for lang, lines in valid.items()}
    members["dev/newstest2014-deen-src.de.sgm"] = segments(valid["de"][:20])
    members["dev/newstest2014-deen-ref.en.sgm"] = segments(valid["en"][:20])
    make_tar(folder / "dev.tgz", members)


def make_wmt_en_de_published(folder):
    """The authors' own archive, already segmented."""
    members = {"bpe.32000": ["#version: 0.2", "e n</w>"]}
    texts = zip(*(sample("wmt-en-de-10k", f"{side}-train.txt.gz") for side in ("src", "tgt")), strict=True)
    pairs = [pair for pair in texts if all(pair)]  # the authors' text is without empty lines
    for name, count in {"train.tok.clean": 420, "newstest2013.tok": 30, "newstest2014.tok": 20}.items():
        for i, lang in enumerate(("en", "de")):
            members[f"{name}.bpe.32000.{lang}"] = [pair[i] for pair in pairs[:count]]
    make_tar(folder / "wmt16_en_de.tar.gz", members)


def make_wmt_en_fr(folder):
    """A trial takes the smallest of the corpora."""
    text = {lang: raw(sample("multi30k", f"train.lc.norm.tok.{lang}.gz")[:300], lang) for lang in ("en", "fr")}
    members = {f"training/news-commentary-v9.fr-en.{lang}": lines for lang, lines in text.items()}
    make_tar(folder / "training-parallel-nc-v9.tgz", members)
    test = {lang: raw(sample("multi30k", f"val.lc.norm.tok.{lang}")[:20], lang) for lang in ("en", "fr")}
    members = {
        "dev/newstest2014-fren-src.fr.sgm": segments(test["fr"]),
        "dev/newstest2014-fren-ref.en.sgm": segments(test["en"]),
        **{f"dev/newstest2012.{lang}": lines[:7] for lang, lines in test.items()},
        **{f"dev/newstest2013.{lang}": lines[7:12] for lang, lines in test.items()},
    }
    make_tar(folder / "dev.tgz", members)


def make_tatoeba(folder):
    sample("tatoeba-en-de", "deu.txt.gz")
    (folder / "deu.txt.gz").symlink_to(DATA / "tatoeba-en-de" / "deu.txt.gz")


@pytest.fixture
def raw_dir(tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    return folder


def check_model_folder(folder, segmented):
    """It translates, and cuts words as the training data was cut."""
    moved = folder.rename(folder.with_name("moved"))
    translator = Translator.load(moved, cpu=True)
    lines = (segmented / f"valid.{translator.pipeline.source_lang}").read_text(encoding="utf-8").splitlines()[:20]
    detokenizer = MosesDetokenizer(lang=translator.pipeline.source_lang)
    if translator.pipeline.source.settings.subwords == "sentencepiece":
        words = [line.replace(" ", "").replace("\u2581", " ").split() for line in lines]
    else:
        words = [line.replace("@@ ", "").split() for line in lines]
    split = translator.pipeline.source.settings.tokenizer == "none"
    texts = [" ".join(line) if split else detokenizer.detokenize(line) for line in words]
    same = sum(translator.pipeline.encode_source(text) == line for text, line in zip(texts, lines, strict=True))
    assert same >= (len(lines) if split else 0.8 * len(lines))  # of lower-cased text the ends of sentences differ
    assert len(translator.translate_lines([Line(1, texts[0])])) == 1


def check_run(run, segmented, settings):
    """The model folder and the results of a run that was evaluated."""
    check_model_folder(run / "model", segmented)
    files = sorted(run.rglob("results/*.json")) or [run / "results.json"]
    for path in files:
        result = json.loads(path.read_text(encoding="utf-8"))
        assert result["num_sentences"] > 0
        assert 0 <= result["scores"]["tokenized_bleu"]["mean"] <= 100
        assert result["scores"]["bleu"]["signature"].startswith("nrefs:1|")
        assert result["settings"]["model"] == settings.get("MODEL", "muse")
        assert str(result["settings"]["seed"]) == settings.get("SEED", "1")
        assert "fairseq-train" in result["settings"]["train_command"]
        assert "seconds_train" in result["settings"]
        assert result["versions"]["torch"]
        assert "git" in result


TRIALS = [
    ("multi30k", make_multi30k,
     {"MODEL": "plain_transformer", "ATTENTION": "both", "SUBWORDS": "sentencepiece", "MERGES": "400"},
     "en-de-plain_transformer-both-sentencepiece-unigram-seed1"),
    ("iwslt15_en_vi", make_iwslt15, {"MODEL": "muse_simple", "SIMCUT": "1", "BPE_DROPOUT": "0.1", "SEED": "2"},
     "muse_simple-simcut-bpe-dropout-seed2"),
    ("wmt14_en_de", make_wmt_en_de, {}, "muse-seed1"),
    ("wmt14_en_fr", make_wmt_en_fr, {}, "muse-seed1"),
    ("iwslt14_de_en", make_iwslt14, {"SUBWORDS": "sentencepiece:bpe", "JOINT": "0", "BPE_DROPOUT": "0.1"},
     "muse-sentencepiece-bpe-separate-bpe-dropout-seed1"),
    ("tatoeba_de_en", make_tatoeba, {"MODEL": "transformer", "RDROP": "1"}, "transformer-rdrop-seed1"),
]  # fmt: skip


@pytest.mark.parametrize(("recipe", "make", "settings", "run"), TRIALS, ids=[f"{t[0]}-{t[3]}" for t in TRIALS])
def test_a_trial_runs_from_raw_files_to_results(tmp_path, raw_dir, recipe, make, settings, run):
    make(raw_dir)
    work_dir = tmp_path / "work"
    run_trials(recipe, raw_dir, work_dir, **settings)
    check_run(work_dir / run, next(work_dir.glob("*/bpe")), settings)
    again = run_trial(recipe, "train", raw_dir, work_dir, **settings)
    assert again.returncode == 0
    assert "done before" in again.stdout


def test_an_ablation_trains_rows_and_tabulates_them(tmp_path, raw_dir):
    make_multi30k(raw_dir)
    work_dir = tmp_path / "work"
    settings = {"RECIPE": "multi30k", "ROWS": "muse dynamicconv", "SEEDS": "2", "TRIAL": "1"}
    environment = recipe_environment(WORK_DIR=str(work_dir), RAW_DIR=str(raw_dir), **settings)
    command = ["bash", str(EXAMPLES / "recipe" / "ablation.sh"), "--dropout", "0.2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    table = (work_dir / "ablation.md").read_text(encoding="utf-8")
    assert done.stdout.endswith(table)
    assert [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")] == settings["ROWS"].split()
    assert "35.7 (-0.6)" in table
    for row in settings["ROWS"].split():
        command = (work_dir / f"en-de-{row}-seed2" / "train-command.txt").read_text(encoding="utf-8")
        assert "--dropout 0.2" in command
        assert str(work_dir / "en-de" / "bin") in command  # one preparation for all
    assert (work_dir / "en-de" / "times.tsv").read_text(encoding="utf-8").count("binarise") == 1


def read_lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def test_the_data_of_the_papers_text_can_be_chosen(tmp_path, raw_dir):
    prepared = {}
    for recipe, make, settings in (
        ("iwslt15_en_vi", make_iwslt15, {"SUBWORDS": "none"}),
        ("wmt14_en_fr", make_wmt_en_fr, {"VALID": "newstest"}),
        ("iwslt14_de_en", make_iwslt14, {"MERGES": "320", "DICTIONARY": "joined"}),
    ):
        make(raw_dir)
        prepared[recipe] = tmp_path / recipe / "data"
        run_trials(recipe, raw_dir, tmp_path / recipe, ("prepare",), **settings)
    words = prepared["iwslt15_en_vi"]
    assert "subwords=none" in read_lines(words / "settings.txt")
    for lang in ("en", "vi"):
        known = {line.split()[0] for line in read_lines(words / "bin" / f"dict.{lang}.txt")}
        text = {word for line in read_lines(words / "text" / f"train.{lang}") for word in line.split()}
        assert text <= known
    news = prepared["wmt14_en_fr"]
    assert len(read_lines(news / "text" / "valid.fr")) == 12
    assert read_lines(news / "text" / "train.fr") == read_lines(news / "tokenized" / "all.fr")
    joined = prepared["iwslt14_de_en"]
    assert read_lines(joined / "bin" / "dict.de.txt") == read_lines(joined / "bin" / "dict.en.txt")
    assert "dictionary=joined" in read_lines(joined / "settings.txt")


@pytest.mark.parametrize(
    ("recipe", "make_raw", "data", "run", "langs"),
    [
        ("iwslt14_de_en", make_iwslt14, "data", "muse-bidirectional-simcut-seed1", ("de", "en")),
        ("multi30k", make_multi30k, "en-de", "en-de-muse-bidirectional-simcut-seed1", ("en", "de")),
    ],
)
def test_both_directions_first_then_one(recipe, make_raw, data, run, langs, tmp_path, raw_dir):
    make_raw(raw_dir)
    work_dir = tmp_path / "work"
    for script, settings in [
        ("prepare", {"BIDIRECTIONAL": "pretrain"}),
        ("train", {"BIDIRECTIONAL": "pretrain"}),
        ("train", {"BIDIRECTIONAL": "finetune", "SIMCUT": "1"}),
    ]:
        done = run_trial(recipe, script, raw_dir, work_dir, **settings)
        assert done.returncode == 0, done.stdout + done.stderr
    both = (work_dir / data / "bpe-both" / f"train.{langs[0]}").read_text(encoding="utf-8").splitlines()
    one = [(work_dir / data / "bpe" / f"train.{lang}").read_text(encoding="utf-8").splitlines() for lang in langs]
    assert both == one[0] + one[1]
    assert "finetune-from-model" in (work_dir / run / "train-command.txt").read_text()
    log = (work_dir / run / "train.log").read_text(encoding="utf-8")
    assert "loading pretrained model from" in log
    if recipe == "iwslt14_de_en":
        run_trials(recipe, raw_dir, work_dir, ("evaluate",), BIDIRECTIONAL="finetune", SIMCUT="1")
        check_run(work_dir / run, work_dir / data / "bpe", {})


def test_a_trial_takes_a_part_of_the_authors_archive_of_wmt14(tmp_path, raw_dir):
    make_wmt_en_de_published(raw_dir)
    done = run_trial("wmt14_en_de", "prepare", raw_dir, tmp_path / "work")
    assert done.returncode == 0, done.stdout + done.stderr
    data = tmp_path / "work" / "data"
    assert "kind=published" in (data / "settings.txt").read_text()
    assert len((data / "bpe" / "train.de").read_text(encoding="utf-8").splitlines()) == 400
    assert (data / "bin" / "dict.en.txt").read_bytes() == (data / "bin" / "dict.de.txt").read_bytes()


def test_another_archive_than_the_authors_is_refused(tmp_path, raw_dir):
    make_wmt_en_de_published(raw_dir)
    done = run_trial("wmt14_en_de", "prepare", raw_dir, tmp_path / "work", TRIAL="0")
    assert_refused(done, "wmt16_en_de.tar.gz has the SHA-256")


def test_published_iwslt14_text_is_segmented_into_the_published_bytes(tmp_path):
    program = str(Path(sys.executable).parent / "subword-nmt")
    for part, lang in product(("valid", "test"), ("de", "en")):
        lines = sample("iwslt14-de-en", f"{part}.{lang}.gz")
        words = [program, "apply-bpe", "-c", str(DATA / "iwslt14-de-en" / "bpe.codes")]
        done = subprocess.run(words, input="\n".join(lines).encode("utf-8"), capture_output=True, check=True)
        published = sample("iwslt14-de-en", f"{part}.bpe.{lang}.gz")
        assert done.stdout.decode("utf-8").split("\n") == published
        assert [line.replace("@@ ", "") for line in published] == lines


@pytest.mark.parametrize("lang", ["de", "en"])
def test_published_iwslt14_text_is_tokenised_as_published(lang):
    """As far as can be told from lower-cased text: whether a full stop ends a sentence depends on the next letter."""
    lines = sample("iwslt14-de-en", f"test.{lang}.gz")[:2000]
    tokenizer = MosesTokenizer(lang=lang)
    again = [tokenizer.tokenize(line, return_str=True).lower() for line in raw(lines, lang)]
    same = sum(line == other for line, other in zip(lines, again, strict=True))
    without_stops = sum(
        line.replace(" .", ".") == other.replace(" .", ".") for line, other in zip(lines, again, strict=True)
    )
    assert same > 0.9 * len(lines)
    assert without_stops > 0.998 * len(lines)


# ---- what can be wrong -----------------------------------------------------------------------------------------------


def test_a_step_that_fails_is_done_again_and_what_is_finished_is_not(tmp_path, raw_dir):
    make_iwslt15(raw_dir)
    work_dir = tmp_path / "work"
    (raw_dir / "train.en").write_bytes((raw_dir / "train.en").read_bytes().split(b"\n", 100)[-1])
    (raw_dir / "tst2013.vi").write_bytes(b"\xff\xfe broken\n" + (raw_dir / "tst2013.vi").read_bytes())
    for sentence in (
        "line n of one file must translate line n of the other, but",
        "test.vi, line 1: must be UTF-8, but is not",
    ):
        done = run_trial("iwslt15_en_vi", "prepare", raw_dir, work_dir)
        assert done.returncode == 2
        assert sentence in done.stderr
        assert "the step 'copy, count the lines, drop empty ones' failed, its whole output is in" in done.stderr
        assert not (work_dir / "data" / ".unpack.done").exists()
        write(raw_dir / "train.en", [*sample("iwslt15-en-vi-30k", "src-train.txt.gz")[:300], ""])
    make_iwslt15(raw_dir)
    done = run_trial("iwslt15_en_vi", "prepare", raw_dir, work_dir)
    assert done.returncode == 0, done.stderr
    assert "fetch the files: done before" in done.stdout


def test_other_settings_in_the_same_folder_are_refused(tmp_path, raw_dir):
    make_iwslt15(raw_dir)
    work_dir = tmp_path / "work"
    assert run_trial("iwslt15_en_vi", "prepare", raw_dir, work_dir).returncode == 0
    done = run_trial("iwslt15_en_vi", "prepare", raw_dir, work_dir, MERGES="77")
    assert_refused(done, "was made with other settings (<) than those of now (>)", "> merges=77")


@pytest.mark.parametrize(
    ("script", "settings", "sentence"),
    [
        ("train", {}, "there is no data in"),
        ("evaluate", {}, "there is no finished training in"),
        (
            "train",
            {"MODEL": "lstm"},
            "MODEL must be one of muse muse_simple transformer plain_transformer dynamicconv, but is 'lstm'.",
        ),
        (
            "train",
            {"ATTENTION": "local"},
            "ATTENTION must be none, multi-scale, distance, both, multi-scale-layers or ",
        ),
        (
            "train",
            {"MODEL": "transformer", "ATTENTION": "both"},
            "needs a model of this plugin, but MODEL is transformer",
        ),
        ("prepare", {"TARGET_LANG": "cs"}, "TARGET_LANG must be de or fr, but is 'cs'."),
        ("train", {"SIMCUT": "1", "RDROP": "1"}, "SIMCUT and RDROP are two criterions: set one of them."),
    ],
)
def test_a_wrong_setting_is_named(tmp_path, raw_dir, script, settings, sentence):
    assert_refused(run_trial("multi30k", script, raw_dir, tmp_path / "work", **settings), sentence)


@pytest.mark.parametrize(
    ("gpus", "nodes", "most", "expected"),
    [
        ("1", "1", "4000", "16000 tokens per update = 4000 per batch x 4 accumulated x 1 devices"),
        ("0", "1", "4000", "16000 tokens per update = 4000 per batch x 4 accumulated x 1 devices"),
        ("3", "1", "4000", "15996 tokens per update = 2666 per batch x 2 accumulated x 3 devices"),
        ("8", "1", "4000", "16000 tokens per update = 2000 per batch x 1 accumulated x 8 devices"),
        ("4", "2", "1000", "16000 tokens per update = 1000 per batch x 2 accumulated x 8 devices"),
    ],
)
def test_tokens_per_update_stay_whatever_the_devices(tmp_path, gpus, nodes, most, expected):
    program = (
        f". {EXAMPLES}/recipe/recipe.sh; SKIP_SETUP=1 WORK_DIR={tmp_path} start_recipe test; "
        f"NUM_GPUS={gpus} NUM_NODES={nodes} find_devices; MAX_TOKENS={most} plan_batches 16000 4000; echo $update_freq"
    )
    done = subprocess.run(
        ["bash", "-c", program], capture_output=True, text=True, env=recipe_environment(NUM_GPUS=gpus), check=False
    )
    assert expected in done.stdout, done.stdout + done.stderr
