"""``python -m muse_plugin_command``: the same as the installed command ``muse-plugin``."""

import sys

from muse_plugin_command import main

sys.exit(main())
