"""Files from elsewhere that were made to do harm: nothing in them is run, memory stays small, one sentence says why.

Each file that could run code would leave a file named ``ran`` behind. What would fill the memory is read under a limit.
"""

import argparse
import ast
import contextlib
import gzip
import io
import json
import os
import pickle
import re
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from omegaconf import OmegaConf
from support import fairseq_commands
from support.helpers import PACKAGE, REPOSITORY
from support.memory_limit import limited_memory
from support.pickled_call import Call

from muse_plugin.checkpoints.safe_loading import ALLOWED, load_checkpoint
from muse_plugin.matching.vector_cache import IDS_NAME, META_NAME, VECTORS_NAME, CacheMeta, VectorCache, write_meta
from muse_plugin.modules.bert_encoder import BertEncoder
from muse_plugin.preparation import corpus_formats
from muse_plugin.preparation.corpus_formats import parse_format
from muse_plugin.preparation.vocabulary import load_dictionary
from muse_plugin.pretrained.bert_weights import load_bert_weights, read_bert_sizes
from muse_plugin.pretrained.word_vectors import read_word_vectors
from muse_plugin.text.byte_pair_encoding import BytePairEncoding
from muse_plugin_command import cli

MEBIBYTE = 1 << 20
BOMB = 150 * MEBIBYTE  # more than limited_memory allows
SHORT = 1000  # characters of a sentence


def os_system(marker):
    return Call(os.system, f"touch {marker}")


def getattr_chain(marker):
    """eval, by way of attributes of a harmless class."""
    builtins = Call(getattr, Call(getattr, argparse.Namespace, "__init__"), "__globals__")
    return Call(getattr, builtins, "get")


HARMFUL = {
    "os.system": os_system,
    "eval": lambda marker: Call(eval, f"open({str(marker)!r}, 'w')"),
    "exec": lambda marker: Call(exec, f"open({str(marker)!r}, 'w')"),
    "open": lambda marker: Call(open, str(marker), "w"),
    "getattr": getattr_chain,
    "torch.load": lambda marker: Call(torch.load, str(marker)),
    "argument of an allowed class": lambda marker: Call(argparse.Namespace, os_system(marker)),
    "state of an allowed class": lambda marker: Call(argparse.Namespace, state={"x": os_system(marker)}),
    "key of a dict": lambda marker: {os_system(marker): 1},
    "default_factory": lambda marker: Call(__import__("collections").defaultdict, os.system),
    "pathlib": lambda marker: Call(Path.touch, marker),
    "getattr alone": lambda marker: Call(getattr, argparse.Namespace(), "__class__"),
    "object array": lambda marker: np.array([os_system(marker)], dtype=object),
    "inside allowed classes": lambda marker: argparse.Namespace(
        meters=OmegaConf.create({"x": argparse.Namespace(y=os_system(marker))}, flags={"allow_objects": True})
    ),
}


def refuse(path, sentence="is refused"):
    """Reads a checkpoint, which must end in one sentence."""
    with limited_memory(), pytest.raises(ValueError, match=sentence) as fault:
        load_checkpoint(path)
    assert str(path) in str(fault.value)
    assert len(str(fault.value)) < SHORT


# ---- checkpoints: code -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_archive", [True, False], ids=["archive", "before_1_6"])
@pytest.mark.parametrize("kind", HARMFUL)
def test_no_call_in_a_checkpoint_is_made(tmp_path, kind, is_archive):
    marker = tmp_path / "ran"
    state = {"model": {"w": torch.zeros(2)}, "extra_state": HARMFUL[kind](marker)}
    torch.save(state, tmp_path / "a.pt", _use_new_zipfile_serialization=is_archive)
    refuse(tmp_path / "a.pt", "is refused: .*nothing was run")
    assert not marker.exists()
    if kind == "os.system":  # the file is a real one: without the guard it does create the marker
        torch.load(tmp_path / "a.pt", weights_only=False)
        assert marker.exists()


