"""Downloads against a server of our own: whole, broken off and resumed, wrong, missing, no space."""

import gzip
import hashlib
import shutil
import sys
from collections import namedtuple

import pytest
from support.helpers import REPOSITORY, assert_refused, run_command
from support.web_server import serving

TOOL = REPOSITORY / "examples" / "recipe" / "download.py"
CONTENT = bytes(range(256)) * 500


@pytest.fixture
def server():
    """A web server that knows ranges; ``requests`` has the range of every request."""

    def answer(self):
        files = self.server.files
        self.server.requests.append(self.headers.get("Range"))
        if self.path not in files:
            self.send_error(404)
            return
        content, start = files[self.path], 0
        if self.headers.get("Range"):
            start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start:])

    with serving(answer, files={"/corpus.tgz": CONTENT}, requests=[]) as running:
        yield running


def write_manifest(folder, server, sha256=None, size=None, path="/corpus.tgz", more=""):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    url = f"http://127.0.0.1:{server.server_address[1]}{path}"
    sha256 = sha256 or hashlib.sha256(CONTENT).hexdigest()
    manifest = folder / "downloads.tsv"
    manifest.write_text(f"# a comment\n{sha256}\t{size or len(CONTENT)}\tcorpus.tgz\t{more}{url}\n")
    return manifest


def run_tool(manifest, folder, *words):
    return run_command([sys.executable, str(TOOL), str(manifest), str(folder), *words], cwd=folder.parent)


def test_a_file_is_fetched_once_and_checked(tmp_path, server):
    manifest, folder = write_manifest(tmp_path, server), tmp_path / "raw"
    assert run_tool(manifest, folder).returncode == 0
    assert (folder / "corpus.tgz").read_bytes() == CONTENT
    assert run_tool(manifest, folder).returncode == 0
    assert server.requests == [None]
    assert [path.name for path in folder.iterdir()] == ["corpus.tgz"]


def test_a_broken_download_goes_on_where_it_stopped(tmp_path, server):
    manifest, folder = write_manifest(tmp_path, server), tmp_path / "raw"
    folder.mkdir()
    (folder / "corpus.tgz.part").write_bytes(CONTENT[:1000])
    assert run_tool(manifest, folder).returncode == 0
    assert server.requests == ["bytes=1000-"]
    assert (folder / "corpus.tgz").read_bytes() == CONTENT


def test_a_wrong_download_is_not_kept(tmp_path, server):
    folder = tmp_path / "raw"
    done = run_tool(write_manifest(tmp_path, server, sha256="0" * 64), folder)
    assert_refused(done, f"has the SHA-256 {hashlib.sha256(CONTENT).hexdigest()} instead of {'0' * 64}")
    assert list(folder.iterdir()) == []


def test_the_next_mirror_is_asked_when_one_fails(tmp_path, server):
    missing = f"http://127.0.0.1:{server.server_address[1]}/gone.tgz "
    assert run_tool(write_manifest(tmp_path, server, more=missing), tmp_path / "raw").returncode == 0


def test_where_no_mirror_answers_the_sentence_says_how_to_go_on(tmp_path, server):
    folder = tmp_path / "raw"
    done = run_tool(write_manifest(tmp_path, server, path="/gone.tgz"), folder)
    assert done.returncode == 2
    assert (
        "corpus.tgz could not be downloaded; run again to continue where it broke off, or put the file into"
        in done.stderr
    )


@pytest.mark.parametrize("name", ["corpus.tgz", "corpus.tgz.gz"])
def test_a_file_that_is_there_is_used_without_network(tmp_path, download, name):
    wanted = download.Wanted(hashlib.sha256(CONTENT).hexdigest(), len(CONTENT), "corpus.tgz", ("http://127.0.0.1:1/x",))
    (tmp_path / name).write_bytes(gzip.compress(CONTENT) if name.endswith(".gz") else CONTENT)
    assert download.fetch(wanted, tmp_path) == tmp_path / name


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (CONTENT[:-1], "bytes instead of 128000; delete it to have it downloaded again, or put the right file there"),
        (CONTENT[:-1] + b"x", "has the SHA-256"),
    ],
)
def test_a_wrong_file_that_is_there_is_refused_and_kept(tmp_path, download, content, sentence):
    wanted = download.Wanted(hashlib.sha256(CONTENT).hexdigest(), len(CONTENT), "corpus.tgz", ())
    (tmp_path / "corpus.tgz").write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        download.fetch(wanted, tmp_path)
    assert (tmp_path / "corpus.tgz").read_bytes() == content


def test_a_truncated_gz_is_named(tmp_path, download):
    (tmp_path / "corpus.tgz.gz").write_bytes(gzip.compress(CONTENT)[:-20])
    with pytest.raises(ValueError, match="is cut short or no gzip file"):
        download.fetch(download.Wanted("0" * 64, 1, "corpus.tgz", ()), tmp_path)


def test_a_full_disk_is_noticed_before_the_download(tmp_path, download, monkeypatch):
    usage = namedtuple("usage", "total used free")(1, 1, 3 << 20)
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(download.shutil, "which", lambda program: program)
    with pytest.raises(OSError, match="has 3 MiB left, but http://x needs 10 MiB"):
        download.fetch(download.Wanted("0" * 64, 10 << 20, "corpus.tgz", ("http://x",)), tmp_path)


def test_a_wrong_manifest_is_named(tmp_path, download):
    (tmp_path / "m.tsv").write_text("abc\t1\tname\n")
    with pytest.raises(ValueError, match=r"m.tsv, line 1: must be SHA-256, size, file name, URLs"):
        download.read_manifest(tmp_path / "m.tsv")
    (tmp_path / "m.tsv").write_text("abc\t1\t../name\thttp://x\n")
    with pytest.raises(ValueError, match="line 1"):
        download.read_manifest(tmp_path / "m.tsv")


def test_every_recipe_has_a_manifest_that_can_be_read(download):
    manifests = sorted((REPOSITORY / "examples").rglob("downloads.tsv"))
    assert len(manifests) == 14
    for path in manifests:
        wanted = download.read_manifest(path)
        assert wanted
        for file in wanted:
            assert file.sha256 is None or len(file.sha256) == 64


def test_without_a_network_all_files_that_are_missing_are_named(tmp_path, server):
    folder = tmp_path / "raw"
    manifest = write_manifest(tmp_path, server)
    server.shutdown()
    server.server_close()
    text = manifest.read_text()
    names = ["there.txt", "a.txt", "b.txt", "not-wanted.txt"]
    manifest.write_text(
        text + "".join(text.splitlines()[1].replace("corpus.tgz\t", f"{name}\t") + "\n" for name in names)
    )
    folder.mkdir()
    (folder / "there.txt.gz").write_bytes(gzip.compress(CONTENT))
    done = run_tool(manifest, folder, "--only", "a.txt", "there.txt", "corpus.tgz", "b.txt")
    assert done.returncode == 2
    assert "curl ended with exit code 7: there is no network, or no way to this server." in done.stderr
    assert f" Still missing are corpus.tgz, a.txt, b.txt; all are listed in {manifest}.\n" in done.stderr
