"""``muse-plugin view``: the page of ``muse-plugin serve --page`` on this machine alone, opened in a browser."""

import argparse
import os
import sys
import threading
import webbrowser

from muse_plugin.serve.serve import serve


def run(args: argparse.Namespace) -> int:
    """Serves the page until Ctrl-C; the body of ``muse-plugin view``.

    Returns:
        0 after Ctrl-C, which is how the command ends, once the page is served.
    """

    def announce(url: str) -> None:
        sys.stdout.write(f"{args.path} can be viewed at {url} (Ctrl-C ends)\n")
        sys.stdout.flush()
        if not args.no_browser and _has_screen():
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    return serve(args, announce)


def _has_screen() -> bool:
    """Whether a browser can have a window; without one, a browser for terminals might take this one."""
    return not sys.platform.startswith("linux") or any(os.environ.get(n) for n in ("DISPLAY", "WAYLAND_DISPLAY"))