def pack(path, change=lambda name, part: part):
    """Writes an archive of torch again, packed."""
    with zipfile.ZipFile(path) as old:
        parts = {name: change(name, old.read(name)) for name in old.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as new:
        for name, part in parts.items():
            new.writestr(name, part)


def write_pickle(path, content):
    """A checkpoint of today's format with this pickle in it."""
    torch.save({"model": {}}, path)
    pack(path, lambda name, part: content if name.endswith("data.pkl") else part)


def text(value):
    encoded = value.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def state_with(content):
    """The pickle of ``{"model": {}, "x": ...}``."""
    return b"\x80\x02}(" + text("model") + b"}" + text("x") + content + b"u."


@pytest.mark.parametrize(
    "attack",
    [
        lambda function, command: function + text(command) + b"\x85R",  # function(command)
        lambda function, command: function + b")R" + b"}" + text("__class__") + text(command) + b"sb",  # its state
        lambda function, command: function + b")\x81" + b"}" + text("__setstate__") + text(command) + b"sb",
        lambda function, command: function + b")\x81" + b"N}" + text("__dict__") + text(command) + b"s\x86b",  # slots
        lambda function, command: function + text(command) + b"\x85\x81",  # cls.__new__(cls, command)
        lambda function, command: function + function + b"\x85R" + text(command) + b"\x85R",  # what it returns
    ],
    ids=["call", "state", "new_and_state", "slots", "new", "call_of_result"],
)
def test_no_allowed_name_can_be_led_to_run_anything(tmp_path, attack):
    marker, path = tmp_path / "ran", tmp_path / "a.pt"
    assert len(ALLOWED) > 15
    for name in ALLOWED:
        module, _, short = name.rpartition(".")
        function = f"c{module}\n{short}\n".encode()
        for command in (f"__import__('os').system('touch {marker}')", f"${{oc.env:HOME}}$(touch {marker})"):
            write_pickle(path, state_with(attack(function, command)))
            try:
                state = load_checkpoint(path)
            except ValueError as error:
                assert len(str(error)) < SHORT  # noqa: PT017  (either is right: what counts is that nothing ran)
            else:
                with contextlib.suppress(Exception):  # of what is half made
                    repr(state)
            assert not marker.exists()


@pytest.mark.parametrize(
    "content",
    [
        text("posix.system") + b"Q",  # persistent ids: only storages are
        text("module") + text("torch.nn.Linear") + b"\x86Q",
        b"Pposix.system\n",
        b"\x8c\x05posix\x8c\x06system\x93" + text("true") + b"\x85R",  # instructions of later protocols
        b"cposix\nsystem\n" + text("true") + b"\x85R",
        b"(" + text("true") + b"iposix\nsystem\n",
        b"(cposix\nsystem\n" + text("true") + b"o",
        b"\x82\x01",  # the registry of extensions
    ],
    ids=["persistent", "module", "persistent_text", "stack_global", "reduce", "inst", "obj", "extension"],
)
def test_no_instruction_of_a_pickle_leads_to_code(tmp_path, content):
    write_pickle(tmp_path / "a.pt", state_with(content))
    refuse(tmp_path / "a.pt", "is refused|is cut short or damaged")


def test_no_name_in_a_checkpoint_leads_out_of_it(tmp_path):
    path = tmp_path / "in" / "a.pt"
    path.parent.mkdir()
    torch.save({"model": {}}, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("../../evil", "x")
        archive.writestr(str(tmp_path / "evil"), "x")
    refuse(path, "is cut short or damaged")
    assert [other for other in tmp_path.rglob("*") if other.is_file()] == [path]


# ---- checkpoints: memory ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bomb", ["data.pkl", "data/0"])
def test_an_archive_that_unpacks_to_more_than_its_size_is_refused(tmp_path, bomb):
    path = tmp_path / "a.pt"
    torch.save({"model": {"w": torch.zeros(4)}, "more": torch.zeros(1)}, path)
    pack(path, lambda name, part: part + b"\0" * BOMB if name.endswith(bomb) else part)
    assert path.stat().st_size < BOMB // 50
    refuse(path, r"a\.pt is refused: it has [\d,]+ bytes, but its parts would take 157,[\d,]+ in memory")


def test_parts_that_are_one_stretch_of_the_file_are_counted_each(tmp_path):
    path = tmp_path / "a.pt"
    torch.save({"model": {"w": torch.zeros(100_000)}}, path)
    content = path.read_bytes()
    start = content.index(b"PK\1\2")
    end = content.index(b"PK\5\6")
    entry = next(part for part in content[start:].split(b"PK\1\2") if b"data/0" in part)
    more = b"".join(b"PK\1\2" + entry.replace(b"data/0", b"data/%d" % number) for number in range(1, 10))
    tail = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 20, 20, end - start + len(more), start, 0)
    entries = content[start:end].split(b"PK\6\6")[0]  # without the records of 64 bits
    tail = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, *[entries.count(b"PK\1\2") + 9] * 2, len(entries + more), start, 0)
    path.write_bytes(content[:start] + entries + more + tail)
    refuse(path, "but its parts would take 4,0")


