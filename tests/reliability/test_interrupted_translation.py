"""``muse-plugin translate`` is killed again and again; the output is that of a run that was never touched.

Each run is a real process: a child of this one, which has imported fairseq and loaded the model, so that it starts in
no time. It dies by SIGKILL, at moments of the clock and at steps such as a half-written line or the last rename.
"""

import json
import os
import random
import select
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

import pytest
from support.translation_models import GERMAN, save_translation_model
from tqdm import tqdm

import muse_plugin_command
from muse_plugin.inference import resumable_output as partial_output
from muse_plugin.inference import translate
from muse_plugin.inference.translate import Translator

LINES = 33
BUFFER = 4


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a tiny model, and the model itself, loaded."""
    folder = save_translation_model(tmp_path_factory.mktemp("model"))
    return folder, Translator.load(folder, beam=2, batch_size=3, cpu=True)


@pytest.fixture
def command(model, tmp_path):
    """Runs the command in processes of its own."""
    return Command(*model, tmp_path)


@pytest.fixture(scope="module")
def expected(model, tmp_path_factory):
    """What an uninterrupted run writes, and how long that takes, in seconds."""
    command = Command(*model, tmp_path_factory.mktemp("whole"))
    start = time.perf_counter()
    assert command.wait(command.start()) == 0, command.errors()
    seconds = time.perf_counter() - start
    assert command.take_log() == list(range(1, LINES + 1))
    content = command.output.read_bytes()
    assert [int(line.split()[0]) for line in content.splitlines()] == list(range(1, LINES + 1))
    return content, seconds


class Command:
    """The command, its files, and what its processes did.

    Attributes:
        output: where the translations are to be.
        log: a number for each line that a process began to translate.
    """

    def __init__(self, model, translator, folder):
        self.translator = translator
        self.folder = folder
        self.output = folder / "out.txt"
        self.log = folder / "log"
        self.words = ["translate", "--path", str(model), "--cpu", "--beam", "2", "--batch-size", "3"]
        self.words += ["--input", str(folder / "in.txt"), "--output", str(self.output)]
        generator = random.Random(5)
        words = " ".join(GERMAN).split()
        lines = [" ".join(generator.choices(words, k=generator.randrange(9))) for _ in range(LINES)]
        (folder / "in.txt").write_text("\n".join(lines) + "\n")

    def start(self, at_start=lambda: None):
        """Starts a process, in which ``at_start`` is called first; returns its id."""
        child = os.fork()
        if child:
            return child
        code = 99
        try:
            sys.stdout = sys.stderr = (self.folder / "errors").open("a", buffering=1)
            # The lock of tqdm is a semaphore that all forks share: a process killed with it would stop the others.
            tqdm.set_lock(threading.RLock())
            translate.BUFFER_SIZE = BUFFER
            Translator.load = lambda *args, **settings: self.translator
            translate_lines = Translator.translate_lines

            def log_and_number_lines(translator, lines):
                with self.log.open("a") as file:
                    file.write("".join(f"{line.number}\n" for line in lines))
                translations = translate_lines(translator, lines)
                return [f"{line.number} {text}" for line, text in zip(lines, translations, strict=True)]

            Translator.translate_lines = log_and_number_lines
            at_start()
            sys.argv = ["muse-plugin", *self.words]
            code = muse_plugin_command.main()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def wait(self, child, seconds=60.0, then=signal.SIGKILL):
        """Waits for the end of a process, which a signal hastens; returns its exit code, negative for a signal."""
        descriptor = os.pidfd_open(child)
        try:
            if not select.select([descriptor], [], [], seconds)[0]:
                os.kill(child, then)
            if not select.select([descriptor], [], [], 60.0)[0]:
                os.kill(child, signal.SIGKILL)
        finally:
            os.close(descriptor)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def errors(self):
        return (self.folder / "errors").read_text()

    def safe_lines(self):
        """Lines that the next process must not translate again."""
        state = self.output.with_name("out.txt.partial.json")
        return json.loads(state.read_text())["lines"] if state.exists() else 0

    def take_log(self):
        numbers = [int(line) for line in self.log.read_text().split()] if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return numbers

    def check_log(self, safe):
        """Checks that a process began after the lines that were safe, and translated each at most once."""
        numbers = self.take_log()
        assert numbers == list(range(safe + 1, safe + 1 + len(numbers)))

    def files(self):
        return sorted(path.name for path in self.folder.iterdir() if path.name.startswith(("out", ".out")))


def test_a_command_that_is_killed_at_any_moment_goes_on_to_the_same_bytes(command, expected):
    content, seconds = expected
    generator = random.Random(1)
    kills = 0
    while kills < 12:
        safe = command.safe_lines()
        code = command.wait(command.start(), generator.uniform(0, 0.4 * seconds))
        assert code in (0, -signal.SIGKILL), command.errors()
        if code:
            kills += 1
            assert command.safe_lines() >= safe or command.output.exists(), "a line was lost"
            command.check_log(safe)
            continue
        assert command.output.read_bytes() == content, f"after {kills} kills"
        assert command.files() == ["out.txt"]
        command.check_log(safe)
        command.output.unlink()
    safe = command.safe_lines()
    assert command.wait(command.start()) == 0, command.errors()
    assert command.output.read_bytes() == content
    command.check_log(safe)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_half_a_line():
    """Dies with half of a buffer in the file."""
    write = partial_output.PartialOutput.append

    def append(output, text, lines, can_go_on):
        if output.lines == 2 * BUFFER:
            output._file.write(text[: len(text) // 2])
            output._file.flush()
            die()
        write(output, text, lines, can_go_on)

    partial_output.PartialOutput.append = append


def die_before_description():
    """Dies with a buffer on the disk that the description does not know yet."""
    replace = os.replace
    calls = []

    def count(before, after):
        calls.append(after)
        if len(calls) == 4:
            die()
        replace(before, after)

    os.replace = count


def die_before_the_output_has_its_name():
    replace = os.replace
    os.replace = lambda before, after: die() if Path(after).name == "out.txt" else replace(before, after)


def die_after_the_output_has_its_name():
    replace = os.replace
    os.replace = lambda before, after: (replace(before, after), Path(after).name == "out.txt" and die())


@pytest.mark.parametrize(
    ("moment", "done"),
    [
        (die_in_half_a_line, 2 * BUFFER),
        (die_before_description, 2 * BUFFER),
        (die_before_the_output_has_its_name, LINES),
        (die_after_the_output_has_its_name, LINES),
    ],
)
def test_a_command_that_is_killed_at_a_bad_step_goes_on_to_the_same_bytes(command, expected, moment, done):
    assert command.wait(command.start(at_start=moment)) == -signal.SIGKILL, command.errors()
    assert command.safe_lines() == done
    command.take_log()
    assert command.wait(command.start()) == 0, command.errors()
    assert command.take_log() == list(range(done + 1, LINES + 1))
    assert command.output.read_bytes() == expected[0]
    assert command.files() == ["out.txt"]


def test_ctrl_c_says_how_to_go_on(command, expected):
    def press():
        sync = os.fsync
        calls = []

        def count(descriptor):
            sync(descriptor)
            calls.append(descriptor)
            if len(calls) == 12:
                os.kill(os.getpid(), signal.SIGINT)

        os.fsync = count
        # A shell starts commands in the background with the signal ignored, and Python leaves it so.
        signal.signal(signal.SIGINT, signal.default_int_handler)

    assert command.wait(command.start(at_start=press)) == 130, command.errors()
    safe = command.safe_lines()
    assert safe >= BUFFER
    partial = f"{command.output}.partial"
    assert f"{safe} lines are kept in {partial}; the same command continues after them." in command.errors()
    assert "Traceback" not in command.errors()
    command.take_log()
    assert command.wait(command.start()) == 0, command.errors()
    command.check_log(safe)
    assert command.output.read_bytes() == expected[0]


def test_a_second_process_at_the_same_output_is_refused_and_disturbs_nothing(command, expected):
    read, write = os.pipe()
    read_back, write_back = os.pipe()

    def wait_in_the_middle():
        append = partial_output.PartialOutput.append

        def wait(output, text, lines, can_go_on):
            append(output, text, lines, can_go_on)
            if output.lines == 2 * BUFFER:
                os.write(write, b"x")
                os.read(read_back, 1)

        partial_output.PartialOutput.append = wait

    first = command.start(at_start=wait_in_the_middle)
    assert select.select([read], [], [], 60.0)[0]
    assert command.wait(command.start()) == 2
    assert "one program at a time may write to" in command.errors()
    os.write(write_back, b"x")
    assert command.wait(first) == 0, command.errors()
    assert command.output.read_bytes() == expected[0]
    assert command.files() == ["out.txt"]
    for descriptor in (read, write, read_back, write_back):
        os.close(descriptor)
