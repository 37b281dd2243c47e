"""``python -m muse_plugin.cli``: the same as the installed command ``muse-plugin``, which starts sooner."""

import sys

from muse_plugin_command import main

if __name__ == "__main__":
    sys.exit(main())