def save_legacy(state, path):
    torch.save(state, path, _use_new_zipfile_serialization=False)


@pytest.mark.parametrize("save", [torch.save, save_legacy], ids=["archive", "before_1_6"])
def test_memory_by_a_number_in_the_file_is_refused(tmp_path, save):
    save({"model": {}, "x": Call(bytearray, BOMB)}, tmp_path / "a.pt")
    refuse(tmp_path / "a.pt", "use the Python object bytearray, which takes as much memory as the file says")


@pytest.mark.parametrize("save", [torch.save, save_legacy], ids=["archive", "before_1_6"])
@pytest.mark.parametrize("function", [torch.Tensor, torch.FloatTensor])
def test_a_tensor_of_a_number_in_the_file_does_not_fill_the_memory(tmp_path, save, function):
    save({"model": {}, "x": Call(function, 1 << 33)}, tmp_path / "a.pt")
    refuse(tmp_path / "a.pt", "asks for more memory than there is")


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(1).expand(1_000_000, 1_000_000),
        torch.zeros(4).as_strided((1 << 20, 1 << 20), (0, 0)),
        torch.empty(10**12, device="meta"),
        torch.eye(2).to_sparse(),
        torch.eye(2).to_sparse_csr(),
    ],
    ids=["expanded", "strided", "meta", "sparse", "sparse_rows"],
)
def test_a_parameter_that_is_larger_than_what_is_stored_of_it_is_refused(tmp_path, tensor):
    torch.save({"model": {"good": torch.zeros(3), "bad": tensor}}, tmp_path / "a.pt")
    refuse(
        tmp_path / "a.pt", r"is refused: bad has the shape \(\d+, ?\d*\), but not all of its numbers are in the file"
    )


def test_parameters_that_share_their_numbers_are_read(tmp_path):
    table = torch.arange(12.0).reshape(3, 4)
    shared = {"a": table, "b": table, "transposed": table.t(), "row": table[1], "one": table[:1].expand(1, 4)}
    torch.save({"model": {**shared, "empty": torch.zeros(0, 5), "scalar": torch.tensor(2.0)}}, tmp_path / "a.pt")
    assert len(load_checkpoint(tmp_path / "a.pt")["model"]) == 7


@pytest.mark.parametrize("claimed", [5, 1 << 30])
@pytest.mark.parametrize("is_archive", [True, False], ids=["archive", "before_1_6"])
def test_a_storage_that_claims_more_than_is_there_is_refused(tmp_path, is_archive, claimed):
    path = tmp_path / "a.pt"
    torch.save({"model": {"w": torch.arange(4.0)}}, path, _use_new_zipfile_serialization=is_archive)

    def lie(content):
        at = content.index(b"K\x04", content.index(b"cpu"))
        return content[:at] + b"J" + struct.pack("<i", claimed) + content[at + 2 :]

    if is_archive:
        with zipfile.ZipFile(path) as archive:
            content = archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))
            numbers = archive.read(next(name for name in archive.namelist() if name.endswith("data/0")))
        write_pickle(path, lie(content))
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("a/data/0", numbers)
    else:
        path.write_bytes(lie(path.read_bytes()))
    refuse(path, "is cut short or damaged|asks for more memory than there is")


# ---- checkpoints: every command that reads one -----------------------------------------------------------------------


