"""What of fairseq could run code, start a program or unpack an archive at the word of a file, and why it does not.

``OUT_OF_REACH`` names every call of that kind in the installed fairseq, with the reason; a new one fails the test.
"""

import ast
import re
from pathlib import Path

import fairseq
import fairseq_cli
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary, fasta_dataset
from fairseq.data.fasta_dataset import EncodedFastaDataset
from support.fairseq_commands import make_data, train
from support.sentence_models import write_data

from muse_plugin.fairseq_repairs import checkpoint_bombs, fasta_without_shell
from muse_plugin.fairseq_repairs.fasta_without_shell import index_fasta
from muse_plugin.fairseq_repairs.literal_settings import COMMANDS, MODULES
from muse_plugin.tasks.sentences.columns import load_column

# ---- the calls -------------------------------------------------------------------------------------------------------

BUILT_IN = {"eval", "exec", "compile", "__import__"}
# Attributes of any module, whatever it was imported as.
ATTRIBUTES = re.compile(
    r"(os|posix|pty)\.(system|popen|exec\w+|spawn\w*|posix_spawn\w*)|subprocess\.\w+|multiprocessing\.spawn|"
    r"(pickle|cPickle|dill|cloudpickle|marshal|joblib|shelve|torch)\.(load|loads|open|Unpickler)|"
    r"yaml\.(full_|unsafe_)?load(_all)?|torch\.hub\.load\w*|jit\.load|pandas\.read_pickle|pd\.read_pickle|importlib\.import_module|runpy\.\w+|"
    r"\w*\.?instantiate|\w+\.(extractall|unpack_archive|LoadLibrary|urlretrieve)|(np|numpy)\.(load|fromregex)"
)
KEYWORDS = {"shell", "allow_pickle", "weights_only"}

REGISTRY = "imports the files of fairseq's own folder, or of the folder that --user-dir names"
RESTRICTED = "torch restricts what may be called since 2.6"
NUMBERS = "numpy reads no Python objects unless allow_pickle says so, and no call says so"
NAMED = "a command that is fixed but for its arguments, without a shell"

OUT_OF_REACH = {
    "fairseq/checkpoint_utils.py torch.load": f"{RESTRICTED}; before, checkpoint_bombs reads the file safely first",
    "fairseq/criterions/__init__.py importlib.import_module": REGISTRY,
    "fairseq/data/audio/__init__.py importlib.import_module": REGISTRY,
    "fairseq/data/audio/audio_utils.py np.load": NUMBERS,
    "fairseq/data/audio/data_cfg.py yaml.load": "FullLoader, which makes no objects: test_hostile_files.py",
    "fairseq/data/audio/feature_transforms/global_cmvn.py np.load": NUMBERS,
    "fairseq/data/codedataset.py np.load": NUMBERS,
    "fairseq/data/codedataset.py torch.load": RESTRICTED,
    "fairseq/data/encoders/__init__.py importlib.import_module": REGISTRY,
    "fairseq/data/fasta_dataset.py np.load": NUMBERS,
    "fairseq/data/fasta_dataset.py subprocess.check_output": "replaced by fasta_without_shell; tests below",
    "fairseq/data/fasta_dataset.py shell=": "replaced by fasta_without_shell; tests below",
    "fairseq/data/plasma_utils.py subprocess.Popen": f"{NAMED}: plasma_store, of a package that was given up",
    "fairseq/distributed/utils.py pickle.loads": "what the processes of the same training send each other",
    "fairseq/distributed/utils.py subprocess.check_output": f"{NAMED}: scontrol, where SLURM has started the process",
    "fairseq/distributed/utils.py torch.load": "what process 0 of the same training sends; also, " + RESTRICTED,
    "fairseq/distributed/utils.py multiprocessing.spawn": "starts this program again",
    "fairseq/file_utils.py archive.extractall": "of from_pretrained with an archive, which no command calls",
    "fairseq/model_parallel/criterions/__init__.py importlib.import_module": REGISTRY,
    "fairseq/model_parallel/models/__init__.py importlib.import_module": REGISTRY,
    "fairseq/models/__init__.py importlib.import_module": REGISTRY,
    "fairseq/models/ema/__init__.py importlib.import_module": REGISTRY,
    "fairseq/models/huggingface/__init__.py importlib.import_module": REGISTRY,
    "fairseq/models/speech_to_text/hub_interface.py torch.hub.load": "of from_pretrained, which no command calls",
    "fairseq/models/speech_to_text/xm_transformer.py torch.load": RESTRICTED,
    "fairseq/models/text_to_speech/vocoder.py torch.load": RESTRICTED,
    "fairseq/modules/quantization/pq/em.py torch.load": RESTRICTED,
    "fairseq/optim/__init__.py importlib.import_module": REGISTRY,
    "fairseq/optim/fused_adam.py importlib.import_module": "a fixed name",
    "fairseq/optim/lr_scheduler/__init__.py importlib.import_module": REGISTRY,
    "fairseq/scoring/__init__.py importlib.import_module": REGISTRY,
    "fairseq/scoring/bleu.py cdll.LoadLibrary": "fairseq's own compiled module",
    "fairseq/speech_generator.py np.load": NUMBERS,
    "fairseq/tasks/__init__.py importlib.import_module": REGISTRY,
    "fairseq/tasks/audio_pretraining.py subprocess.call": "--post-save-script of the training's own command line",
    "fairseq/tasks/text_to_speech.py np.load": NUMBERS,
    "fairseq/utils.py importlib.import_module": "--user-dir, the user's own word; no checkpoint names it: tests below",
}


