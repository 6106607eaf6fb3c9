"""Two groups of two ranks and three API servers under 32 clients, and one process after the other is killed: API servers, ranks,
mpirun, router and keeper, and also the router while it is busy with the death of another. No accepted request is lost or answered
twice, only connections to a killed API server break, and everything is back by itself before the next kill.

    SYSONE_BIN_DIR=build/release/bin .venv/test/bin/python -B tests/system/test_chaos.py --rounds 500 --seed 7

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import secrets
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from load_client import KeepAliveClient, Load, wait_until
from sysone_server import SysoneServer

ROUNDS = 50
SERVERS, GROUPS, RANKS, CLIENTS = 3, 2, 2, 32
MODEL = str(Path(__file__).resolve().parent.parent / "golden" / "qwen3")  # tiny, so that a group is back in a second
FLAGS = ("--api-server-count", str(SERVERS), "--data-parallel-size", str(GROUPS), "--tensor-parallel-size", str(RANKS),
         "--threads", "1", "--kv-cache-memory", "16777216", "--shm-arena-mb", "12", "--disable-log-requests")
GROUP = ("mpirun", "rank 0", "rank 1")
KINDS = ("keeper", "router", "api server", *GROUP)
ROUNDS_OF_KINDS = [*((kind,) for kind in KINDS), ("api server", "router"), ("mpirun", "router"), ("rank 0", "router")]
ROLE_OF_KIND = {"keeper": "keeper", "router": "router", "api server": "api_server"} | dict.fromkeys(GROUP, "worker")
LONGEST_PAUSE_S = 0.3  # between the two kills of a round: from before the router notices to after it started another process

WORDS = "the parcel was sent last night and people ask when it will come because the shop said two days".split()


def bodies(rng: random.Random) -> list[dict[str, Any]]:
    """Short and long ones, one question and several: from less than a millisecond to a dozen."""
    questions = {"noul": {"type": "noul", "instructions": "Is money asked for?"},
                 "choice": {"type": "choice", "criteria": {"Billing": "refunds", "Technical": "bugs", "Sales": None}},
                 "score": {"type": "score", "criteria": ["calm", "frustrated", "very angry"]}}
    return [{"state": " ".join(rng.choices(WORDS, k=length)), "questions": {name: questions[name] for name in names}}
            for length in (1, 10, 40, 100) for names in (["noul"], ["choice"], ["score", "noul", "choice"])]


# ---- the processes ----

@dataclass(frozen=True)
class Census:
    """Who lives. A group is its mpirun and its ranks in the order in which they were started."""
    keeper: int
    router: int
    api_servers: frozenset[int]
    groups: dict[int, tuple[int, ...]]  # by --role-index: mpirun, rank 0, rank 1

    @staticmethod
    def take(server: SysoneServer) -> Census | None:
        """None while somebody is missing, or somebody is there who should not be."""
        parents: dict[str, dict[int, int]] = {}
        indexes: dict[int, int] = {}
        for pid in server.all_pids():
            try:
                program = Path(os.readlink(f"/proc/{pid}/exe")).name
                parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            except (FileNotFoundError, ProcessLookupError):  # ended meanwhile
                return None
            parents.setdefault(program, {})[pid] = parent
            indexes[pid] = int(next((word.split("=")[1] for word in words if word.startswith("--role-index=")), -1))
        sysone, launchers = parents.get("sysone", {}), parents.get("orterun", {})
        routers = [pid for pid, parent in sysone.items() if parent in sysone]
        keepers = [pid for pid in sysone if pid not in routers]
        api_servers = frozenset(parents.get("sysone-api-server", {}))
        ranks = parents.get("sysone-worker", {})
        groups = {indexes[mpirun]: (mpirun, *sorted(pid for pid, parent in ranks.items() if parent == mpirun))
                  for mpirun in launchers}
        complete = (len(keepers) == 1 and len(routers) == 1 and len(api_servers) == SERVERS and len(launchers) == GROUPS
                    and len(ranks) == GROUPS * RANKS and sorted(groups) == list(range(GROUPS))
                    and all(len(group) == 1 + RANKS for group in groups.values()))
        return Census(keepers[0], routers[0], api_servers, groups) if complete else None

    def victim(self, kind: str, rng: random.Random) -> int:
        if kind in ("keeper", "router"):
            return getattr(self, kind)
        if kind == "api server":
            return rng.choice(sorted(self.api_servers))
        return self.groups[rng.randrange(GROUPS)][GROUP.index(kind)]

    def everybody(self) -> set[int]:
        return {self.keeper, self.router, *self.api_servers, *(pid for group in self.groups.values() for pid in group)}

    def is_this_after(self, victims: set[int], before: Census) -> bool:
        """Nobody was replaced but the victims and those who cannot live without them."""
        keeper_died = before.keeper in victims
        expected_keeper = before.router if keeper_died else before.keeper
        same_router = not keeper_died and before.router not in victims
        kept_servers = before.api_servers - victims
        kept_groups = {index: group for index, group in before.groups.items() if not victims & set(group)}
        return (self.keeper == expected_keeper and (self.router == before.router) == same_router
                and kept_servers == self.api_servers & before.api_servers
                and kept_groups == {i: group for i, group in self.groups.items() if group == before.groups[i]}
                and all(not set(group) & set(before.groups[i]) for i, group in self.groups.items() if i not in kept_groups))


# ---- the clients ----

@dataclass
class Figures:
    requests: int = 0
    answers: int = 0
    refused: int = 0
    broken: int = 0
    longest_answer_s: float = 0.0  # from sending to receiving
    longest_silence_s: float = 0.0  # between two answers, whoever got them
    longest_recovery_s: float = 0.0  # from a broken connection to the client's next answer
    back_s: dict[str, list[float]] = field(default_factory=dict)  # by kinds: from the kill until everything was there again
    kills: Counter[str] = field(default_factory=Counter)


class ChaosClients:
    """Each request is answered once and right by a server that lives. A connection breaks if and only if the API server that
    held it was killed; the request on it then counts as not answered, and the client connects anew, which always succeeds."""

    def __init__(self, url: str, seed: int) -> None:
        rng = random.Random(seed)
        self._url = url
        self._bodies = bodies(rng)
        with KeepAliveClient(url) as client:
            self._expected = [client.decide(body) for body in self._bodies]
        assert len({json.dumps(answers) for answers in self._expected}) == len(self._expected), "wrong answers would not show"
        self._rngs = [random.Random(rng.random()) for _ in range(CLIENTS)]
        self._lock = threading.Lock()
        self._last_answer_s = time.monotonic()
        self._broken_s: dict[int, float] = {}  # client → since when it has had no connection that works
        self.doomed: set[int] = set()  # ports of clients whose connection a process held that was killed
        self.broken: set[int] = set()  # of these, the ones that did break
        self.figures = Figures()

    def one_request(self, client: KeepAliveClient, index: int) -> None:
        with self._lock:
            self.figures.requests += 1
            number = self.figures.requests
        rng = self._rngs[index]
        which = rng.randrange(len(self._bodies))
        # A salt of its own: nothing is stored from an earlier request, so every one takes a pass.
        body = {**self._bodies[which], "cache_salt": f"{number}"}
        port = client.connect()  # unless it is connected; a refused connection is an error here
        sent_s = time.monotonic()
        try:
            assert not client.has_unread(), "bytes that belong to no request: an answer came twice"
            status, text = client.request("POST", "/v1/systemone", body, f"chaos-{number}")
        except (http.client.HTTPException, ConnectionError) as error:
            with self._lock:
                assert port in self.doomed, f"a connection to a living API server failed: {error!r}"
                self.figures.broken += 1
                self.broken.add(port)
                self._broken_s.setdefault(index, time.monotonic())
            client.close()
            return
        now_s = time.monotonic()
        assert client.headers["x-request-id"] == f"chaos-{number}"
        assert status in (200, 503), text
        if status == 200:
            assert json.loads(text)["answers"] == self._expected[which], "JSON carries doubles exactly: == compares bits"
        else:
            assert int(client.headers["retry-after"]) >= 1
        with self._lock:
            figures = self.figures
            figures.answers += status == 200
            figures.refused += status == 503
            figures.longest_answer_s = max(figures.longest_answer_s, now_s - sent_s)
            figures.longest_silence_s = max(figures.longest_silence_s, now_s - self._last_answer_s)
            self._last_answer_s = now_s
            if index in self._broken_s:
                figures.longest_recovery_s = max(figures.longest_recovery_s, now_s - self._broken_s.pop(index))


# ---- the rounds ----

class Chaos:
    def __init__(self, server: SysoneServer, load: Load, clients: ChaosClients, rng: random.Random) -> None:
        self._server = server
        self._load = load
        self._clients = clients
        self._rng = rng
        self._restarts = self._probe(lambda client: client.metrics().of("sysone_restarts_total"))

    def _probe(self, ask: Callable[[KeepAliveClient], Any]) -> Any:
        with KeepAliveClient(self._server.url) as client:
            return ask(client)

    def _all_back(self, before: Census, victims: set[int]) -> bool:
        after = Census.take(self._server)
        if after is None or victims & after.everybody():
            return False

        def ready(client: KeepAliveClient) -> bool:
            metrics = client.metrics()
            return (client.ready() and metrics.total("sysone_group_ready") == GROUPS
                    and len(metrics.of("sysone_server_open_connections")) == SERVERS)
        try:
            if not self._probe(ready):
                return False
        except (http.client.HTTPException, ConnectionError):
            return False  # accepted by the one that was just killed
        assert after.is_this_after(victims, before), f"{victims} were killed; before: {before}; after: {after}"
        return True

    def round(self, kinds: tuple[str, ...]) -> None:
        # At some moment of the work: so many answers later.
        goal = sum(self._load.done) + self._rng.randrange(200)
        self._load.wait_for_more(1)
        wait_until(lambda: self._load.failed or sum(self._load.done) >= goal, "work goes on")
        before = wait_until(lambda: Census.take(self._server), "everybody is there")
        victims = [before.victim(kind, self._rng) for kind in kinds]
        clients = self._clients
        held = KeepAliveClient.ports_held_by(victims[0]) & self._load.ports() if kinds[0] == "api server" else set()
        clients.doomed, clients.broken = held, set()
        begin_s = time.monotonic()
        os.kill(victims[0], signal.SIGKILL)
        for victim in victims[1:]:
            time.sleep(self._rng.uniform(0, LONGEST_PAUSE_S))  # not a time to wait for: what the round is about
            os.kill(victim, signal.SIGKILL)
        wait_until(lambda: self._load.failed or self._all_back(before, set(victims)),
                   f"everybody is there again after {kinds} {victims} were killed")
        clients.figures.back_s.setdefault(" and ".join(kinds), []).append(time.monotonic() - begin_s)
        clients.figures.kills.update(kinds)
        self._load.wait_for_more(1)
        assert clients.broken == held, f"of the connections {held} of the killed API server, {clients.broken} broke"
        self._check_restarts(kinds)

    def _check_restarts(self, kinds: tuple[str, ...]) -> None:
        restarts = self._probe(lambda client: client.metrics().of("sysone_restarts_total"))
        died = {role: sum(ROLE_OF_KIND[kind] == role for kind in kinds) for role in restarts}
        for role, count in restarts.items():
            # A router that is killed when it has just started a process makes its successor start that once more.
            spare = 1 if len(kinds) > 1 and died[role] and role != "router" else 0
            started = count - self._restarts[role]
            assert died[role] <= started <= died[role] + spare, f"{started:g} × {role} after {kinds} were killed"
        self._restarts = restarts


def kinds_in_turn(rng: random.Random, rounds: int) -> list[tuple[str, ...]]:
    """Random, but again and again every kind of round has its turn."""
    kinds: list[tuple[str, ...]] = []
    while len(kinds) < rounds:
        kinds += rng.sample(ROUNDS_OF_KINDS, len(ROUNDS_OF_KINDS))
    return kinds[:rounds]


def run(rounds: int, seed: int) -> None:
    print(f"{rounds} rounds with --seed {seed}", flush=True)
    rng = random.Random(seed)
    with SysoneServer(*FLAGS, model=MODEL, keeper_is_killed=True) as server:
        clients = ChaosClients(server.url, seed)
        figures = clients.figures
        begin_s = time.monotonic()
        try:
            with Load(server.url, CLIENTS, clients.one_request) as load:
                chaos = Chaos(server, load, clients, rng)
                for number, kinds in enumerate(kinds_in_turn(rng, rounds), 1):
                    chaos.round(kinds)
                    if number % 100 == 0:
                        print(f"round {number}: {report(figures, time.monotonic() - begin_s)}", flush=True)
        finally:
            print(report(figures, time.monotonic() - begin_s), flush=True)
        with KeepAliveClient(server.url) as client:
            wait_until(lambda: client.metrics().nothing_held(), "nothing is held")
    assert figures.answers + figures.refused + figures.broken == figures.requests, "a request without an outcome"
    assert figures.refused == 0, "one group always lives, and has room"
    assert sum(len(times) for times in figures.back_s.values()) == rounds


def report(figures: Figures, took_s: float) -> str:
    lines = [f"{figures.kills.total()} kills in {took_s:.0f} s; {figures.requests} requests: {figures.answers} answers, "
             f"{figures.refused} refused, {figures.broken} on connections that broke",
             f"longest: answer {figures.longest_answer_s:.2f} s, silence of all clients {figures.longest_silence_s:.2f} s, "
             f"a client without a connection {figures.longest_recovery_s:.2f} s"]
    lines.append("killed: " + ", ".join(f"{kind} {count}" for kind, count in sorted(figures.kills.items())))
    for kinds, times in sorted(figures.back_s.items()):
        lines.append(f"all back after {kinds}: {sorted(times)[len(times) // 2]:.2f} s (median), {max(times):.2f} s (longest)")
    return "\n".join(lines)


def test_any_process_may_be_killed_and_no_accepted_request_is_lost_or_answered_twice():
    run(ROUNDS, secrets.randbelow(1_000_000))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    arguments = parser.parse_args()
    run(arguments.rounds, arguments.seed)