COMMANDS = {
    "average": ["average", "--inputs", "{path}", "{data}/checkpoint_avg.pt", "--output", "{folder}/out.pt"],
    "convert": ["convert", "{path}", "{folder}/out.pt"],
    "translate": ["translate", "--path", "{path}", "--data", "{data}", "--cpu"],
    "predict": ["predict", "--path", "{path}", "--data", "{data}", "--cpu"],
    "encode": [
        "match",
        "encode",
        "--path",
        "{path}",
        "--input",
        "{data}/dict.de.txt",
        "--output",
        "{folder}/c",
        "--cpu",
    ],
    "analyze": ["analyze", "model", "--path", "{path}", "--data", "{data}", "--output", "{folder}/figures"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_what_is_in_a_checkpoint(tmp_path, checkpoint_folder, capsys, command):
    marker = tmp_path / "ran"
    state = torch.load(checkpoint_folder / "checkpoint_avg.pt", weights_only=True)
    torch.save({**state, "extra_state": os_system(marker)}, tmp_path / "a.pt")
    words = [word.format(path=tmp_path / "a.pt", folder=tmp_path, data=checkpoint_folder) for word in COMMANDS[command]]
    assert cli.main(words) == 2
    assert "a.pt is refused: reading it would use the Python object posix.system" in capsys.readouterr().err
    assert not marker.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    data = fairseq_commands.make_data(folder / "text", {"train": 8, "valid": 2, "test": 2})
    fairseq_commands.train(data, folder, "muse_tiny", *fairseq_commands.SMALL, "--max-update", 1)
    return folder, data


def test_fairseqs_commands_run_nothing_that_is_in_a_checkpoint(tmp_path, trained):
    folder, data = trained
    marker = tmp_path / "ran"
    state = torch.load(folder / "checkpoint_last.pt", weights_only=True)
    torch.save({**state, "extra_state": os_system(marker)}, tmp_path / "checkpoint_last.pt")
    with pytest.raises(ValueError, match=r"is refused: reading it would use the Python object posix\.system"):
        fairseq_commands.generate(data, tmp_path / "checkpoint_last.pt")
    # Training names other faults first, or this one.
    with pytest.raises(Exception, match=r"posix\.system|checkpoint"):
        fairseq_commands.train(data, tmp_path, "muse_tiny", *fairseq_commands.SMALL, "--max-update", 2)
    assert not marker.exists()


def test_generation_says_in_one_sentence_that_a_checkpoint_is_cut_short(tmp_path, trained):
    folder, data = trained
    content = (folder / "checkpoint_last.pt").read_bytes()
    path = tmp_path / "half.pt"
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))} is cut short or damaged; .*[^\n]$"):
        fairseq_commands.generate(data, path)


@pytest.mark.parametrize("setting", ["decoder_kernel_sizes", "encoder_branches", "adaptive_softmax_cutoff"])
def test_settings_in_a_checkpoint_are_no_programs(tmp_path, checkpoint_folder, capsys, monkeypatch, setting):
    marker = tmp_path / "ran"
    state = torch.load(checkpoint_folder / "checkpoint_avg.pt", weights_only=True)
    setattr(state["cfg"]["model"], setting, f"__import__('os').system('touch {marker}')")
    if setting == "adaptive_softmax_cutoff":
        state["cfg"]["model"].share_all_embeddings = False
        state["cfg"]["model"].share_decoder_input_output_embed = False
    torch.save(state, tmp_path / "a.pt")
    assert cli.main(["translate", "--path", str(tmp_path / "a.pt"), "--data", str(checkpoint_folder), "--cpu"]) == 2
    assert "__import__" in capsys.readouterr().err
    assert not marker.exists()


# ---- folders of a BERT -----------------------------------------------------------------------------------------------

SIZES = {
    "vocab_size": 10,
    "hidden_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 6,
    "max_position_embeddings": 8,
}


def make_bert_folder(folder, weights=b"", name="pytorch_model.bin", **sizes):
    (folder / "config.json").write_text(json.dumps({**SIZES, **sizes}))
    (folder / name).write_bytes(weights)
    return folder


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"[" * 100_000, "must be a JSON object"),
        (b'{"a":' * 100_000, "must be a JSON object"),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "must be a JSON object"),
        (b'{"hidden_size": NaN}', "must have vocab_size, but it is missing"),
        (b"\xff\xfe{}", "codec can't decode"),
        (b" " * (2 * MEBIBYTE), r"must have at most 1,048,576 bytes, but it has 2,097,152"),
        (json.dumps({**SIZES, "hidden_size": float("nan")}).encode(), "hidden_size is nan"),
        (json.dumps({**SIZES, "layer_norm_eps": float("inf")}).encode(), "layer_norm_eps is inf"),
        (json.dumps({**SIZES, "hidden_act": ["gelu"]}).encode(), r"hidden_act is \['gelu'\]"),
        (json.dumps({**SIZES, "hidden_act": {}}).encode(), r"hidden_act is {}"),
    ],
    ids=["deep_list", "deep_object", "huge_number", "nan", "no_text", "long", "nan_size", "infinite", "list", "object"],
)
def test_a_hostile_config_gives_one_sentence(tmp_path, content, sentence):
    make_bert_folder(tmp_path)
    (tmp_path / "config.json").write_bytes(content)
    with limited_memory(), pytest.raises(ValueError, match=sentence) as fault:
        read_bert_sizes(tmp_path)
    assert len(str(fault.value)) < SHORT


