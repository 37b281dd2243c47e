"""The flags of ``muse-plugin view``."""

import argparse

from muse_plugin_command.flags import serve
from muse_plugin_command.flags.shared import add_path_argument, add_search_arguments, add_translation_data_argument

needs_fairseq = serve.needs_fairseq


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of ``muse-plugin view`` on ``parser``."""
    parser.description = (
        "Serve a page on 127.0.0.1, for this machine only: type a sentence, see its translations with their scores, "
        "cross-attention and gates. Ctrl-C ends."
    )
    add_path_argument(parser)
    add_translation_data_argument(parser)
    add = parser.add_argument
    add_search_arguments(parser)
    add("--port", type=int, default=8000, help="port; 0 for any that is free (default: 8000)")
    add("--nbest", type=int, help="translations shown of a sentence (default: as many as --beam)")
    add("--no-browser", action="store_true", help="show the address only, open no browser")
    # It is muse-plugin serve with a page, for this machine alone.
    served = argparse.ArgumentParser()
    serve.add_arguments(served)
    parser.set_defaults(**{**vars(served.parse_args(["--path", ""])), "page": True, "port": 8000})
