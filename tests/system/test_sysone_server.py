"""The harness itself: a server that does not start, does not stop cleanly or leaves something behind fails its test.
SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from http_calls import call
from sysone_server import SysoneServer


def exists(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def plain_server() -> Iterator[SysoneServer]:
    server = SysoneServer()
    yield server
    assert not Path(f"/dev/shm/sysone.{server.instance}").exists()
    assert not any(exists(pid) for pid in server.pids), "the harness ends what it started, whatever happened"


def test_a_server_is_there_within_its_block_and_gone_behind_it(plain_server: SysoneServer):
    with plain_server as server:
        assert call(server, "GET", "/ready").status_code == 200
        assert len(server.pids) == 4 and all(exists(pid) for pid in server.pids)
        assert Path(f"/dev/shm/sysone.{server.instance}").exists()
    assert not Path(f"/dev/shm/sysone.{plain_server.instance}").exists()


def test_a_server_that_does_not_start_fails_with_its_own_words():
    with pytest.raises(AssertionError, match="--no-such-flag"):
        with SysoneServer("--no-such-flag"):
            pass


def test_a_segment_that_stays_is_noticed(plain_server: SysoneServer):
    # A second name of the segment stands for one that nobody removed.
    left = Path(f"/dev/shm/sysone-{plain_server.instance}")
    with pytest.raises(AssertionError, match="left behind"):
        with plain_server:
            left.touch()
    assert not left.exists(), "the harness clears up, so that the next test starts clean"


def test_a_keeper_that_dies_is_noticed(plain_server: SysoneServer):
    with pytest.raises(AssertionError, match="exit status -9"):
        with plain_server as server:
            os.kill(server.pids[0], signal.SIGKILL)


def test_a_process_that_stays_is_noticed(plain_server: SysoneServer):
    # It stands for a child that the router lost sight of: another session, the instance's name in its command line.
    with pytest.raises(AssertionError, match="outlive the keeper"):
        with plain_server as server:
            lost = subprocess.Popen([sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()",
                                     f"--instance-name={server.instance}"],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
            lost.stdout.readline()  # it runs, so its command line can be read
    assert lost.wait(10) == -signal.SIGKILL, "the harness ended it"
    lost.stdin.close()
    lost.stdout.close()


ENDLESS_TEST = """
import sys
from sysone_server import SysoneServer
with SysoneServer() as server:
    print(server.instance, *server.pids, flush=True)
    sys.stdin.read()
"""


def test_a_killed_test_takes_its_server_with_it():
    test = subprocess.Popen([sys.executable, "-B", "-c", ENDLESS_TEST], cwd=Path(__file__).parent, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
    instance, *pids = test.stdout.readline().split()
    # Waiting on the processes themselves, not on their parent: the parent is what dies.
    handles = [os.pidfd_open(int(pid)) for pid in pids]
    test.kill()
    test.wait()
    test.stdin.close()
    test.stdout.close()
    for handle in handles:
        assert select.select([handle], [], [], 40)[0], f"a process of {instance} outlives the killed test"
        os.close(handle)
    assert not Path(f"/dev/shm/sysone.{instance}").exists()