@pytest.mark.parametrize(
    "sizes",
    [
        {"vocab_size": 10**12},
        {"max_position_embeddings": 10**10},
        {"type_vocab_size": 10**10},
        {"num_hidden_layers": 10**12},
        {"intermediate_size": 10**9},
        {"hidden_size": 10**6},
    ],
    ids=lambda sizes: next(iter(sizes)),
)
def test_a_config_of_more_parameters_than_the_file_has_bytes_is_refused(tmp_path, sizes):
    make_bert_folder(tmp_path, b"x" * 100, **sizes)
    with (
        limited_memory(),
        pytest.raises(ValueError, match=r"parameters and that file has only 100 bytes; copy or downl"),
    ):
        BertEncoder(read_bert_sizes(tmp_path))


@pytest.mark.parametrize("what", ["/dev/zero", "/dev/stdin", "fifo", "folder", "loop"])
@pytest.mark.parametrize("name", ["config.json", "pytorch_model.bin"])
def test_what_is_no_file_is_not_read(tmp_path, name, what):
    make_bert_folder(tmp_path, b"x")
    (tmp_path / name).unlink()
    if what == "fifo":
        os.mkfifo(tmp_path / name)
    elif what == "folder":
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).symlink_to(tmp_path / name if what == "loop" else what)
    with pytest.raises(FileNotFoundError, match=r"--bert-dir must name a folder with config\.json and"):
        read_bert_sizes(tmp_path)


def bert_parameters():
    encoder = BertEncoder(read_sizes())
    names = {}
    from muse_plugin.pretrained import bert_weights

    state = encoder.state_dict()
    for ours, parts in bert_weights._list_parts(1).items():
        for part, piece in zip(parts, state[ours].chunk(len(parts)), strict=True):
            names[part] = piece.clone()
    return encoder, names


def read_sizes():
    from muse_plugin.pretrained.bert_weights import parse_bert_sizes

    return parse_bert_sizes(json.dumps(SIZES))


def test_the_parameters_that_these_tests_damage_are_read_when_whole(tmp_path):
    encoder, parameters = bert_parameters()
    torch.save(parameters, make_bert_folder(tmp_path) / "pytorch_model.bin")
    load_bert_weights(encoder, tmp_path)


def fill_bin(folder, kind):
    _, parameters = bert_parameters()
    path = folder / "pytorch_model.bin"
    name = next(iter(parameters))
    if kind == "zip bomb":
        torch.save(parameters, path)
        pack(path, lambda part, content: content + b"\0" * BOMB if part.endswith("data.pkl") else content)
    elif kind == "bytearray":
        torch.save({**parameters, "x": Call(bytearray, BOMB)}, path)
    elif kind == "expanded":
        torch.save({**parameters, name: torch.zeros(1, 1).expand(1_000_000, 1_000_000)}, path)
    elif kind == "expanded part":
        key = next(part for part in parameters if part.endswith("query.weight"))
        torch.save({**parameters, key: torch.zeros(1, 1).expand(100_000, 100_000)}, path)
    else:
        torch.save({**parameters, "x": os_system(folder / "ran")}, path)


@pytest.mark.parametrize("kind", ["zip bomb", "bytearray", "expanded", "expanded part", "os.system"])
def test_hostile_parameters_are_refused(tmp_path, kind):
    fill_bin(make_bert_folder(tmp_path), kind)
    encoder = BertEncoder(read_bert_sizes(tmp_path))
    with limited_memory(), pytest.raises(ValueError, match=r"is refused|holds more than parameters") as fault:
        load_bert_weights(encoder, tmp_path)
    assert len(str(fault.value)) < SHORT
    assert not (tmp_path / "ran").exists()


def safetensors_of(header, body=b"", length=None):
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(encoded) if length is None else length) + encoded + body