def dotted(node):
    if isinstance(node, ast.Name):
        return node.id
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else "?"


def find_calls(source):
    """Names each call of the kinds above: ``eval``, ``subprocess.run``, ``shell=`` ..."""
    tree = ast.parse(source)
    # from os import system as s: the name stands for the module's.
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            name = imported.get(name, name)
            short = ".".join(name.split(".")[-2:]) if not name.startswith("torch.hub") else name
            if name in BUILT_IN or ATTRIBUTES.fullmatch(short):
                yield short
            yield from (f"{keyword.arg}=" for keyword in node.keywords if keyword.arg in KEYWORDS)


def list_sources():
    for package in (fairseq, fairseq_cli):
        folder = Path(package.__file__).parent
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(folder.parent).as_posix()
            if not name.startswith("fairseq/examples/"):  # see the test about them
                yield name, path.read_text(encoding="utf-8")


def test_the_search_finds_every_kind_of_call():
    bad = (
        "eval(x)\nexec(x)\nos.system(x)\nos.popen(x)\nfrom os import system as s\ns(x)\npickle.load(f)\n"
        "import subprocess\nsubprocess.run(x, shell=True)\nnp.load(x, allow_pickle=True)\ntorch.load(x)\n"
        "torch.load(x, weights_only=False)\ntorch.hub.load(x)\nhydra.utils.instantiate(x)\nimportlib.import_module(x)"
    )
    assert len(set(find_calls(bad))) == 14
    assert list(find_calls("model.eval()\nDictionary.load(x)\njson.load(x)\nre.compile(x)")) == []


def test_every_call_of_fairseq_that_could_run_something_is_known_and_out_of_reach():
    found, evaluating = set(), set()
    for name, source in list_sources():
        for call in find_calls(source):
            if call == "eval":
                evaluating.add(name)
            else:
                found.add(f"{name} {call}")
    assert len(found) > 30
    assert found == set(OUT_OF_REACH)
    repaired = {f"{module.replace('.', '/')}.py" for module in MODULES}
    assert evaluating == repaired | {f"fairseq_cli/{command}.py" for command in COMMANDS}


def test_fairseqs_examples_are_not_part_of_its_commands():
    for name, source in list_sources():
        assert not re.search(r"^\s*(from|import) fairseq\.examples", source, re.MULTILINE), name


def test_nothing_but_the_command_line_names_a_folder_of_code():
    for name, source in list_sources():
        for argument in re.findall(r"import_user_module\(([^)]*)\)", source):
            from_the_command_line = argument in ("usr_args", "cfg.common") or name == "fairseq_cli/preprocess.py"
            # hub_utils: of from_pretrained(..., user_dir=...)
            assert from_the_command_line or name in ("fairseq/hub_utils.py", "fairseq/utils.py"), (name, argument)


