"""Laws of fetching: the right file or none, over https, and never half of one."""

import contextlib
import dataclasses
import hashlib
import http.client
import http.server
import io
import tarfile
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest

from stiffnet.data import download as module, open_data
from stiffnet.data.download import SOURCES, Source, download, https_only
from stiffnet.errors import CorruptFileError, DataError, StorageError, UnknownNameError

RECORDS = np.random.default_rng(0).integers(0, 100, (5, 3074), dtype=np.uint8).tobytes()


def packed(files, folder="cifar-100-binary"):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


ARCHIVE = packed({"train.bin": RECORDS, "test.bin": RECORDS[:3074]})


@pytest.fixture(autouse=True)
def _small_source(monkeypatch):
    """CIFAR-100 with five images, in pieces of a few bytes."""
    source = Source(
        url="https://example.org/cifar-100-binary.tar.gz",
        size=len(ARCHIVE),
        sha256=hashlib.sha256(ARCHIVE).hexdigest(),
        folder="cifar-100-binary",
        files={"train.bin": 5 * 3074, "test.bin": 3074},
    )
    monkeypatch.setitem(SOURCES, "cifar100", source)
    monkeypatch.setattr(module, "CHUNK", 1000)


class Server:
    """Serves bytes as a web server would, and remembers what it was asked for."""

    def __init__(self, content=ARCHIVE, *, resumes=True, fails_after=None, ends_after=None):
        self.content, self.resumes = content, resumes
        self.fails_after, self.ends_after = fails_after, ends_after
        self.asked = []

    @contextlib.contextmanager
    def __call__(self, url, start):
        self.asked.append((url, start))
        self.status = 206 if start and self.resumes else 200
        self.place = start if self.status == 206 else 0
        self.sent = 0
        yield self

    def read(self, amount):
        if self.fails_after is not None and self.sent >= self.fails_after:
            raise ConnectionResetError(104, "Connection reset by peer")
        if self.ends_after is not None and self.sent >= self.ends_after:
            return b""
        piece = self.content[self.place : self.place + amount]
        self.place += len(piece)
        self.sent += len(piece)
        return piece


def everything(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


WHOLE = ["cifar-100-binary", "cifar-100-binary/test.bin", "cifar-100-binary/train.bin"]


def test_it_fetches_unpacks_and_leaves_nothing_else(tmp_path):
    server, counts = Server(), []
    place = download("cifar100", tmp_path / "new", opener=server, on_bytes=counts.append)
    assert place == tmp_path / "new" / "cifar-100-binary"
    assert everything(tmp_path / "new") == WHOLE
    assert sum(counts) == len(ARCHIVE)
    assert len(open_data(f"cifar100:{tmp_path / 'new'}", "train")) == 5
    assert server.asked == [("https://example.org/cifar-100-binary.tar.gz", 0)]


def test_what_is_there_is_not_fetched_again(tmp_path):
    download("cifar100", tmp_path, opener=Server())
    server = Server()
    assert download("cifar100", tmp_path, opener=server) == tmp_path / "cifar-100-binary"
    assert server.asked == []


@pytest.mark.parametrize("resumes", [True, False], ids=["resumes", "begins anew"])
@pytest.mark.parametrize("fault", [{"fails_after": 4000}, {"ends_after": 4000}], ids=str)
def test_a_broken_connection_is_taken_up_again(tmp_path, fault, resumes):
    with pytest.raises(DataError, match="it continues where it stopped"):
        download("cifar100", tmp_path, opener=Server(**fault))
    assert everything(tmp_path) == [".stiffnet.cifar-100-binary.tar.gz.part"]
    assert (tmp_path / ".stiffnet.cifar-100-binary.tar.gz.part").stat().st_size == 4000
    server, counts = Server(resumes=resumes), []
    download("cifar100", tmp_path, opener=server, on_bytes=counts.append)
    assert sum(counts) == len(ARCHIVE)
    assert server.asked[0][1] == 4000
    assert server.sent == len(ARCHIVE) - (4000 if resumes else 0)
    assert everything(tmp_path) == WHOLE


@pytest.mark.parametrize(
    "content",
    [
        ARCHIVE[:-1] + b"?",
        ARCHIVE + b"more",
        b"<html>not found</html>" * 2000,
        packed({"train.bin": bytes(5 * 3074), "test.bin": RECORDS[:3074]}) + bytes(20_000),
    ],
    ids=["a byte differs", "longer", "a page", "another archive"],
)
def test_another_file_is_thrown_away(tmp_path, content):
    with pytest.raises(CorruptFileError, match="another file than is known as cifar100"):
        download("cifar100", tmp_path, opener=Server(content))
    assert everything(tmp_path) == []


def test_a_server_without_end_is_stopped(tmp_path):
    server = Server(bytes(100 * len(ARCHIVE)))
    with pytest.raises(CorruptFileError, match="another file than is known as cifar100"):
        download("cifar100", tmp_path, opener=server)
    assert server.sent < len(ARCHIVE) + 3000


def test_a_damaged_part_does_not_stay(tmp_path):
    (tmp_path / ".stiffnet.cifar-100-binary.tar.gz.part").write_bytes(b"x" * 4000)
    with pytest.raises(CorruptFileError, match="another file than is known as cifar100"):
        download("cifar100", tmp_path, opener=Server())
    download("cifar100", tmp_path, opener=Server())
    assert everything(tmp_path) == WHOLE


def test_an_archive_without_the_files_is_refused(tmp_path, monkeypatch):
    other = packed({"train.bin": RECORDS})
    source = dataclasses.replace(
        SOURCES["cifar100"], size=len(other), sha256=hashlib.sha256(other).hexdigest()
    )
    monkeypatch.setitem(SOURCES, "cifar100", source)
    with pytest.raises(CorruptFileError, match="does not hold cifar100"):
        download("cifar100", tmp_path, opener=Server(other))
    assert everything(tmp_path) == [".stiffnet.cifar-100-binary.tar.gz.part"]


@pytest.mark.parametrize("left", ["part", "archive", "unpacked", "unpacked whole"])
def test_whatever_a_killed_run_left_the_next_one_is_complete(tmp_path, left):
    come = ARCHIVE[:500] if left == "part" else ARCHIVE
    (tmp_path / ".stiffnet.cifar-100-binary.tar.gz.part").write_bytes(come)
    if left.startswith("unpacked"):
        half = tmp_path / ".stiffnet.cifar-100-binary.unpacked" / "cifar-100-binary"
        half.mkdir(parents=True)
        (half / "train.bin").write_bytes(RECORDS)
        if left.endswith("whole"):
            (half / "test.bin").write_bytes(bytes(3074))
    download("cifar100", tmp_path, opener=Server())
    assert everything(tmp_path) == WHOLE
    assert (tmp_path / "cifar-100-binary" / "test.bin").read_bytes() == RECORDS[:3074]


def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "cifar-100-binary").mkdir()
    (tmp_path / "cifar-100-binary" / "train.bin").write_text("mine")
    with pytest.raises(StorageError, match="is not the whole of cifar100"):
        download("cifar100", tmp_path, opener=Server())
    assert everything(tmp_path) == ["cifar-100-binary", "cifar-100-binary/train.bin"]