@pytest.mark.parametrize(
    "content",
    [
        safetensors_of({}, length=1 << 62),
        safetensors_of({}, length=99_000_000),
        safetensors_of(b"[" * 100_000),
        safetensors_of(b'{"a":' * 100_000),
        safetensors_of({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}),
        safetensors_of({"a": {"dtype": "F32", "shape": [1 << 40, 0], "data_offsets": [0, 0]}}),
        safetensors_of({"a": {"dtype": "F32", "shape": [2], "data_offsets": [-8, 0]}}, b"\0" * 8),
        safetensors_of({"a": {"dtype": "O", "shape": [1], "data_offsets": [0, 8]}}, b"\0" * 8),
        safetensors_of({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, b"\0" * 4),
        pickle.dumps({"a": 1}),
        b"",
    ],
    ids="length long_header deep_list deep_object large_shape no_numbers before_start objects cut pickle empty".split(),
)
def test_hostile_safetensors_are_refused(tmp_path, content):
    pytest.importorskip("safetensors")
    encoder, _ = bert_parameters()
    make_bert_folder(tmp_path, content, "model.safetensors")
    with limited_memory(), pytest.raises(ValueError, match=r"model\.safetensors must hold the parameters of a BERT"):
        load_bert_weights(encoder, tmp_path)


# ---- caches of vectors -----------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path):
    ids = b"first\nsecond\n"
    meta = CacheMeta("f" * 64, "t" * 64, True, 2, 3, "float32", 5, done=2, id_bytes=len(ids), whole=True)
    write_meta(meta, tmp_path)
    (tmp_path / IDS_NAME).write_bytes(ids)
    (tmp_path / VECTORS_NAME).write_bytes(struct.pack("<6f", *range(6)))
    assert VectorCache(tmp_path).names([1]) == ["second"]
    return tmp_path


def change_meta(folder, **entries):
    content = {**json.loads((folder / META_NAME).read_text()), **entries}
    (folder / META_NAME).write_text(json.dumps(content))


@pytest.mark.parametrize(
    "content",
    [b"[" * 60_000, b'{"a":' * 10_000, b'{"width": ' + b"9" * 5000 + b"}", b"\xff", b"", b" " * MEBIBYTE, b"null"],
    ids=["deep_list", "deep_object", "huge_number", "no_text", "empty", "long", "null"],
)
def test_a_hostile_description_of_a_cache_gives_one_sentence(cache, content):
    (cache / META_NAME).write_bytes(content)
    with limited_memory(), pytest.raises(ValueError, match=r"meta\.json must ") as fault:
        VectorCache(cache)
    assert len(str(fault.value)) < SHORT


@pytest.mark.parametrize(
    "entries",
    [
        {"width": 1 << 50},
        {"width": float("nan")},
        {"width": True},
        {"width": -3},
        {"done": 1 << 50, "sentences": 1 << 50},
        {"id_bytes": 1 << 50},
        {"dtype": "object"},
        {"dtype": ["float32"]},
        {"dtype": "O" * 10_000},
        {"format_version": "1" * 10_000},
        {"format_version": [[1]] * 1000},
        {"versions": "x"},
        {f"{number:099}": 1 for number in range(500)},
    ],
    ids=lambda entries: next(iter(entries)),
)
def test_a_hostile_entry_in_the_description_of_a_cache_is_refused(cache, entries):
    change_meta(cache, **entries)
    with limited_memory(), pytest.raises(ValueError, match=r"must ") as fault:
        VectorCache(cache)
    assert len(str(fault.value)) < SHORT


def put_ids(cache, ids):
    (cache / IDS_NAME).write_bytes(ids)
    change_meta(cache, id_bytes=len(ids))


def test_ids_that_are_no_text_are_named_by_their_line(cache):
    put_ids(cache, b"first\nsec\xffnd\n")
    for use in (lambda: VectorCache(cache).names([1]), lambda: VectorCache(cache).find(["first"])):
        with pytest.raises(ValueError, match=r"ids must be UTF-8, but line 2 of .*ids is not; remove the folder"):
            use()


def test_an_id_that_would_fill_the_memory_is_refused(cache):
    put_ids(cache, b"first\n" + b"x" * (2 * MEBIBYTE) + b"\n")
    for use in (lambda: VectorCache(cache).names([0]), lambda: VectorCache(cache).find(["first"])):
        with pytest.raises(
            ValueError, match=r"an id must have at most 1,048,576 bytes, but .*ids has one of 2,097,153"
        ):
            use()


def test_nothing_but_plain_numbers_is_read_of_a_cache(cache):
    marker = cache / "ran"
    buffer = io.BytesIO()
    import numpy as np

    np.save(buffer, np.array([os_system(marker)], dtype=object), allow_pickle=True)
    for name in ("vectors.npy", "ids.npy", "vectors.pkl"):
        (cache / name).write_bytes(buffer.getvalue())
    (cache / VECTORS_NAME).write_bytes(buffer.getvalue()[:24].ljust(24, b"\0"))
    VectorCache(cache).names([0, 1])
    with pytest.raises(ValueError, match="must have 24 bytes"):
        (cache / VECTORS_NAME).write_bytes(buffer.getvalue()) and VectorCache(cache)
    assert not marker.exists()


# ---- vectors, dictionaries, codes, labelled text ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def packed_line():
    """A line without end, which takes a thousandth of its length on disk."""
    return gzip.compress(b"1 " * (BOMB // 2), 1)


def test_word_vectors_without_line_ends_do_not_fill_the_memory(tmp_path, packed_line):
    (tmp_path / "v.gz").write_bytes(packed_line)
    with limited_memory(), pytest.raises(ValueError, match=r"at most 4,194,304 bytes, but line 1 of .*v\.gz has more"):
        read_word_vectors(tmp_path / "v.gz", {"a": 0})


def test_the_longest_row_of_word_vectors_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("muse_plugin.files.lines.LONGEST_LINE", 8)
    (tmp_path / "v").write_text("a 1 2 3\nb 1 2 3\n")
    assert read_word_vectors(tmp_path / "v", {"b": 0}).vectors.tolist() == [[1, 2, 3]]


@pytest.mark.parametrize("header", ["1 " + "9" * 5000, "9" * 5000 + " 3", f"1 {10**14}", "0 0"])
def test_a_hostile_header_of_word_vectors_gives_one_sentence(tmp_path, header):
    (tmp_path / "v").write_text(f"{header}\na 1 2 3\n")
    with limited_memory(), pytest.raises(ValueError, match=r"the width of all rows must be") as fault:
        read_word_vectors(tmp_path / "v", {"a": 0})
    assert len(str(fault.value)) < 6000


@pytest.mark.parametrize("number", ["1" * 5000, "nan", "inf", "1e999", "0x10", "__import__('os')"])
def test_hostile_numbers_of_word_vectors_are_named_by_their_line(tmp_path, number):
    (tmp_path / "v").write_text(f"a 1 2\nb 1 {number}\n")
    with pytest.raises(ValueError, match=r"line 2 of"):
        read_word_vectors(tmp_path / "v", {"b": 0})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a 1\na 1\n", None),
        ("a " + "9" * 5000 + "\n", None),
        ("a x\n", None),
        ("a\n", None),
        ("<pad> 1\n", None),
        ("a 99999999999999999999999999\n", ["a"]),
        ("a -5\n", ["a"]),
        ("a 1\na 2 #fairseq:overwrite\n", ["a", "a"]),
    ],
    ids=["twice", "huge", "no_number", "no_count", "special", "large", "negative", "overwrite"],
)
def test_a_hostile_dictionary_is_refused_or_harmless(tmp_path, content, words):
    (tmp_path / "dict.txt").write_text(content)
    if words is None:
        with pytest.raises(ValueError, match=r"dict\.txt must be a dictionary of fairseq, but reading it gave"):
            load_dictionary(tmp_path / "dict.txt")
    else:
        dictionary = load_dictionary(tmp_path / "dict.txt")
        assert dictionary.symbols[dictionary.nspecial :] == words
        assert dictionary.index("a") == len(dictionary) - 1
        assert [dictionary.index(symbol) for symbol in Dictionary().symbols] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("merges", "sentence"),
    [
        ("x" * (10 * MEBIBYTE), "two symbols on each line, but line 2 is 'xxx"),
        ("x " * (5 * MEBIBYTE), "two symbols on each line, but line 2 is 'x x"),
        ("x" * (10 * MEBIBYTE) + " y", None),
        ("__import__('os').abort() y", None),
        ("@@ @@", None),
        ("\u2028 \x85", None),
    ],
    ids=["one_symbol", "many_symbols", "long_symbol", "program", "marker", "separators"],
)
def test_hostile_codes_are_refused_or_harmless(merges, sentence):
    codes = f"#version: 0.2\n{merges}\n"
    if sentence is None:
        assert "".join(BytePairEncoding(codes).split(["abc"])).replace("@@", "") == "abc"
        return
    with pytest.raises(ValueError, match=sentence) as fault:
        BytePairEncoding(codes)
    assert len(str(fault.value)) < SHORT


