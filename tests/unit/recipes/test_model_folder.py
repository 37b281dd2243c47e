"""The text pipeline of each recipe makes of raw sentences what its prepare.sh makes of them."""

import gzip
import io
import subprocess
from dataclasses import replace

import pytest
from sacremoses import MosesDetokenizer
from subword_nmt.apply_bpe import BPE
from support.helpers import REPOSITORY, recipe_environment

from muse_plugin.text.text_pipeline import TextPipeline, make_word_splitter
from muse_plugin.text.text_settings import FILE_NAME

DATA = REPOSITORY.parent / "shared" / "data"
RECIPES = ["multi30k", "iwslt14_de_en", "iwslt15_en_vi", "wmt14_en_de", "wmt14_en_fr", "tatoeba_de_en"]
LANGUAGES = {"iwslt15_en_vi": ["en", "vi"], "wmt14_en_fr": ["en", "fr"], "multi30k": ["en", "de"]}
LINES = [
    "The well-known “station” isn't in St. Louis, is it?",
    "Die „Straße“ ist 3,5 km lang & schön – wirklich!",
    "L'été, c'est-à-dire « maintenant » : 10 000 € (environ)...",
    "Write to a@b.example at 2:30 <s> | [x]  ",
    "Hôm nay trời đẹp , phải không ? &apos;",
    "It 's 5 % \u2019 of e-mail-addresses",
    "",
]
CODES = "#version: 0.2\nt h\nth e</w>\ni n\ne n</w>\ne r</w>\n"


def more_lines(recipe, lang):
    """A thousand real sentences of a language, as near to those of the recipe as there are; none where they are not."""
    if recipe == "iwslt15_en_vi":
        path = DATA / "iwslt15-en-vi" / f"tst2013.{lang}"
        return path.read_text(encoding="utf-8").split("\n")[:1000] if path.is_file() else []
    if lang == "fr" or recipe == "multi30k":
        path = DATA / "multi30k" / f"test_2016_flickr.lc.norm.tok.{lang}"
        detokenizer = MosesDetokenizer(lang=lang)
        lines = path.read_text(encoding="utf-8").split("\n")[:1000] if path.is_file() else []
        return [detokenizer.detokenize(line.split()) for line in lines]
    path = DATA / "tatoeba-en-de" / "deu.txt.gz"
    if not path.is_file():
        return []
    pairs = gzip.decompress(path.read_bytes()).decode("utf-8").split("\n")[:-1]
    return [pair.split("\t")[lang == "de"] for pair in pairs[:: len(pairs) // 1000]]


@pytest.fixture
def save(tmp_path):
    """Runs ``save_model`` with the settings of a recipe; returns the flags of the text, the folder and the output."""

    def save_model(recipe, codes=CODES, **settings):
        (tmp_path / "bpe.codes").write_text(codes, encoding="utf-8")
        source, target = LANGUAGES.get(recipe, ["de", "en"])
        for name in (f"dict.{source}.txt", f"dict.{target}.txt", "checkpoint_avg.pt"):
            (tmp_path / name).write_text("the 2\ne 1\n")
        program = f"""set -euo pipefail
            . '{REPOSITORY}/examples/{recipe}/common.sh'
            printf '%s ' "${{text_flags[@]+"${{text_flags[@]}}"}}"
            save_model '{tmp_path}' '{tmp_path}/checkpoint_avg.pt' '{tmp_path}' '{tmp_path}' {source} {target} 3>&2"""
        done = subprocess.run(
            ["bash", "-c", program], env=recipe_environment(WORK_DIR=str(tmp_path), **settings), capture_output=True,
            text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return set(done.stdout.split()), tmp_path / "model", done.stderr

    return save_model


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_raw_sentence_gets_the_tokens_of_the_recipe(corpus, save, recipe):
    flags, folder, shown = save(recipe)
    source, target = LANGUAGES.get(recipe, ["de", "en"])
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["bpe.codes", "checkpoint_avg.pt", f"dict.{source}.txt", f"dict.{target}.txt", FILE_NAME]
    )
    assert f"muse-plugin translate --path {folder}" in shown
    pipeline = TextPipeline.load(folder)
    assert (pipeline.source_lang, pipeline.target_lang) == (source, target)
    bpe = BPE(io.StringIO(CODES))
    for lang, encode in ((source, pipeline.encode_source), (target, pipeline.encode_target)):
        for line in LINES + more_lines(recipe, lang):
            words = line
            if "--detokenize" not in flags:
                switches = (f"--{name}" in flags for name in ("normalize", "aggressive-hyphens", "lower-case"))
                words = corpus.tokenize_line(line, lang, *switches)
            elif "<s>" in line:
                continue  # would read as the start of a sentence: the pipeline alone makes it harmless
            assert encode(line).split() == bpe.process_line(words).split(), line


@pytest.mark.parametrize("lang", ["en", "de", "fr"])
def test_the_words_of_multi30k_are_those_that_its_pipeline_makes(lang, save):
    path = DATA / "multi30k" / f"test_2016_flickr.lc.norm.tok.{lang}"
    if not path.is_file():
        pytest.skip("Multi30k is not here")
    settings = replace(TextPipeline.load(save("multi30k")[1]).source.settings, lang=lang)
    words_of = make_word_splitter(settings).split
    detokenizer = MosesDetokenizer(lang=lang)
    for line in path.read_text(encoding="utf-8").splitlines():
        assert " ".join(words_of(detokenizer.detokenize(line.split()).capitalize())) == line


def test_the_words_of_text_without_subwords_are_its_tokens(save):
    _, folder, _ = save("iwslt15_en_vi", SUBWORDS="none")
    assert not (folder / "bpe.codes").exists()
    pipeline = TextPipeline.load(folder)
    assert pipeline.encode_source("It 's 5 % of it") == "It 's 5 % of it"
    assert pipeline.decode("Hôm nay") == "Hôm nay"


def test_codes_of_an_old_version_give_a_warning_and_no_folder(save):
    _, folder, shown = save("wmt14_en_de", codes="e n</w>\n")
    assert "bpe.codes is not of version 0.2" in shown
    assert not folder.exists()
