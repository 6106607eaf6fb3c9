"""A router's host and one that lends it a worker group, in network namespaces: the same answers from both, a cut cable loses no
request, a wrong key gets nowhere, and a group may span both.
SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from load_client import KeepAliveClient, Load, wait_until
from network_hosts import ADDRESS_A, ADDRESS_B, TwoHosts
from sysone_server import PROGRAM, SysoneServer

MODEL = str(Path(__file__).resolve().parents[1] / "golden" / "qwen3")
PORTS = itertools.count(29550)  # in a namespace of their own, so that they are free
CLIENTS = 6
STATES = 40
LINK_TIMEOUT_S = 1.5
STATE = {"ticket": "I was charged twice. Please pay me back today.", "language": "English"}
QUESTIONS: dict[str, Any] = {
    "refund": {"type": "noul", "instructions": "Is money asked for?"},
    "team": {"type": "choice", "instructions": "Which team?", "criteria": {"Billing": "refunds", "Technical": "bugs"}},
    "anger": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "frustrated", "very angry"]},
}
QUIET = ("--disable-log-requests", "--threads", "1", "--link-timeout", str(LINK_TIMEOUT_S))


@pytest.fixture(scope="module")
def hosts() -> Iterator[TwoHosts]:
    with TwoHosts() as made:
        yield made


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("link") / "keys"
    subprocess.run([PROGRAM, "keys", str(folder)], check=True)
    return folder


def router(port: int, keys: Path, groups: int, local: int) -> SysoneServer:
    return SysoneServer("--data-parallel-size", str(groups), "--data-parallel-size-local", str(local), "-asc", "1",
                        "--data-parallel-address", ADDRESS_A, "--data-parallel-rpc-port", str(port),
                        "--curve-keys", str(keys), *QUIET, model=MODEL)


def lender(port: int, hosts: TwoHosts, *security: str) -> SysoneServer:
    return SysoneServer("--headless", "--router-address", f"tcp://{ADDRESS_A}:{port}", *security, *QUIET, model=MODEL,
                        launcher=hosts.on_b)


@pytest.fixture(scope="module")
def pair(hosts: TwoHosts, keys: Path) -> Iterator[tuple[SysoneServer, SysoneServer]]:
    """Group 0 on host A, group 1 on host B."""
    port = next(PORTS)
    with router(port, keys, 2, 1) as here, lender(port, hosts, "--curve-keys", str(keys)) as there:
        wait_until(lambda: group_ready(here) == {"0": 1, "1": 1}, "both groups are ready")
        yield here, there


def group_ready(server: SysoneServer) -> dict[str, float]:
    with KeepAliveClient(server.url) as client:
        return client.metrics().of("sysone_group_ready")


def ask(number: int, *names: str) -> dict[str, Any]:
    """A state of its own from the first word on: nothing of it is stored from another request."""
    return {"state": {"number": number, **STATE}, "questions": {name: QUESTIONS[name] for name in names or QUESTIONS}}


@pytest.fixture(scope="module")
def expected(hosts: TwoHosts) -> list[dict[str, Any]]:
    """What a group on host A answers."""
    with SysoneServer(*QUIET, model=MODEL) as alone, KeepAliveClient(alone.url) as client:
        answers = [client.decide(ask(number)) for number in range(STATES)]
    assert len({json.dumps(answer) for answer in answers}) == STATES, "all the same would make these tests blind"
    return answers


class SteadyClients:
    """Every request is answered once, and right: one group at least is always there."""

    def __init__(self, expected: list[dict[str, Any]]) -> None:
        self._expected = expected
        self._lock = threading.Lock()
        self._sent = 0

    def one_request(self, client: KeepAliveClient, _: int) -> None:
        with self._lock:
            self._sent += 1
            number = self._sent
        which = number % len(self._expected)
        # With a salt of its own it finds nothing stored, so it may as well go to a group that has just come back.
        body = {**ask(which), "cache_salt": f"steady-{number}"}
        status, text = client.request("POST", "/v1/systemone", body, f"steady-{number}")
        assert status == 200, text
        assert client.headers["x-request-id"] == f"steady-{number}"
        assert json.loads(text)["answers"] == self._expected[which]


def test_a_cut_cable_loses_no_request_and_the_host_comes_back(hosts: TwoHosts, pair: tuple[SysoneServer, SysoneServer],
                                                              expected: list[dict[str, Any]]):
    here, there = pair
    with KeepAliveClient(here.url) as client:
        steady = SteadyClients(expected)
        with Load(here.url, CLIENTS, steady.one_request) as load:
            wait_until(lambda: all(count > 0 for count in client.metrics().of("sysone_group_jobs").values()), "both work")
            age = client.metrics().of("sysone_group_line_age_seconds")
            assert list(age) == ["1"] and 0 <= age["1"] < LINK_TIMEOUT_S
            for cut, mend in ((hosts.unplug, hosts.plug), (hosts.swallow, hosts.deliver)):
                load.wait_for_more(3)
                jobs = client.metrics().of("sysone_group_jobs")["1"]
                wait_until(lambda: client.metrics().of("sysone_group_jobs")["1"] > jobs, "host B has work")
                cut()
                wait_until(lambda: group_ready(here)["1"] == 0, "the loss is noticed")
                load.wait_for_more(3)
                mend()
                wait_until(lambda: group_ready(here)["1"] == 1, "the group is back")
                jobs = client.metrics().of("sysone_group_jobs")["1"]
                wait_until(lambda: client.metrics().of("sysone_group_jobs")["1"] > jobs, "host B works again")
        print(f"{sum(load.done)} requests; given back: {client.metrics().total('sysone_slots_returned_total'):g}")
        wait_until(lambda: client.metrics().nothing_held(), "nothing is held")
    # Once a cut, and once more where this machine itself gave a process no time.
    assert here.output().count("is lost: nothing was heard of it for") >= 2
    assert there.output().count("joined the router at") >= 3


def pid_of(server: SysoneServer, program: str) -> int:
    for pid in server.child_pids():
        try:
            if Path(os.readlink(f"/proc/{pid}/exe")).name == program:
                return pid
        except FileNotFoundError:  # ended meanwhile
            pass
    return 0


def test_any_process_between_two_hosts_may_be_killed(pair: tuple[SysoneServer, SysoneServer], expected: list[dict[str, Any]]):
    here, there = pair
    with KeepAliveClient(here.url) as client:
        with Load(here.url, CLIENTS, SteadyClients(expected).one_request) as load:
            for server, program in ((here, "sysone-stand-in"), (there, "sysone-intake"), (there, "sysone-worker")):
                load.wait_for_more(3)
                victim = pid_of(server, program)
                os.kill(victim, signal.SIGKILL)
                wait_until(lambda: pid_of(server, program) not in (0, victim), f"another {program}")
                wait_until(lambda: group_ready(here)["1"] == 1, "the group is back")
                jobs = client.metrics().of("sysone_group_jobs")["1"]
                wait_until(lambda: client.metrics().of("sysone_group_jobs")["1"] > jobs, "host B works again")
        print(f"{sum(load.done)} requests; given back: {client.metrics().total('sysone_slots_returned_total'):g}")
        wait_until(lambda: client.metrics().nothing_held(), "nothing is held")


def test_a_host_with_a_wrong_key_gets_nowhere(hosts: TwoHosts, keys: Path, tmp_path: Path):
    subprocess.run([PROGRAM, "keys", str(tmp_path / "others")], check=True)
    (tmp_path / "others" / "router.pub").write_text((keys / "router.pub").read_text())
    port = next(PORTS)
    with router(port, keys, 2, 1) as here:
        with lender(port, hosts, "--curve-keys", str(tmp_path / "others")) as there:
            wait_until(lambda: "does not stand in hosts.pub" in here.output(), "the router's host says so")
            wait_until(lambda: "the router refused this host's key" in there.output(), "the other one, too")
            assert group_ready(here) == {"0": 1, "1": 0}
        # The flag that lets anybody in is not what this router was given.
        with lender(port, hosts, "--allow-unauthenticated-tcp") as there:
            wait_until(lambda: "the handshake failed" in there.output() or "was closed" in there.output(), "refused")
            assert group_ready(here) == {"0": 1, "1": 0}
        assert "has joined" not in here.output()


def test_a_host_that_has_joined_gives_the_bits_of_a_group_here(hosts: TwoHosts, keys: Path,
                                                               expected: list[dict[str, Any]]):
    port = next(PORTS)
    with router(port, keys, 1, 0) as here:
        with KeepAliveClient(here.url) as client:
            assert not client.ready()
            status, text = client.request("POST", "/v1/systemone", ask(1))
            assert status == 503 and int(client.headers["retry-after"]) >= 1, text
            with lender(port, hosts, "--curve-keys", str(keys)):
                wait_until(client.ready, "ready with the group of another host")
                assert [client.decide(ask(number)) for number in range(STATES)] == expected
                wait_until(lambda: client.metrics().of("sysone_group_tokens")["0"] > 0, "the line of host B is copied")
            # It ended in good order: nobody noticed anything to be lost.
            wait_until(lambda: not client.ready(), "the group is gone")
        assert "is lost" not in here.output()


def remote_shell(hosts: TwoHosts, folder: Path) -> dict[str, str]:
    """An environment whose mpirun reaches host B: a network, a name and process ids of its own."""
    script = folder / "remote_shell"
    script.write_text(f"#!/bin/sh\nshift\nexec {' '.join(hosts.on_b)} unshare --uts --pid --fork --kill-child --mount-proc "
                      f"sh -c 'hostname host-b && exec sh -c \"$*\"' sh \"$@\"\n")
    script.chmod(0o755)
    return {"OMPI_MCA_plm_rsh_agent": str(script)}


def test_a_group_spans_both_hosts_and_a_cut_cable_is_noticed(hosts: TwoHosts, tmp_path: Path):
    two_ranks = ("-tp", "2", "-asc", "1", "--threads", "1", "--disable-log-requests")
    with SysoneServer(*two_ranks, model=MODEL) as alone, KeepAliveClient(alone.url) as client:
        answers = [client.decide(ask(number)) for number in range(3)]
    with SysoneServer(*two_ranks, "--mpi-hosts", f"{ADDRESS_A}:1,{ADDRESS_B}:1", "--stuck-after", "8", model=MODEL,
                      env=remote_shell(hosts, tmp_path)) as span, KeepAliveClient(span.url) as client:
        assert "2 ranks over MPI" in span.output()
        before = hosts.bytes_on_cable()
        assert [client.decide(ask(number)) for number in range(3)] == answers, "the same sums, whatever carries them"
        assert hosts.bytes_on_cable() - before > 10_000, "the sums did not cross the cable"
        hosts.swallow()
        with KeepAliveClient(span.url) as waiting:
            waiting.send("POST", "/v1/systemone", ask(1000))
            wait_until(lambda: "rank 1 is stuck: last heard of at operation" in span.output(), "the stuck rank is named")
            hosts.deliver()
            status, text = waiting.receive()  # 200, or 504 where the group took longer than a request may
            assert status in (200, 504), text
        wait_until(client.ready, "the group is back")
        assert [client.decide(ask(number)) for number in range(3)] == answers


def test_without_keys_a_start_is_refused():
    for flags in (["--data-parallel-size", "2", "--data-parallel-size-local", "1"],
                  ["--headless", "--router-address", f"tcp://{ADDRESS_A}:29550"]):
        run = subprocess.run([PROGRAM, "serve", MODEL, *flags], capture_output=True, text=True)
        assert run.returncode == 2 and "--allow-unauthenticated-tcp" in run.stderr, run.stderr