def test_an_archive_of_somebodys_own_is_used_and_stays(tmp_path):
    own = tmp_path / "cifar-100-binary.tar.gz"
    own.write_bytes(ARCHIVE)
    server = Server()
    download("cifar100", tmp_path, opener=server)
    assert server.asked == []
    assert own.read_bytes() == ARCHIVE
    assert everything(tmp_path) == sorted([*WHOLE, own.name])


def test_another_file_of_the_archives_name_stays(tmp_path):
    other = tmp_path / "cifar-100-binary.tar.gz"
    other.write_text("mine")
    download("cifar100", tmp_path, opener=Server())
    assert other.read_text() == "mine"
    assert everything(tmp_path) == sorted([*WHOLE, other.name])


def test_a_place_that_cannot_be_written_is_told_before_anything_is_fetched(tmp_path):
    (tmp_path / "file").write_text("mine")
    server = Server()
    with pytest.raises(StorageError, match="file"):
        download("cifar100", tmp_path / "file", opener=server)
    assert server.asked == []


def test_a_full_disk_is_told(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_sha256", full)
    with pytest.raises(StorageError, match="No space left on device"):
        download("cifar100", tmp_path, opener=Server())


def test_an_unknown_name_is_refused(tmp_path):
    with pytest.raises(UnknownNameError, match="Did you mean 'cifar10' or 'cifar100'"):
        download("cifar", tmp_path)


@pytest.mark.parametrize(
    "error",
    [
        urllib.error.URLError("Name or service not known"),
        urllib.error.HTTPError("https://example.org", 404, "Not Found", {}, io.BytesIO()),
        http.client.IncompleteRead(b""),
        TimeoutError("timed out"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_failing_connection_is_one_sentence(tmp_path, error):
    def fail(url, start):
        raise error

    with pytest.raises(DataError, match=r"could not be fetched: .+ Check the connection") as caught:
        download("cifar100", tmp_path, opener=fail)
    assert "\n" not in str(caught.value)
    if isinstance(error, urllib.error.HTTPError):
        error.close()


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/x", "file:///etc/passwd", "ftp://x/y", "HTTP:"]
)
def test_nothing_but_https_is_opened(url):
    with pytest.raises(DataError, match="is not an https address"):
        https_only(url, 0)


@pytest.mark.parametrize("url", ["http://example.org/x", "file:///etc/passwd", "ftp://x/y"])
def test_no_redirection_leads_away_from_https(url):
    request = urllib.request.Request("https://example.org/x")
    with pytest.raises(DataError, match="is not an https address"):
        module._HttpsRedirects().redirect_request(request, None, 302, "Found", {}, url)
    again = module._HttpsRedirects().redirect_request(
        request, None, 302, "Found", {}, "https://example.org/y"
    )
    assert again.full_url == "https://example.org/y"


def test_a_server_that_does_not_speak_tls_is_refused(tmp_path, monkeypatch):
    """A real one on this machine: it never gets to see the request."""
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.path)

        def log_message(self, *_):
            pass

    monkeypatch.setenv("no_proxy", "*")
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        source = dataclasses.replace(
            SOURCES["cifar100"], url=f"https://127.0.0.1:{server.server_port}/x.tar.gz"
        )
        monkeypatch.setitem(SOURCES, "cifar100", source)
        try:
            with pytest.raises(DataError, match="could not be fetched"):
                download("cifar100", tmp_path)
        finally:
            server.shutdown()
            thread.join()
    assert seen == []


def test_the_table_is_in_order():
    for name, source in SOURCES.items():
        assert source.url.startswith("https://"), name
        assert source.url.endswith(".tar.gz"), name
        assert len(bytes.fromhex(source.sha256)) == 32, name
