"""Three ways to use the plugin: from a checkout, by its path, by importing it. No process has imported it before."""

import json
import os
import sys

from support.helpers import PACKAGE, REPOSITORY, run_command
from support.warm_python import find_python

# Imports muse_plugin first if asked to, then does what fairseq's commands do with --user-dir, once per word given.
PROGRAM = """
import json, sys
imports, *user_dirs = sys.argv[1:]
for _ in range(int(imports)):
    import muse_plugin
    import muse_plugin.models.muse
from argparse import Namespace
from fairseq import options, utils
for user_dir in user_dirs:
    utils.import_user_module(Namespace(user_dir=user_dir))
words = ["data", "--arch", "muse_tiny"] + (["--user-dir", user_dirs[-1]] if user_dirs else [])
args = options.parse_args_and_arch(options.get_training_parser(), input_args=words)
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
import muse_plugin
from muse_plugin.models import muse
print(json.dumps({
    "file": muse_plugin.__file__,
    "ours": MODEL_REGISTRY["muse"] is muse.MuseModel and issubclass(MODEL_REGISTRY["muse_simple"], muse.MuseModel),
    "module": MODEL_REGISTRY["muse"].__module__,
    "tiny": issubclass(ARCH_MODEL_REGISTRY[args.arch], muse.MuseModel),
    "width": args.encoder_embed_dim,
    "copies": sorted(name for name in sys.modules if name.endswith("models.muse")),
}))
"""


def check_registered(done):
    assert done.returncode == 0, done.stderr[-3000:]
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts == {
        "file": str(PACKAGE / "__init__.py"),
        "ours": True,
        "module": "muse_plugin.models.muse",
        "tiny": True,
        "width": 128,
        "copies": ["muse_plugin.models.muse"],
    }


def run_program(*words, cwd, env):
    return run_command([find_python(), "-c", PROGRAM, *words], cwd=cwd, env=env)


def make_env(importable=False):
    """The environment without the checkout on the path, as far as it is not installed; or with it."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**env, "PYTHONPATH": str(REPOSITORY)} if importable else env


def test_user_dir_from_a_checkout():
    check_registered(run_program("0", "muse_plugin", cwd=REPOSITORY, env=make_env()))


def test_user_dir_by_the_printed_path_from_another_folder(tmp_path):
    printed = run_command([sys.executable, "-m", "muse_plugin_command", "path"], cwd=tmp_path)
    assert printed.returncode == 0
    check_registered(run_program("0", printed.stdout.strip(), cwd=tmp_path, env=make_env()))


def test_import_in_python_from_another_folder_twice(tmp_path):
    check_registered(run_program("2", cwd=tmp_path, env=make_env(importable=True)))


def test_import_and_user_dir_together_register_once(tmp_path):
    spellings = [str(PACKAGE), f"{PACKAGE}/", f"{PACKAGE}/../muse_plugin", str(PACKAGE)]
    check_registered(run_program("1", *spellings, cwd=tmp_path, env=make_env(importable=True)))


def test_import_and_user_dir_through_a_link_register_once(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(REPOSITORY)
    words = ("1", str(link / "muse_plugin"))
    check_registered(run_program(*words, cwd=tmp_path, env=make_env(importable=True)))


def test_user_dir_through_a_link_then_by_its_real_path(tmp_path):
    link = tmp_path / "muse_plugin"
    link.symlink_to(PACKAGE)
    done = run_program("0", str(link), str(PACKAGE), cwd=tmp_path, env=make_env())
    assert "not globally unique" not in done.stderr
    assert done.returncode == 0, done.stderr[-3000:]
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts["ours"]
    assert facts["copies"] == ["muse_plugin.models.muse"]
