"""``python -m muse_plugin_command``: the same as the installed command ``muse-plugin``."""

import sys

from muse_plugin_command import main

if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]  # the current folder, which -m has put there
sys.exit(main())
