"""A picture of ``muse-plugin view``: ``python screenshot.py --path DIR --sentence TEXT --output PICTURE``.

Needs the package playwright and a browser: its own (``playwright install chromium``) or Chromium on the PATH.
"""

import argparse
import shutil
import signal
import subprocess
import sys
from pathlib import Path

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_LONGEST = 60_000  # milliseconds until the translation is there


def take(address: str, sentence: str, output: Path) -> None:
    """Types a sentence into the page and takes a picture of all of it."""
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    # As root a browser starts without its sandbox only.
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=found, args=["--no-sandbox"]) as browser,
    ):
        page = browser.new_page(viewport={"width": 900, "height": 700}, color_scheme="light")
        page.goto(address)
        page.fill("#text", sentence)
        page.click("#translate")
        page.wait_for_selector("#results:not([hidden])", timeout=_LONGEST)
        page.screenshot(path=output, full_page=True)


def main() -> int:
    """Serves the page as long as the picture takes; returns the exit code."""
    parser = argparse.ArgumentParser(description="Takes a picture of muse-plugin view.")
    parser.add_argument("--path", required=True, metavar="DIR_OR_CHECKPOINT")
    parser.add_argument("--sentence", required=True)
    parser.add_argument("--output", type=Path, required=True, metavar="PICTURE")
    args = parser.parse_args()
    command = [sys.executable, "-m", "muse_plugin.cli", "view", "--path", args.path]
    command += ["--port", "0", "--cpu", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            line = server.stdout.readline() if server.stdout is not None else ""
            if " can be viewed at " not in line:
                return 2  # the command has said why
            take(line.split(" can be viewed at ")[1].split()[0], args.sentence, args.output)
        finally:
            server.send_signal(signal.SIGINT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