def test_before_torch_2_6_a_checkpoint_is_read_safely_first(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_bombs, "FAIRSEQ_READS_SAFELY", False)
    torch.save({"model": {}, "x": Path("x")}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match=r"reading it would use the Python object pathlib"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "a.pt"))


# ---- FASTA -----------------------------------------------------------------------------------------------------------

HOSTILE = "x;touch PWNED;echo '"


@pytest.mark.parametrize(
    ("content", "offsets", "sizes"),
    [
        (b">a x\nABC\nDE\n>b\nFG\n", [0, 12], [5, 2]),
        (b"; note\n>a\nABC", [7], [3]),
        (b">a\r\nAB\r\nC\r\n>b\r\n", [0, 11], [3, 0]),
        (b">a\nA>B\n\n>b\n>c\nX", [0, 8, 11], [3, 0, 1]),
        (b"", [], []),
        (b">" + b"h" * 25 + b"\n" + b"A" * 31 + b"\n>b\nC", [0, 59], [31, 1]),
    ],
)
def test_sequences_are_found_where_they_are(tmp_path, monkeypatch, content, offsets, sizes):
    monkeypatch.setattr(fasta_without_shell, "CHUNK", 10)
    (tmp_path / "t.fasta").write_bytes(content)
    found = index_fasta(str(tmp_path / "t.fasta"))
    assert [array.tolist() for array in found] == [offsets, sizes]


def test_a_fasta_file_with_a_hostile_name_is_read_without_a_shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delattr(fasta_dataset, "subprocess")
    Path(HOSTILE + ".fasta").write_text(">a\nAB\n>b\nA\n")
    dictionary = Dictionary()
    ids = [dictionary.add_symbol(symbol) for symbol in "AB"]
    for _ in range(2):  # the second time from the index that the first has stored
        dataset = EncodedFastaDataset(HOSTILE, dictionary)
        assert [row.tolist() for row in dataset] == [[*ids, dictionary.eos()], [ids[0], dictionary.eos()]]
        assert dataset.sizes.tolist() == [2, 1]
    assert not Path("PWNED").exists()


def test_the_index_of_a_fasta_file_is_not_written_through_a_link(tmp_path):
    (tmp_path / "t.fasta").write_text(">a\nAB\n")
    (tmp_path / "t.fasta.idx.npy").symlink_to(tmp_path / "victim")
    with pytest.raises(ValueError, match=r"t\.fasta\.idx\.npy must be a file, .* but is a link; remove it"):
        EncodedFastaDataset(str(tmp_path / "t"), Dictionary())
    assert not (tmp_path / "victim").exists()


def test_a_folder_of_data_runs_no_commands_by_the_names_of_its_files(tmp_path, monkeypatch):
    folder = make_data(tmp_path, {"train": 8, "valid": 4})
    words = (folder / "dict.en.txt").read_text()
    (folder / f"dict.{HOSTILE}.txt").write_text(words + "a 1\nb 1\nc 1\n")
    (folder / "dict.en.txt").unlink()
    for split in ("train", "valid"):
        for end in ("bin", "idx"):
            (folder / f"{split}.de-en.de.{end}").rename(folder / f"{split}.de-{HOSTILE}.de.{end}")
            (folder / f"{split}.de-en.en.{end}").unlink()
        size = 8 if split == "train" else 4
        (folder / f"{split}.de-{HOSTILE}.{HOSTILE}.fasta").write_text(">x\nabc\n" * size)
    monkeypatch.chdir(tmp_path)
    small = ["--encoder-layers", 1, "--decoder-layers", 1, "--encoder-embed-dim", 8, "--decoder-embed-dim", 8]
    train(folder, tmp_path / "checkpoints", "muse_tiny", *small, "--max-update", 1)
    assert (tmp_path / "checkpoints" / "checkpoint_last.pt").exists()
    assert not list(tmp_path.rglob("PWNED"))


def test_sentence_tasks_take_no_fasta_file_for_a_column(tmp_path, monkeypatch):
    write_data(tmp_path, {"train": [("a b", "x")]})
    column = tmp_path / "input0"
    dictionary = Dictionary.load(str(column / "dict.txt"))
    (column / "valid.fasta").write_text(">x\nab\n")
    with pytest.raises(FileNotFoundError, match=r"the data must hold .*valid\.bin and \.idx"):
        load_column(column, "valid", dictionary)
