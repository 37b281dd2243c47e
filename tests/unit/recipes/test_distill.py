"""What the recipe of distillation trains, gathers and draws."""

import json
import sys

import pytest
from support.helpers import assert_refused, load_program, run_command
from support.recipes import EXAMPLES, read_settings, run_written_down

gather = load_program(EXAMPLES / "distill" / "gather.py")
frontier = load_program(EXAMPLES / "distill" / "frontier.py")


def write_log(path, translations):
    lines = [f"S-{n}\tx\nT-{n}\ty\nH-{n}\t-0.5\t{text}\nP-{n}\t-0.5" for n, text in translations.items()]
    path.write_text("\n".join([*lines, "Generate train with beam=5: BLEU4 = 1"]) + "\n", encoding="utf-8")
    return path


def test_parts_are_gathered_in_the_order_of_the_text(tmp_path):
    parts = [{2: "c@@ c", 0: "a"}, {3: "", 1: "b", 4: "d <unk>"}]
    logs = [write_log(tmp_path / str(number), part) for number, part in enumerate(parts)]
    assert gather.gather(logs, list("ABCDE")) == [("A", "a"), ("B", "b"), ("C", "c@@ c")]
    with pytest.raises(
        ValueError, match="of each of the 6 sentences, but have 5, and none of line 6; delete the folder"
    ):
        gather.gather(logs, list("ABCDEF"))
    with pytest.raises(ValueError, match="of each of the 2 sentences, but have 5; delete the folder"):
        gather.gather(logs, list("AB"))


@pytest.mark.parametrize("model", ["muse_simple", "transformer"])
@pytest.mark.parametrize("layers", ["12-1", "6-2", "6-1"])
def test_students_have_the_layers_of_their_name(tmp_path, model, layers):
    args = read_settings(tmp_path, "distill", MODEL=model, LAYERS=layers)
    assert args.arch == model
    assert f"{args.encoder_layers}-{args.decoder_layers}" == layers
    assert (args.encoder_embed_dim, args.decoder_embed_dim) == (128, 128)
    assert (args.encoder_ffn_embed_dim, args.decoder_ffn_embed_dim) == (256, 256)
    assert args.max_update == 20000
    assert args.label_smoothing == 0.1
    assert (args.save_interval_updates, args.keep_interval_updates, args.no_epoch_checkpoints) == (400, 10, True)
    assert args.share_all_embeddings


def test_settings_of_a_student_are_read(tmp_path):
    args = read_settings(tmp_path, "distill", "--dropout", "0.3", DATASET="tatoeba_de_en", PROFILE="cpu", WIDTH="64")
    assert (args.source_lang, args.target_lang) == ("de", "en")
    assert (args.encoder_embed_dim, args.decoder_ffn_embed_dim, args.max_update) == (64, 128, 5000)
    assert args.dropout == 0.3


def test_a_student_needs_what_the_teacher_wrote(tmp_path):
    done = run_written_down(tmp_path, "distill", "train", programs={})
    assert_refused(done, f"there is no data in {tmp_path / 'work' / 'data'}; run prepare.sh with the same settings")


def test_what_another_teacher_wrote_is_not_taken(tmp_path):
    """The teacher's settings and its checkpoint are part of what the students' data are."""
    teacher = tmp_path / "work" / "multi30k" / "en-de-transformer-seed1"
    for folder, name in ((teacher.parent.parent / "teacher", "train"), (teacher.parent.parent / "data", "translate-0")):
        folder.mkdir(parents=True)
        (folder / f".{name}.done").touch()
    teacher.mkdir(parents=True)
    (teacher / "checkpoint_avg.pt").write_text("one")
    programs = {"fairseq-generate": "exit 1"}

    def prepare(*arguments, **settings):
        return run_written_down(tmp_path, "distill", "prepare", *arguments, programs=programs, **settings)

    first = prepare()
    assert "train the teacher, transformer (examples/multi30k): done before\n" in first.stdout
    assert "the step 'translate the training text, part 2 of 20' failed" in first.stderr
    others = {"TEACHER_UPDATES": "9000", "MERGES": "400", "PROFILE": "cpu", "BPE_DROPOUT": "0.1"}
    for name, value in others.items():
        refused = prepare(**{name: value})
        assert refused.returncode == 2
        assert "teacher was made with other settings" in refused.stderr
        assert f"> {name.lower().removeprefix('teacher_')}={value}" in refused.stderr
    assert_refused(prepare("--beam", "1"), "> generate_flags=--beam 1")  # one part is translated already
    (teacher / "checkpoint_avg.pt").write_text("other")
    assert_refused(prepare(), "> teacher_checkpoint=en-de-transformer-seed1@")


