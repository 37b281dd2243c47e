"""The functions of recipe.sh on their own: steps, settings, counts."""

import itertools
import subprocess

import pytest
from fairseq.data import Dictionary
from support.helpers import REPOSITORY, assert_refused, recipe_environment


@pytest.fixture
def run(tmp_path):
    """Runs shell text after ``start_recipe test``; ``$work_dir`` is the test's folder."""

    def run_text(text, **settings):
        program = f"set -euo pipefail\n. '{REPOSITORY}/examples/recipe/recipe.sh'\nstart_recipe test\n{text}"
        environment = recipe_environment(**{"WORK_DIR": str(tmp_path), **settings})
        command = ["bash", "-c", program]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    return run_text


def test_a_step_is_done_once(run, tmp_path):
    text = 'work() { echo hidden; echo shown >&3; echo x >>"$work_dir/count"; }\nstep "$work_dir" name "do it" work'
    first, second = run(text), run(text)
    assert first.returncode == second.returncode == 0
    assert first.stdout == f"test: do it (its output: {tmp_path}/name.log) ...\nshown\n"
    assert second.stdout == "test: do it: done before\n"
    assert (tmp_path / "count").read_text() == "x\n"
    assert (tmp_path / "name.log").read_text() == "hidden\n"
    assert (tmp_path / "times.tsv").read_text().split("\t")[0] == "name"


def test_two_processes_do_not_run_a_step_at_once(run, tmp_path):
    text = """
    work() { touch "$work_dir/begun"; while [[ ! -e "$work_dir/end" ]]; do sleep 0.1; done; }
    step "$work_dir" name "do it" work &
    while [[ ! -e "$work_dir/begun" ]]; do sleep 0.1; done
    (step "$work_dir" name "do it" touch "$work_dir/second") || echo "refused: $?"
    touch "$work_dir/end"
    wait
    """
    done = run(text)
    assert "refused: 2\n" in done.stdout
    assert "error: the step 'do it' is running already, in another process; wait for it or stop it." in done.stderr
    assert (tmp_path / ".name.done").exists()
    assert not (tmp_path / "second").exists()
    assert len((tmp_path / "times.tsv").read_text().splitlines()) == 1


def test_a_step_that_fails_in_its_middle_has_failed(run, tmp_path):
    text = 'work() { echo before; false; echo after; }\nstep "$work_dir" name "do it" work\necho never'
    done = run(text)
    assert done.returncode == 2
    assert "never" not in done.stdout
    assert done.stderr.startswith("before\n")
    assert f"test: error: the step 'do it' failed, its whole output is in {tmp_path}/name.log." in done.stderr
    assert "after" not in (tmp_path / "name.log").read_text()
    assert run(text.replace("false", "true")).returncode == 0
    assert (tmp_path / ".name.done").exists()


@pytest.mark.parametrize("stop", ["false", "kill -TERM $BASHPID", "kill -INT $BASHPID", "kill -KILL $BASHPID"])
def test_the_seconds_of_a_step_are_those_of_all_attempts(run, tmp_path, stop):
    once = f'if [[ ! -e "$work_dir/again" ]]; then : >"$work_dir/again"; {stop}; fi'
    text = (
        f'work() {{ local name=other dir=other; sleep 1.1; echo late; {once}; }}\nstep "$work_dir" train "do it" work'
    )
    assert run(text).returncode == 2
    assert run(text).returncode == 0
    (tmp_path / "settings.txt").write_text("a=1 b\n")
    (tmp_path / "train-command.txt").write_text("fairseq-train 'x y'")
    done = run('record_settings "$work_dir"\nprintf "%s\\n" "${record[@]}"')
    *settings, seconds, command = done.stdout.splitlines()[1::2]
    assert (settings, command) == (["a=1 b"], "train_command=fairseq-train 'x y'")
    assert 2 <= int(seconds.removeprefix("seconds_train=")) <= 6


def test_an_attempt_that_was_killed_and_lost_its_log_counts_nothing(run, tmp_path):
    assert run('work() { kill -KILL $BASHPID; }\nstep "$work_dir" name "do it" work').returncode == 2
    (tmp_path / "name.log").unlink()
    assert run('step "$work_dir" name "do it" true').returncode == 0
    assert (tmp_path / "times.tsv").read_text() in ("name\t0\n", "name\t1\n")


