"""``muse-plugin view`` as a person meets it: the real command, its page in a real browser without a window."""

import json
import re
import shutil
import signal
import subprocess
import threading
import urllib.request
from pathlib import Path

import pytest
from support.helpers import REPOSITORY, assert_close
from support.view_models import GATED, make_model_folder
from support.warm_python import find_python

from muse_plugin_command import cli

SENTENCE = "Wo ist der Zug?"
MARKUP = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
# As root a browser starts without its sandbox only; the rest keeps it from asking its maker's hosts for anything.
BROWSER_FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
START = "import sys; from muse_plugin_command import cli; sys.exit(cli.main(sys.argv[1:]))"
TIMEOUT = 120  # seconds, for a machine that is busy


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Where the page is while the command runs; afterwards Ctrl-C must end it cleanly."""
    folder = make_model_folder(tmp_path_factory.mktemp("model"), "muse_tiny", *GATED, "--max-source-positions=100")
    flags = ["--path", str(folder), "--port", "0", "--beam", "3", "--cpu", "--no-browser"]
    process = subprocess.Popen(
        [find_python(), "-c", START, "view", *flags],
        cwd=REPOSITORY,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    watchdog = threading.Timer(TIMEOUT, process.kill)
    watchdog.start()
    line = process.stdout.readline()
    watchdog.cancel()
    found = re.fullmatch(
        rf"{re.escape(str(folder))} can be viewed at (http://127\.0\.0\.1:\d+/) \(Ctrl-C ends\)\n", line
    )
    if found is None:
        process.kill()
        pytest.fail(f"muse-plugin view printed {line!r} and {process.communicate()[1]!r}")
    yield found[1]
    process.send_signal(signal.SIGINT)
    try:
        output, errors = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
    assert (process.returncode, output) == (0, "")
    # The checkpoint that was chosen, and that the words of these tests are not those that the subwords make.
    chosen, warned = errors.splitlines()
    assert chosen == f"using checkpoint_avg.pt, the only checkpoint in the folder {folder}"
    assert "the text pipeline must be that of the training text" in warned


@pytest.fixture(scope="module")
def browser():
    """A real browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip("needs playwright: pip install playwright")
    with sync_playwright() as playwright:
        installed = next((path for name in BROWSERS if (path := shutil.which(name))), None)
        if installed is None and not Path(playwright.chromium.executable_path).is_file():
            pytest.skip("needs a browser: apt-get install chromium, or playwright install chromium")
        running = playwright.chromium.launch(executable_path=installed, args=BROWSER_FLAGS)
        yield running
        running.close()


@pytest.fixture
def exported_address(tmp_path):
    """Where the page of an exported folder is."""
    pytest.importorskip("onnxruntime", reason="needs the extra 'export'")
    (tmp_path / "model").mkdir()
    folder = make_model_folder(tmp_path / "model")
    words = ["--path", str(folder), "--output", str(tmp_path / "exported")]
    assert cli.main(["export", *words]) == 0
    flags = ["--path", str(tmp_path / "exported"), "--port", "0", "--beam", "3", "--no-browser"]
    command = [find_python(), "-c", START, "view", *flags]
    with subprocess.Popen(command, cwd=REPOSITORY, text=True, stdout=subprocess.PIPE) as process:
        try:
            yield re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())[0]
        finally:
            process.kill()


def test_the_page_of_an_exported_folder_leaves_out_what_it_cannot_show(exported_address, browser):
    opened = browser.new_page()
    complaints = []
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.goto(exported_address)
    opened.wait_for_selector("#search:not(:empty)")
    translate(opened, SENTENCE)
    answer = ask_server(exported_address, SENTENCE)
    assert opened.inner_text("#translation") == answer["hypotheses"][0]["text"] != ""
    assert [row[0] for row in read_table(opened, "#nbest tbody")] == [" 1", " 2", " 3"]
    assert [row[0] for row in read_table(opened, "#tokens")] == ["Token"]
    assert opened.inner_text("#attention-note") == answer["attention_note"] != ""
    assert not opened.is_visible("#attention")
    assert not opened.is_visible("#gates")
    assert complaints == []
    opened.close()


@pytest.fixture
def page(address, browser):
    """The page, opened; it may ask nobody but the server, and nothing may go wrong in it."""
    context = browser.new_context(viewport={"width": 1000, "height": 900})
    context.set_default_timeout(1000 * TIMEOUT)
    opened = context.new_page()
    complaints, asked = [], []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(address)
    opened.wait_for_selector("#gates:not([hidden])")
    yield opened
    context.close()
    assert [url for url in asked if not url.startswith(address)] == []
    assert [text for text in complaints if not text.startswith("Failed to load resource")] == []


