"""``python -m muse_plugin.cli``: the same as the installed command ``muse-plugin``, which starts sooner."""

import sys

from muse_plugin_command import main

if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the current folder, which -m has put there
    sys.exit(main())