@pytest.mark.parametrize("extra", ["", "-DOCSTART-\n", "# a comment\n"], ids=["words", "documents", "comments"])
def test_tagged_words_without_blank_lines_do_not_fill_the_memory(tmp_path, monkeypatch, extra):
    monkeypatch.setattr(corpus_formats, "MOST_WORDS", 50)
    (tmp_path / "t").write_text(f"a N\n{extra}" * 51)
    with pytest.raises(
        ValueError, match=r"a blank line must follow each sentence, but .*t has 50 words before line \d+ a"
    ):
        list(parse_format("conll").read(tmp_path / "t", "--train"))
    (tmp_path / "t").write_text("a N\n" * 50 + "\n" + "b N\n" * 50)
    assert [len(example.words) for example in parse_format("conll").read(tmp_path / "t", "--train")] == [50, 50]


@pytest.mark.parametrize(
    "form", ["tsv:text=2,label=1", "tsv:text=no,label=1", "conll", "conll:1,900", "label-tab-text"]
)
def test_hostile_lines_of_labelled_text_give_short_sentences(tmp_path, form):
    (tmp_path / "t").write_text("column\r" * 100_000 + "\n" + "\t".join(["x" * 50] * 20_000) + "\n" + "y" * MEBIBYTE)
    with limited_memory(), pytest.raises(ValueError, match=r"line \d of|of the first line") as fault:
        list(parse_format(form).read(tmp_path / "t", "--train"))
    assert len(str(fault.value)) < 2 * SHORT