def test_an_old_bash_is_refused():
    done = subprocess.run(
        ["bash", "-c", f"BASH_VERSION=3.2.57; . {REPOSITORY}/examples/recipe/recipe.sh"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "the recipes need bash 4.4 or later, but this is 3.2.57; install one" in done.stderr


def test_a_score_that_fails_leaves_none_of_before(run, tmp_path):
    for name in ("settings.txt", "times.tsv", "train-command.txt", "scores.json"):
        (tmp_path / name).write_text("")
    done = run('score "$work_dir" "$work_dir/missing" "$work_dir/scores.json"')
    assert done.returncode != 0
    assert not (tmp_path / "scores.json").exists()


def test_a_score_has_the_settings_of_its_evaluation_on_record(run, tmp_path):
    for name in ("settings.txt", "times.tsv", "train-command.txt"):
        (tmp_path / name).write_text("flags=--dropout 0.3\n" if name == "settings.txt" else "")
    text = """
    python() {{ printf '%s\n' "$@"; }}
    keep_evaluation "$work_dir" averaged=5 "flags={}"
    score "$work_dir" log "$work_dir/scores.json"
    """
    words = run(text.format("--beam 1")).stdout.splitlines()
    recorded = [after for word, after in itertools.pairwise(words) if word == "--record"]
    assert recorded == ["flags=--dropout 0.3", "train_command=", "averaged=5", "generate_flags=--beam 1"]
    assert "generate_flags=" not in run(text.format("")).stdout


@pytest.mark.parametrize(
    ("made", "now", "sentence"),
    [
        ("merges=9", {}, ""),
        ("subwords=sentencepiece:bpe", {"SUBWORDS": "sentencepiece:bpe"}, ""),
        ("joint=0", {"JOINT": "0"}, ""),
        ("subwords=none", {}, "are of SUBWORDS=none JOINT=1, but now it is SUBWORDS=bpe JOINT=1; set the same"),
        ("merges=9", {"JOINT": "0"}, "are of SUBWORDS=bpe JOINT=1, but now it is SUBWORDS=bpe JOINT=0; set the same"),
    ],
)
def test_training_has_the_subwords_of_its_data(run, tmp_path, made, now, sentence):
    (tmp_path / ".binarise.done").touch()
    (tmp_path / "settings.txt").write_text(f"{made}\nflags=\n")
    done = run("data=$work_dir\nfind_data\necho found", **now)
    if sentence:
        assert_refused(done, sentence)
    else:
        assert done.stdout == "found\n", done.stderr


def test_files_of_one_name_are_told_apart(run, tmp_path):
    for name, text in (("a", "one"), ("b", "two")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(text)
    first, slash, other = (
        run(f'name_files "$work_dir/{given}" "$work_dir/{given}/x" "$work_dir/missing"').stdout
        for given in ("a", "a/", "b")
    )
    assert first == slash
    assert first.startswith("a@")
    assert other.startswith("b@")
    assert first[2:] != other[2:]


@pytest.mark.parametrize(
    ("given", "world"), [({"NUM_GPUS": ""}, "4"), ({"NUM_GPUS": "1"}, "1"), ({"NUM_GPUS": "0"}, None)]
)
def test_fairseq_takes_as_many_gpus_as_asked_for(run, tmp_path, given, world):
    (tmp_path / "run").mkdir()
    text = """
    python() { echo 4; }
    fairseq-train() { printf '%s\\n' "$@" >"$work_dir/arguments"; }
    find_devices
    plan_batches 16 4
    train_model "$work_dir/run" data 3>&1
    """
    done = run(text, CUDA_VISIBLE_DEVICES="0,1,2,3", **given)
    assert done.returncode == 0, done.stderr
    words = (tmp_path / "arguments").read_text().splitlines()
    assert ("--distributed-world-size" in words) == (world is not None)
    if world is not None:
        assert words[words.index("--distributed-world-size") + 1] == world
    devices = int(world or 1)
    assert f"16 tokens per update = 4 per batch x {4 // devices} accumulated x {devices} devices" in done.stdout


def test_of_several_nodes_the_first_keeps_the_books(run, tmp_path):
    text = 'keep_settings "$work_dir" a=1\nstep "$work_dir" name "do it" echo hello'
    for name in ("NODE_RANK", "SLURM_NODEID"):
        assert run(text, **{name: "1"}).returncode == 0
    assert (tmp_path / "name.node1.log").read_text() == "hello\nhello\n"
    assert not (tmp_path / ".name.done").exists()
    assert not (tmp_path / "times.tsv").exists()
    assert (tmp_path / "settings.txt").read_text() == "a=1\n"


def test_text_is_cut_into_pieces_learnt_on_training_text_alone(run, tmp_path):
    (tmp_path / "text").mkdir()
    for split in ("train", "test"):
        for lang, line in (("de", "das ist ein haus\u2028am see"), ("en", "this is a house")):
            unseen = " zebra" if split == "test" else ""
            (tmp_path / "text" / f"{split}.{lang}").write_text(f"{line}{unseen}\n\n" * 5, encoding="utf-8")
    text = 'segment_text "$work_dir" 40 de en train test\nfind_dictionary "$work_dir" joined\n'
    text += 'keep_settings "$work_dir" a=1'
    done = run(text + '\necho "${dictionary_flags[@]}"', SUBWORDS="sentencepiece")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"--joined-dictionary --srcdict {tmp_path}/pieces.txt\n"
    assert (tmp_path / "settings.txt").read_text() == "a=1\nsubwords=sentencepiece:unigram\n"
    known = set(Dictionary.load(str(tmp_path / "pieces.txt")).symbols)
    assert "z" not in known
    for name in ("train.de", "train.en", "test.de", "test.en"):
        lines = (tmp_path / "bpe" / name).read_text(encoding="utf-8").split("\n")
        assert len(lines) == 11
        assert lines[1] == ""
        joined = lines[0].replace(" ", "").replace("\u2581", " ").strip()
        assert joined == " ".join((tmp_path / "text" / name).read_text(encoding="utf-8").split("\n")[0].split())
        assert name.startswith("test") or set(lines[0].split()) <= known


def test_wrong_subwords_are_named(run):
    done = run("true", SUBWORDS="wordpiece")
    assert_refused(done, "SUBWORDS must be bpe, none, sentencepiece, sentencepiece:unigram or sentencepiece:bpe, but")
    assert "JOINT must be 0 or 1, but is 'no'" in run("true", JOINT="no").stderr


@pytest.mark.parametrize(
    ("subwords", "files"),
    [("bpe", ["bpe.{}.codes"]), ("sentencepiece", ["sentencepiece.{}.model", "pieces.{}.txt"])],
)
def test_each_language_may_have_subwords_of_its_own(run, tmp_path, subwords, files):
    (tmp_path / "text").mkdir()
    for lang, line in (("de", "der Hund sieht die Katze der Hund"), ("en", "the dog will see the cat the dog")):
        for split in ("train", "test"):
            (tmp_path / "text" / f"{split}.{lang}").write_text(f"{line}\n" * 5)
    text = """segment_text "$work_dir" 30 de en train test
        find_dictionary "$work_dir" joined
        choose_criterion "$work_dir"
        keep_settings "$work_dir" a=1
        echo "${dictionary_flags[@]-}"; echo "${share_flags[@]-}"; echo "$name_suffix"; echo "${criterion[@]}\""""
    done = run(text, SUBWORDS=subwords, JOINT="0", BPE_DROPOUT="0.1")
    assert done.returncode == 0, done.stderr
    dictionaries, shared, suffix, criterion = done.stdout.split("\n")[-5:-1]
    names = [name.format(side) for name in files for side in ("source", "target")]
    assert all((tmp_path / name).is_file() for name in names)
    assert sorted(path.name for path in (tmp_path / "bpe").iterdir()) == ["test.de", "test.en", "train.de", "train.en"]
    wanted = f"--srcdict {tmp_path}/pieces.source.txt --tgtdict {tmp_path}/pieces.target.txt"
    assert dictionaries == ("" if subwords == "bpe" else wanted)
    assert shared == ""
    assert suffix.endswith("-separate-bpe-dropout")
    assert criterion.endswith(f"--bpe-codes {tmp_path}/{names[0]} --target-bpe-codes {tmp_path}/{names[1]}")
    assert (tmp_path / "settings.txt").read_text().endswith("joint=0\n")


def test_a_folder_keeps_its_settings(run, tmp_path):
    (tmp_path / ".train.done").touch()
    assert run('keep_settings "$work_dir" a=1 "flags=--b 2"').returncode == 0
    assert run('keep_settings "$work_dir" a=1 "flags=--b 2"').returncode == 0
    done = run('keep_settings "$work_dir" a=1 "flags=--b 3"')
    assert_refused(done, "< flags=--b 2", "> flags=--b 3", "delete that folder or choose another one by WORK_DIR=...")


def test_another_way_of_evaluating_averages_and_translates_again(run, tmp_path):
    markers = [".average.done", ".generate.done", ".generate-valid.done", ".train.done"]

    def evaluate(averaged):
        for name in markers:
            (tmp_path / name).touch()
        assert run(f'keep_evaluation "$work_dir" averaged={averaged}').returncode == 0
        return [name for name in markers if (tmp_path / name).exists()]

    evaluate(10)
    assert evaluate(10) == markers
    assert evaluate(25) == [".train.done"]


@pytest.mark.parametrize(
    ("lines", "code", "sentence"),
    [(1000, 0, ""), (997, 0, "has 997 lines, the published file 1000"), (990, 2, "must have 1000 lines, but has 990")],
)
def test_counts_that_depend_on_the_tokeniser_may_differ_a_little(run, tmp_path, lines, code, sentence):
    (tmp_path / "text").write_text("x\n" * lines)
    done = run('check() { expect_about "$work_dir/text" 1000; }\nstep "$work_dir" count "count" check')
    assert done.returncode == code
    assert sentence in done.stdout + done.stderr
    assert ("warning" in done.stdout) == (lines == 997)


@pytest.mark.parametrize(
    ("text", "settings", "sentence"),
    [
        ("find_devices", {"NUM_GPUS": "two"}, "NUM_GPUS must be a whole number, but is 'two'."),
        ("find_devices", {"NUM_GPUS": "0", "NUM_NODES": "2"}, "NUM_NODES=2 needs GPUs, but there is none here"),
        ("find_devices\nplan_batches 10 5", {"NUM_GPUS": "1", "MAX_TOKENS": "1k"}, "but is '1k'."),
        ("read_raw deu.txt", {}, "neither deu.txt nor deu.txt.gz is in"),
        (
            'text=$work_dir/data/text; mkdir -p "$text"; : >"$text/train.en"; expect_lines "$text/train.en" 7',
            {},
            "/data and run again.",
        ),
    ],
)
def test_what_is_wrong_is_said(run, text, settings, sentence):
    assert_refused(run(text, **settings), sentence)


@pytest.mark.parametrize("bound", ["", ".download.done", ".binarise.done", "checkpoints/checkpoint_last.pt"])
def test_a_folder_is_bound_by_its_first_finished_step_or_checkpoint(run, tmp_path, bound):
    keep = 'keep_settings "$work_dir" {} "trial=0 flags={}"'
    assert run(keep.format("source=whole", "--misspelt")).returncode == 0
    (tmp_path / "checkpoints").mkdir()
    if bound:
        (tmp_path / bound).touch()
    # Arguments are for the last step: until it is finished, or has saved a checkpoint, they may be others.
    other_arguments = run(keep.format("source=whole", "--right"))
    assert other_arguments.returncode == (0 if bound in ("", ".download.done") else 2)
    other_source = run(keep.format("source=even", "--right"))
    assert other_source.returncode == (2 if bound else 0)
    assert ("> source=even" in other_source.stderr) == bool(bound)
    assert ("source=even" in (tmp_path / "settings.txt").read_text()) == (not bound)


def test_a_failed_step_does_not_bind_a_folder(run, tmp_path):
    text = 'keep_settings "$work_dir" a={}\nstep "$work_dir" download "fetch" {}'
    assert run(text.format(1, "false")).returncode == 2
    done = run(text.format(2, "true"))
    assert done.returncode == 0, done.stderr
    assert run(text.format(1, "true")).returncode == 2
