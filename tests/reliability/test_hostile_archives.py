"""Archives and addresses of a recipe that were made to do harm: nothing is written elsewhere, disk and memory last."""

import contextlib
import gzip
import hashlib
import io
import json
import lzma
import shutil
import sys
import tarfile
import zipfile

import pytest
from support.helpers import REPOSITORY, load_program, run_command
from support.memory_limit import limited_memory
from support.web_server import serving

MEBIBYTE = 1 << 20
RECIPE = REPOSITORY / "examples" / "recipe"


@pytest.fixture(scope="module")
def corpus():
    return load_program(RECIPE / "corpus.py")


@pytest.fixture(scope="module")
def download():
    return load_program(RECIPE / "download.py")


def make_tar(path, *members, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def member(name, kind=tarfile.REGTYPE, link=""):
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


# ---- where members go ------------------------------------------------------------------------------------------------

PLACES = [
    "../corpus.en",
    "../../../../corpus.en",
    "a/../../corpus.en",
    "{outside}/corpus.en",
    "..\\corpus.en",
    "corpus.en",
]


@pytest.mark.parametrize("kind", ["tgz", "zip"])
@pytest.mark.parametrize("place", PLACES)
def test_no_name_in_an_archive_leads_out_of_the_folder(tmp_path, corpus, kind, place):
    outside = tmp_path / "outside"
    outside.mkdir()
    name = place.format(outside=outside)
    if kind == "tgz":
        archive = make_tar(tmp_path / "a.tgz", (member(name), b"text\n"))
    else:
        archive = tmp_path / "a.zip"
        with zipfile.ZipFile(archive, "w") as out:
            out.writestr(name, "text\n")
    with contextlib.suppress(ValueError):  # as a name of Windows is none of this recipe
        corpus.extract(archive, tmp_path / "in" / "to", ["corpus.en"])
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path for path in files if path != archive} <= {tmp_path / "in" / "to" / "corpus.en"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_links_and_devices_are_no_members(tmp_path, corpus, kind):
    secret = tmp_path / "secret"
    secret.write_text("key\n")
    archive = make_tar(tmp_path / "a.tgz", (member("x/corpus.en", kind, str(secret)), b""))
    with pytest.raises(ValueError, match=r"a\.tgz must contain corpus\.en, but does not"):
        corpus.extract(archive, tmp_path / "to", ["corpus.en"])
    assert list((tmp_path / "to").iterdir()) == []


def test_a_link_where_a_member_goes_is_replaced_and_not_followed(tmp_path, corpus):
    (tmp_path / "precious").write_text("precious\n")
    (tmp_path / "to").mkdir()
    for name in ("corpus.en", "corpus.en.part"):
        (tmp_path / "to" / name).symlink_to(tmp_path / "precious")
    corpus.extract(make_tar(tmp_path / "a.tgz", (member("corpus.en"), b"text\n")), tmp_path / "to", ["corpus.en"])
    assert (tmp_path / "precious").read_text() == "precious\n"
    assert [(path.name, path.is_symlink()) for path in (tmp_path / "to").iterdir()] == [("corpus.en", False)]


# ---- how much they take ----------------------------------------------------------------------------------------------


def make_bomb(path, kind, size):
    zeros = b"\0" * size
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as out:
            out.writestr("corpus.en", zeros)
    elif kind == "gz in zip":
        with zipfile.ZipFile(path, "w") as out:
            out.writestr("corpus.en.gz", gzip.compress(zeros, 1))
    else:
        make_tar(path, (member("corpus.en"), zeros))
    return path


@pytest.mark.parametrize("kind", ["tgz", "zip", "gz in zip"])
def test_what_unpacks_to_far_more_than_text_does_is_refused(tmp_path, corpus, monkeypatch, kind):
    monkeypatch.setattr(corpus, "HARMLESS_SIZE", MEBIBYTE)
    archive = make_bomb(tmp_path / "a", kind, 16 * MEBIBYTE)
    assert archive.stat().st_size * corpus.MOST_GROWTH < 16 * MEBIBYTE
    with pytest.raises(
        ValueError, match=r"a: corpus\.en must unpack to text, but takes more than \d+ MiB; is this a zip"
    ):
        corpus.extract(archive, tmp_path / "to", ["corpus.en"])
    assert list((tmp_path / "to").iterdir()) == []


def test_repetitive_text_of_ordinary_size_is_unpacked(tmp_path, corpus):
    archive = make_bomb(tmp_path / "a", "zip", 2 * MEBIBYTE)
    corpus.extract(archive, tmp_path / "to", ["corpus.en"])
    assert (tmp_path / "to" / "corpus.en").stat().st_size == 2 * MEBIBYTE


@pytest.fixture(scope="module")
def packed_name():
    return gzip.compress(b"a" * 150 * MEBIBYTE, 1)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_a_header_that_would_fill_the_memory_is_refused(tmp_path, corpus, packed_name, kind):
    header = member("name", kind)
    header.size = 150 * MEBIBYTE
    (tmp_path / "a.tgz").write_bytes(gzip.compress(header.tobuf()) + packed_name)
    with (
        limited_memory(),
        pytest.raises(ValueError, match=r"a whole \.tgz or \.zip archive, but is .*a header of 157286400"),
    ):
        corpus.extract(tmp_path / "a.tgz", tmp_path / "to", ["corpus.en"])


def damage_xz():
    packed = bytearray(lzma.compress(make_tar_bytes()))
    packed[len(packed) // 2] ^= 0xFF
    return bytes(packed)


def make_tar_bytes():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        made = member("corpus.en")
        content = bytes(range(256)) * 100
        made.size = len(content)
        archive.addfile(made, io.BytesIO(content))
    return buffer.getvalue()


def lock_zip(flag, method):
    """A zip file that says of its member that it takes a password, or that it is packed in an unknown way."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as out:
        out.writestr("corpus.en", "text\n")
    content = bytearray(buffer.getvalue())
    for start, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        at = content.index(start) + place
        content[at], content[at + 2] = flag, method
    return bytes(content)


def misplace_zip():
    """A zip file whose last record says that its directory is 50 bytes further on, so its member before byte 0."""
    content = bytearray(lock_zip(0, 0))
    content[content.index(b"PK\5\6") + 16] += 50
    return bytes(content)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 2000,
        make_tar_bytes()[:300],
        gzip.compress(make_tar_bytes())[:-30],
        damage_xz(),
        lock_zip(1, 0),
        lock_zip(0, 99),
        lock_zip(0, 8),
        misplace_zip(),
    ],
    ids=[
        "empty",
        "zeros",
        "cut_tar",
        "cut_tgz",
        "damaged_xz",
        "locked_zip",
        "unknown_zip",
        "wrong_zip",
        "misplaced_zip",
    ],
)
def test_a_damaged_archive_gives_one_sentence(tmp_path, corpus, content):
    (tmp_path / "a").write_bytes(content)
    fault = r"be a whole \.tgz or \.zip archive" if any(content) or not content else r"contain corpus\.en"
    with pytest.raises(ValueError, match=f"a must {fault}, but "):
        corpus.extract(tmp_path / "a", tmp_path / "to", ["corpus.en"])
    assert list((tmp_path / "to").iterdir()) == []


# ---- where downloads come from ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/a",
        "ftp://example.org/a",
        "file:///etc/passwd",
        "//example.org/a",
        "/etc/passwd",
        "--output=/etc/passwd",
        "http://127.0.0.1.example.org/a",
        "http://127.0.0.1@example.org/a",
        "HTTPX://example.org",
        "",
    ],
)
def test_only_https_is_asked(tmp_path, download, monkeypatch, url):
    monkeypatch.setattr(download, "run_curl", lambda *_: pytest.fail("curl was asked"))
    monkeypatch.setattr(download.shutil, "which", lambda _: "/usr/bin/curl")
    with pytest.raises(ConnectionError, match="downloads must be by https, but this address is not"):
        download.fetch(download.Wanted("0" * 64, None, "a", (url,)), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_curl_is_told_to_stay_with_https(tmp_path, download, monkeypatch):
    commands = []
    monkeypatch.setattr(download.subprocess, "run", lambda command, **_: commands.append(command) or done)
    done = type("Done", (), {"returncode": 0})
    assert download.run_curl("https://example.org/a", tmp_path / "a.part") == 0
    assert commands[0][-6:] == ["--proto", "=https", "--proto-redir", "=https", "--", "https://example.org/a"]


@pytest.fixture
def server():
    """A web server on this machine that sends what is asked for elsewhere."""

    def answer(self):
        self.server.asked.append(self.path)
        leads = self.path == "/away"
        self.send_response(302 if leads else 200)
        if leads:
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_address[1]}/there")
        self.send_header("Content-Length", "0" if leads else "4")
        self.end_headers()
        self.wfile.write(b"" if leads else b"evil")

    with serving(answer, asked=[]) as running:
        yield running


def run_download(folder, line, *words):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    (folder / "downloads.tsv").write_text(line)
    tool = RECIPE / "download.py"
    return run_command([sys.executable, str(tool), str(folder / "downloads.tsv"), str(folder / "raw"), *words], folder)


def test_a_server_that_leads_elsewhere_without_https_is_not_followed(tmp_path, server):
    line = f"-\t-\tname\thttp://127.0.0.1:{server.server_address[1]}/away\n"
    done = run_download(tmp_path, line)
    assert done.returncode == 2
    assert "name could not be downloaded" in done.stderr
    assert server.asked == ["/away"]
    assert not (tmp_path / "raw" / "name").exists()


def test_a_download_is_checked_in_a_trial_too(tmp_path, server):
    line = f"{'0' * 64}\t4\tname\thttp://127.0.0.1:{server.server_address[1]}/there\n"
    done = run_download(tmp_path, line, "--any-content")
    assert done.returncode == 2
    assert "has the SHA-256" in done.stderr
    assert not (tmp_path / "raw" / "name").exists()


def test_where_no_checksum_is_published_that_of_what_came_is_printed(tmp_path, server):
    line = f"-\t-\tname\thttp://127.0.0.1:{server.server_address[1]}/there\n"
    done = run_download(tmp_path, line)
    assert done.returncode == 0
    assert f"the SHA-256 of what came is {hashlib.sha256(b'evil').hexdigest()}" in done.stdout


def test_a_gz_file_that_unpacks_to_more_than_it_should_is_read_no_further(tmp_path, download, monkeypatch):
    (tmp_path / "name.gz").write_bytes(gzip.compress(b"\0" * 64 * MEBIBYTE, 1))
    read = []
    real = gzip.open

    class Counting:
        def __init__(self, path):
            self.file = real(path)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        def read(self, size):
            read.append(size)
            return self.file.read(size)

    monkeypatch.setattr(download.gzip, "open", Counting)
    with pytest.raises(ValueError, match="has more than the 10 bytes that it"):
        download.fetch(download.Wanted("0" * 64, 10, "name", ()), tmp_path)
    assert len(read) == 1


# ---- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b"\xff",
        b"{}",
        b"[]",
        b'{"settings": []}',
        json.dumps({"settings": "x" * 10_000}).encode(),
        b"1" * 9999,
    ],
    ids=["deep", "no_text", "empty", "list", "list_inside", "text_inside", "huge_number"],
)
def test_a_table_of_hostile_results_gives_one_sentence(tmp_path, monkeypatch, content):
    monkeypatch.syspath_prepend(str(RECIPE))
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(
        ValueError, match=r"a\.json must be written by 'muse-plugin evaluate --output', but is not"
    ) as fault:
        load_program(RECIPE / "results_table.py").read_results(tmp_path / "a.json")
    assert len(str(fault.value)) < 500