def ask_server(address, text):
    request = urllib.request.Request(
        f"{address}inspect", json.dumps({"text": text}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        return json.load(response)


def translate(page, text):
    """Types a sentence and presses Enter; returns when there is an answer."""
    page.fill("#text", text)
    page.press("#text", "Enter")
    page.wait_for_selector("#translate:not([aria-disabled])")


def read_table(page, selector):
    return page.eval_on_selector_all(
        f"{selector} tr", "rows => rows.map(row => [...row.cells].map(c => c.textContent))"
    )


def read_map(page):
    """The opacity of each cell, row by row, as one list."""
    return page.eval_on_selector_all("#map .heat", "cells => cells.map(c => Number(c.getAttribute('fill-opacity')))")


def show(number):
    return f"{number:.3f}".replace("-", "\N{MINUS SIGN}")


def flatten(weights):
    return [weight for row in weights for weight in row]


def test_the_command_translates_without_a_browser_and_ctrl_c_ends_it(address):
    answer = ask_server(address, SENTENCE)
    assert len(answer["hypotheses"]) == 3


def test_a_typed_sentence_shows_translation_n_best_and_heat_map(address, page):
    expected = ask_server(address, SENTENCE)
    best = expected["hypotheses"][0]
    translate(page, SENTENCE)
    assert page.text_content("#error") == ""
    assert page.inner_text("#translation") == best["text"] != ""
    assert page.inner_text("#status").startswith("3 translations in ")
    assert page.inner_text("#status").endswith(f"The best: {best['text']}")
    assert read_table(page, "#nbest tbody") == [
        [f" {number}", hypothesis["text"], show(hypothesis["score"])]
        for number, hypothesis in enumerate(expected["hypotheses"], start=1)
    ]
    tokens = [token["text"] for token in best["tokens"]]
    assert read_table(page, "#tokens")[:2] == [
        ["Token", *tokens],
        ["Score", *(show(token["score"]) for token in best["tokens"])],
    ]
    assert page.input_value("#layer") == "2"
    assert_close(read_map(page), flatten(best["attention"][1]["weights"]), atol=0, rtol=0)
    labels = page.eval_on_selector_all("#map text", "texts => texts.map(text => text.textContent)")
    assert labels[2:] == [*(token["text"] for token in expected["source"]), *tokens]
    page.click("#numbers summary")
    page.wait_for_selector("#weights tbody tr")
    assert read_table(page, "#weights") == [
        ["Token written", *(token["text"] for token in expected["source"])],
        *([token, *map(show, row)] for token, row in zip(tokens, best["attention"][1]["weights"], strict=True)),
    ]


def test_hypothesis_and_layer_are_chosen_from_the_keyboard(address, page):
    hypotheses = ask_server(address, SENTENCE)["hypotheses"]
    translate(page, SENTENCE)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "translate"
    page.focus("#nbest input:checked")
    page.keyboard.press("ArrowDown")
    assert read_table(page, "#tokens")[0] == ["Token", *(token["text"] for token in hypotheses[1]["tokens"])]
    assert_close(read_map(page), flatten(hypotheses[1]["attention"][1]["weights"]), atol=0, rtol=0)
    page.focus("#layer")
    page.keyboard.press("ArrowUp")
    assert page.input_value("#layer") == "1"
    assert_close(read_map(page), flatten(hypotheses[1]["attention"][0]["weights"]), atol=0, rtol=0)
    assert hypotheses[1]["attention"][0]["weights"] != hypotheses[1]["attention"][1]["weights"]
    assert page.inner_text("#translation") == hypotheses[0]["text"]  # the best stays where it is


def test_gates_are_shown_with_their_numbers(address, page):
    with urllib.request.urlopen(f"{address}model", timeout=TIMEOUT) as response:
        gates = json.load(response)["gates"]
    for side in ("encoder", "decoder"):
        assert read_table(page, f"table[data-side={side}]") == [
            ["Layer", "3 tokens", "5 tokens"],
            *([str(layer["layer"]), *(show(weight["weight"]) for weight in layer["weights"])] for layer in gates[side]),
        ]


def test_markup_in_a_sentence_is_not_run(page):
    translate(page, MARKUP)
    assert page.text_content("#error") == ""
    assert page.inner_text("#source") != ""
    assert page.evaluate("window.hacked") is None
    assert page.locator("main script, main img").count() == 0


def test_markup_in_an_answer_is_shown_as_text(page):
    tokens = [{"text": MARKUP, "score": -0.5}, {"text": "</s>", "score": None}]
    attention = [{"layer": 1, "weights": [[1.0], [None]]}]
    answer = {
        "source": [{"text": MARKUP, "known": False}],
        "hypotheses": [{"text": MARKUP, "score": None, "tokens": tokens, "attention": attention}],
        "attention_note": "",
    }
    page.route("**/inspect", lambda route: route.fulfill(json=answer))
    translate(page, SENTENCE)
    page.click("#numbers summary")
    page.wait_for_selector("#weights tbody tr")
    assert page.inner_text("#translation") == MARKUP
    assert read_table(page, "#nbest tbody") == [[" 1", MARKUP, "–"]]
    assert read_table(page, "#tokens")[0] == ["Token", MARKUP, "</s>"]
    assert read_table(page, "#weights") == [["Token written", MARKUP], [MARKUP, "1.000"], ["</s>", "–"]]
    assert page.text_content("#source").startswith(f"Source, as the model reads it: {MARKUP}")
    assert page.evaluate("window.hacked") is None
    assert page.locator("main script, main img").count() == 0
    page.route("**/inspect", lambda route: route.fulfill(json={"error": MARKUP}, status=422))
    translate(page, SENTENCE)
    assert page.text_content("#error") == MARKUP
    assert page.locator("main script, main img").count() == 0


def test_a_model_without_cross_attention_has_a_note_instead_of_a_map(page):
    hypothesis = {"text": "a", "score": -1.0, "tokens": [{"text": "a", "score": -1.0}], "attention": []}
    answer = {"source": [{"text": "b", "known": True}], "hypotheses": [hypothesis], "attention_note": "none here"}
    page.route("**/inspect", lambda route: route.fulfill(json=answer))
    translate(page, SENTENCE)
    assert page.inner_text("#attention-note") == "none here"
    assert page.is_hidden("#attention")


def test_errors_are_one_sentence_and_the_next_sentence_is_translated(page):
    for text, sentence in {
        " ": "a sentence must have at least one word, but the text is blank; type one.",
        "Zug " * 200: "a sentence must have at most 99 tokens here, but got ",
        "a" * 70000: "a request must have at most 65,536 bytes, but this one has 70,011 or more; send ",
    }.items():
        translate(page, text)
        assert page.text_content("#error").startswith(sentence)
        assert page.is_hidden("#results")
    page.route("**/inspect", lambda route: route.abort())
    translate(page, SENTENCE)
    assert page.text_content("#error") == ("The server does not answer; start it again and reload this page.")
    page.unroute("**/inspect")
    translate(page, SENTENCE)
    assert page.text_content("#error") == ""
    assert page.is_visible("#map")


def test_page_fits_a_narrow_screen(page):
    page.set_viewport_size({"width": 400, "height": 800})
    translate(page, SENTENCE)
    page.click("#numbers summary")
    page.wait_for_selector("#weights tbody tr")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.eval_on_selector("#map", "map => map.getBoundingClientRect().height") > 100


CONTRAST = """selector => {
  const read = (color) => color.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = (color) => read(color).map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const style = getComputedStyle(document.querySelector(selector));
  const own = style.backgroundColor === "rgba(0, 0, 0, 0)" ? getComputedStyle(document.body) : style;
  const [high, low] = [light(style.color), light(own.backgroundColor)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(scheme, page):
    page.emulate_media(color_scheme=scheme)
    translate(page, SENTENCE)
    selectors = ("body", "#hint", "#search", "#translate", "#error", "#translation", "#text", "#layer", "#nbest td")
    for selector in selectors:
        assert page.evaluate(CONTRAST, selector) >= 4.5, selector
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    heat = page.evaluate("getComputedStyle(document.querySelector('#map .heat')).fill")
    assert heat == {"light": "rgb(8, 48, 107)", "dark": "rgb(255, 224, 138)"}[scheme]


def test_everything_has_a_name(page):
    translate(page, SENTENCE)
    fields = page.eval_on_selector_all("input, select, textarea", "all => all.map(field => field.labels.length)")
    assert len(fields) == 5
    assert set(fields) == {1}
    regions = page.eval_on_selector_all(
        ".scroll",
        """all => all.map((region) => region.tabIndex === 0 && (region.getAttribute("aria-label") ??
          document.getElementById(region.getAttribute("aria-labelledby")).textContent))""",
    )
    assert len(regions) == 6
    assert all(regions)
    assert page.get_by_role("img").first.get_attribute("role") == "img"
    assert "layer 2" in page.text_content("#map title")
    assert page.get_attribute("html", "lang") == "en"
    assert page.get_attribute("#text", "lang") == "de"
    assert page.get_attribute("#translation", "lang") == "en"