def make_system(translate, clock, seconds):
    def search(sentences):
        clock[0] += seconds * len(sentences)
        return [translate(words) for words in sentences]

    return search


def test_points_are_of_systems_that_take_turns(tmp_path, monkeypatch):
    clock, order = [0.0], []
    monkeypatch.setattr(frontier.time, "perf_counter", lambda: clock[0])
    teacher, student = frontier.System("teacher", "float32", 5), frontier.System("small", "int8", 1)

    def translate_with(name):
        return lambda words: order.append(name) or (words if name == "t" else [*words[:-1], "x"])

    systems = {
        teacher: make_system(translate_with("t"), clock, 0.4),
        student: make_system(translate_with("s"), clock, 0.1),
    }
    source = ["a b c d e", "a@@ b c d e f", "a b c d e f g"]
    seconds, translations = frontier.measure(systems, source, 1)
    assert "".join(order) == "ts" * 4  # the first batch twice: a warm-up
    assert translations[teacher] == [line.split() for line in source]
    references = ["a b c d e", "ab c d e f", "a b c d e f g"]
    points = frontier.make_points(seconds, translations, references, "subword_nmt")
    assert [one["bleu"] for one in points] == [pytest.approx(100), pytest.approx(75, abs=10)]
    assert [one["sentences_per_second"] for one in points] == [pytest.approx(2.5), pytest.approx(10)]
    assert [one["times_teacher"] for one in points] == [1, pytest.approx(4)]
    rows = frontier.make_table(points).splitlines()
    assert rows[2] == "| teacher | float32 | 5 | 100.0 | 2.5 | 400.0 | 1.00 |"
    assert rows[3].endswith("| 10.0 | 100.0 | 4.00 |")
    pytest.importorskip("matplotlib", reason="needs the extra 'figures'")
    frontier.draw(points, tmp_path / "frontier.svg")
    text = (tmp_path / "frontier.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {label} -->" in text for label in ("teacher", "small", "int8", "hollow: beam 1"))
    json.dumps(points)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--reference", "SHORT"], "--reference must have a line per line of --source, but has 1 for 2."),
        (["--reference", "TEXT", "--batch", "0"], "--batch and --sentences must be at least 1, but got 0 and None."),
    ],
)
def test_files_and_numbers_that_do_not_fit_are_refused(tmp_path, monkeypatch, capsys, words, sentence):
    for name, text in (("TEXT", "a\nb\n"), ("SHORT", "a\n")):
        (tmp_path / name).write_text(text)
    words = [str(tmp_path / word) if word.isupper() else word for word in words]
    monkeypatch.setattr("sys.argv", ["frontier.py", "a=b", "--source", str(tmp_path / "TEXT"), *words])
    with pytest.raises(SystemExit):
        frontier.main()
    assert sentence in capsys.readouterr().err


def test_a_missing_text_is_named(tmp_path):
    words = ["a=b", "--source", "nowhere", "--reference", "nowhere"]
    program = str(EXAMPLES / "distill" / "frontier.py")
    done = run_command([sys.executable, program, *words], tmp_path)
    assert_refused(done, "frontier: error: ", "nowhere")