def test_a_table_of_many_columns_names_some_of_them(tmp_path):
    (tmp_path / "t").write_text("\t".join(f"column{number}" for number in range(5000)) + "\nx\ty\n")
    with pytest.raises(ValueError, match=r"'column19' and 4,980 more\.") as fault:
        list(parse_format("tsv:text=no,label=1").read(tmp_path / "t", "--train"))
    assert len(str(fault.value)) < SHORT


# ---- YAML ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tag",
    [
        "!!python/object/apply:os.system ['touch {marker}']",
        "!!python/object/new:os.system ['touch {marker}']",
        "!!python/name:os.system",
        "!!python/module:os",
        "!!python/object:argparse.Namespace {{x: 1}}",
        '!!python/object/apply:builtins.eval [\'open("{marker}", "w")\']',
    ],
    ids=["apply", "new", "name", "module", "object", "eval"],
)
def test_yaml_makes_no_python_objects(tmp_path, tag):
    marker = tmp_path / "ran"
    (tmp_path / "evil.yaml").write_text(f"model:\n  x: {tag.format(marker=marker)}\n")
    with pytest.raises(Exception, match="could not determine a constructor for the tag"):
        OmegaConf.load(tmp_path / "evil.yaml")
    assert not marker.exists()


# ---- what this rests on ----------------------------------------------------------------------------------------------

FORBIDDEN = {
    *("eval", "exec", "os.system", "os.popen", "extractall", "numpy.load", "np.load"),
    *("pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.load", "marshal.loads", "shelve.open"),
    *(
        "yaml.load",
        "yaml.unsafe_load",
        "yaml.full_load",
        "joblib.load",
        "pandas.read_pickle",
        "hydra.utils.instantiate",
    ),
}


def name_of(node):
    if isinstance(node, ast.Name):
        return node.id
    return f"{name_of(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else "?"


# Most files have none of these words and need not be parsed.
WORDS = re.compile("|".join({name.rpartition(".")[2] for name in FORBIDDEN} | {"shell"}))


def find_dangers(path):
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if WORDS.search(text) else ():
        if not isinstance(node, ast.Call):
            continue
        name = name_of(node.func)
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        is_unsafe = name == "torch.load" and not (
            isinstance(keywords.get("weights_only"), ast.Constant) and keywords["weights_only"].value is True
        )
        if name in FORBIDDEN or name.rpartition(".")[2] == "extractall" or is_unsafe or "shell" in keywords:
            yield f"{path}:{node.lineno}: {name}"


def test_nothing_that_runs_data_is_called_anywhere(tmp_path):
    bad = "torch.load(a)\ntorch.load(a, weights_only=False)\neval(x)\nx.extractall()\nrun(a, shell=True)\nnp.load(a)"
    (tmp_path / "a.py").write_text(bad)
    assert len(list(find_dangers(tmp_path / "a.py"))) == 6
    files = [
        path for folder in (PACKAGE, REPOSITORY / "examples", REPOSITORY / "scripts") for path in folder.rglob("*.py")
    ]
    assert len(files) > 200
    assert [danger for path in files for danger in find_dangers(Path(path))] == []
