"""Shards over HTTP, and in the hands of other readers: webdataset, Ray Data."""

import gc
import io
import re
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
from PIL import Image as Pillow

from cruciform.data.sets.shards import ShardSource
from cruciform.data.shard_write import list_items, write_shards
from cruciform.data.sharding.shard_options import ShardOptions
from cruciform.data.sharding.storage import open_storage
from cruciform.errors import DataError

SAMPLES, CLASSES = 24, 3


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    numbers = np.random.default_rng(0)
    for index in range(SAMPLES):
        path = folder / "images" / f"class{index % CLASSES}" / f"{index}.png"
        path.parent.mkdir(exist_ok=True, parents=True)
        Pillow.fromarray(numbers.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(path)
    write_shards(list_items(folder / "images"), folder / "set", ShardOptions(size=8_000))
    assert len(list((folder / "set").glob("*.tar"))) > 1
    return folder / "set"


def labels(source: ShardSource) -> Counter[int]:
    return Counter(source[number].label for number in range(len(source)))


class Ranges(SimpleHTTPRequestHandler):
    """A file server that sends parts of files, and now and then says that it is busy."""

    calls = 0

    def do_GET(self) -> None:
        type(self).calls += 1
        if self.calls % 5 == 0:
            self.send_error(503)
            return
        super().do_GET()

    def send_head(self) -> io.BytesIO | BinaryIO | None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked is None:
            return super().send_head()
        first, last = map(int, asked.groups())
        data = Path(self.translate_path(self.path)).read_bytes()
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("Content-Length", str(len(data[first : last + 1])))
        self.end_headers()
        return io.BytesIO(data[first : last + 1])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address(shards: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Ranges, directory=str(shards.parent)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/set"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_shards_are_read_over_http_in_parts_though_the_server_is_busy_at_times(
    shards: Path, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("aiohttp")
    monkeypatch.setenv("CRUCIFORM_CACHE", str(tmp_path))
    monkeypatch.setattr("cruciform.data.sharding.storage.FIRST_WAIT", 0.001)
    local, remote = ShardSource(open_storage(str(shards))), ShardSource(open_storage(address))
    assert all(np.array_equal(local[number].image, remote[number].image) for number in range(SAMPLES))
    with pytest.raises(DataError, match="does not exist"):
        ShardSource(open_storage(f"{address}/nowhere"))


def test_a_server_that_never_finishes_its_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aiohttp")
    monkeypatch.setattr("cruciform.data.sharding.storage.FIRST_WAIT", 0.001)
    monkeypatch.setattr("cruciform.data.sharding.storage.TIMEOUT", 0.2)
    done = threading.Event()

    class Trickle(Ranges):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x")
            self.wfile.flush()
            done.wait(20)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Trickle)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with pytest.raises(DataError, match="can't be read after 4 attempts"):
            open_storage(f"http://127.0.0.1:{server.server_address[1]}/set").read("manifest.json")
    finally:
        done.set()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it leaves files open
def test_the_webdataset_library_reads_them(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WDS_SECURE", "1")
    webdataset = pytest.importorskip("webdataset")
    files = [str(path) for path in sorted(shards.glob("*.tar"))]
    found = list(webdataset.WebDataset(files, shardshuffle=False).decode("rgb8"))
    source = ShardSource(open_storage(str(shards)))
    assert [int(sample["cls"]) for sample in found] == [source[number].label for number in range(SAMPLES)]
    assert all(np.array_equal(sample["png"], source[number].image) for number, sample in enumerate(found))
    gc.collect()


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray warns itself of its own settings
def test_ray_data_reads_them(shards: Path) -> None:
    from cruciform.training.backends.ray import cluster, import_ray

    ray = import_ray()  # before anything else loads it: only then does it listen on the loopback alone
    with cluster(ray):
        rows = ray.data.read_webdataset(str(shards), file_extensions=["tar"]).take_all()
    assert len(rows) == SAMPLES
    assert Counter(int(row["cls"]) for row in rows) == labels(ShardSource(open_storage(str(shards))))
