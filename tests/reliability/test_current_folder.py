"""No command imports what is in the folder that it is given in: a downloaded model may come with a ``random.py``."""

import json
import os
import sys
from importlib.metadata import packages_distributions

import pytest
from support.fairseq_commands import SMALL, USER_DIR, make_data, run
from support.helpers import REPOSITORY, run_command
from support.translation_models import save_translation_model

# What pip writes for the command, as a file of its own, here for several commands: the tests need no installation.
CONSOLE_SCRIPT = """
import json
import sys
from muse_plugin_command import main
for words in json.loads(sys.argv.pop()):
    sys.argv[1:] = words
    assert main() == 0, words
"""
NAMES = {
    *(*sys.stdlib_module_names, *packages_distributions()),
    *("fairseq_cli", "muse_plugin", "muse_plugin_command", "sitecustomize", "usercustomize", "generate", "train"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a model, texts and data, and with a file for every name that may be imported."""
    folder = save_translation_model(tmp_path_factory.mktemp("downloaded"))
    (folder / "raw.de").write_text("Wo ist der Bahnhof?\n")
    (folder / "raw.en").write_text("Where is the station?\n")
    (folder / "labels.txt").write_text("good\tWo ist der Bahnhof\nbad\tDer Zug ist da\n")
    dictionaries = ["--srcdict", folder / "dict.de.txt", "--tgtdict", folder / "dict.en.txt"]
    test = ["--testpref", folder / "raw", "-s", "de", "-t", "en"]
    run("preprocess", *test, *dictionaries, "--destdir", folder / "bin", "--workers", 1)
    marker = folder / "ran"
    for name in NAMES:
        if name.isidentifier():
            (folder / f"{name}.py").write_text(f"print({name!r}, file=open({str(marker)!r}, 'a'))\n")
    package = folder / "examples" / "simultaneous_translation"  # which fairseq imports where it is
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"print('examples', file=open({str(marker)!r}, 'a'))\n")
    (folder.parent / "muse-plugin").write_text(CONSOLE_SCRIPT)
    return folder


# Commands of one process each; the first two start processes themselves.
COMMANDS = {
    "doctor": [["doctor"]],
    "prepare-translation": [
        [
            *("prepare-translation", "--source-lang", "de", "--target-lang", "en", "--train", "raw", "--valid", "raw"),
            *("--subwords", "none", "--workers", "2", "--output", "OUT/prepared"),
        ]
    ],
    "others": [
        ["path"],
        ["average", "--inputs", "checkpoint_avg.pt", "--output", "OUT/a.pt"],
        ["translate", "--path", ".", "--input", "raw.de", "--output", "OUT/a.en", "--cpu"],
        ["evaluate", "--path", "checkpoint_avg.pt", "--data", "bin", "--cpu", "--output", "OUT/a.json"],
        ["prepare-text", "--train", "labels.txt", "--format", "label-tab-text", "--output", "OUT/labelled"],
        [
            *("text-pipeline", "--source-lang", "de", "--target-lang", "en", "--bpe-codes", "bpe.codes"),
            *("--data", ".", "--output", "OUT/pipeline"),
        ],
        [
            *("analyze", "model", "--path", "checkpoint_avg.pt", "--data", "bin", "--split", "test", "--cpu"),
            *("--output", "OUT/analysed"),
        ],
    ],
}


def start(folder, words, *program):
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    env.pop("PYTHONSAFEPATH", None)
    return run_command([sys.executable, *map(str, program), *words], cwd=folder, env=env)


@pytest.mark.parametrize("name", COMMANDS)
def test_no_file_of_the_current_folder_is_imported(folder, tmp_path, name):
    words = json.dumps(COMMANDS[name]).replace("OUT", str(tmp_path))
    done = start(folder, [words], folder.parent / "muse-plugin")
    ran = (folder / "ran").read_text() if (folder / "ran").exists() else ""
    (folder / "ran").unlink(missing_ok=True)
    assert ran == ""
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("program", ["muse_plugin_command", "muse_plugin.cli"])
def test_python_m_imports_nothing_from_there_once_the_command_has_begun(tmp_path, program):
    for name in ("matplotlib", *(["torch"] if program == "muse_plugin_command" else [])):  # imported late
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')\n")
    (tmp_path / "a.txt").write_text("a b c d\n")
    words = ["evaluate", "--hypotheses", "a.txt", "--references", "a.txt", "--sources", "a.txt", "--plot", "a.png"]
    done = start(tmp_path, words, "-m", program)
    assert not (tmp_path / "ran").exists()
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 puts it there whatever the environment says")
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="importing fairseq makes a lock, and that starts a process")
def test_processes_of_a_training_import_nothing_from_there(folder, tmp_path):
    data = make_data(tmp_path, {"train": 8, "valid": 4})
    program = tmp_path / "fairseq-train"
    program.write_text("from fairseq_cli.train import cli_main\n\nif __name__ == '__main__':\n    cli_main()\n")
    flags = ["--user-dir", USER_DIR, "--arch", "muse_tiny", *SMALL, "--cpu", "--distributed-world-size", "2"]
    flags += ["--optimizer", "adam", "--lr", "0.001", "--max-tokens", "60", "--max-update", "1", "--no-save"]
    done = start(folder, [str(data), *flags], program)
    ran = (folder / "ran").read_text() if (folder / "ran").exists() else ""
    (folder / "ran").unlink(missing_ok=True)
    assert ran == ""
    assert done.returncode == 0, done.stderr
