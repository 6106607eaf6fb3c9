"""Clients that keep their connections, and what /metrics says: for the tests of load, faults and limits.
SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import http.client
import json
import os
import re
import select
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PATIENCE_S = 300.0  # for what takes moments on an idle machine and may take long on a loaded one

_GAUGE_LINE = re.compile(r'(\w+)(?:\{\w+="([^"]*)"\})? (\S+)')


def wait_until(condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """Asks again and again until the answer is true, and returns it."""
    deadline = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {patience_s:g} s: {what}"
        time.sleep(0.02)  # the price of asking, not a time to wait for
    return found


class KeepAliveClient:
    """One connection, used again and again. One thread at a time."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=PATIENCE_S)
        self.headers: dict[str, str] = {}  # of the last response

    def __enter__(self) -> KeepAliveClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def connect(self) -> int:
        """Connects unless it is connected, and returns its port."""
        if self._connection.sock is None:
            self._connection.connect()
        return self._connection.sock.getsockname()[1]

    def port(self) -> int | None:
        sock = self._connection.sock
        return sock.getsockname()[1] if sock is not None else None

    def has_unread(self) -> bool:
        """Bytes have come that no request asked for. An end of the connection does not count."""
        sock = self._connection.sock
        return bool(select.select([sock], [], [], 0)[0] and sock.recv(1, socket.MSG_PEEK))

    def request(self, method: str, path: str, body: Any = None, request_id: str = "") -> tuple[int, str]:
        """Sends once: what fails is raised, never tried again."""
        self.send(method, path, body, request_id)
        return self.receive()

    def send(self, method: str, path: str, body: Any = None, request_id: str = "") -> None:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **({"X-Request-Id": request_id} if request_id else {})}
        self._connection.request(method, path, data, headers)

    def receive(self) -> tuple[int, str]:
        response = self._connection.getresponse()
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        return response.status, response.read().decode()

    def decide(self, body: Any) -> dict[str, Any]:
        status, text = self.request("POST", "/v1/systemone", body)
        assert status == 200, text
        return json.loads(text)["answers"]

    def ready(self) -> bool:
        return self.request("GET", "/ready")[0] == 200

    def metrics(self) -> Metrics:
        status, text = self.request("GET", "/metrics")
        assert status == 200, text
        return Metrics(text)

    def server_pid(self, pids: list[int]) -> int:
        """Which of the processes holds the other end of this connection."""
        for pid in pids:
            if self.port() in self.ports_held_by(pid):
                return pid
        raise AssertionError(f"none of {pids} holds the connection from port {self.port()}")

    @staticmethod
    def ports_held_by(pid: int) -> set[int]:
        """The far ports of a process's connections."""
        links = _links(Path(f"/proc/{pid}/fd"))
        rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
        return {int(row[2].split(":")[1], 16) for row in rows if f"socket:[{row[9]}]" in links}


def _links(folder: Path) -> set[str]:
    links = set()
    for name in os.listdir(folder):
        try:
            links.add(os.readlink(folder / name))
        except FileNotFoundError:  # closed meanwhile
            pass
    return links


class Metrics:
    """One reading of /metrics."""

    def __init__(self, text: str) -> None:
        self._values: dict[str, dict[str, float]] = {}
        for line in text.splitlines():
            if found := _GAUGE_LINE.fullmatch(line):
                name, label, value = found.groups()
                self._values.setdefault(name, {})[label or ""] = float(value)

    def of(self, name: str) -> dict[str, float]:
        """By the value of its label. A name that is not there is an error: it would pass every comparison with zero."""
        assert name in self._values, f"/metrics has no {name}"
        return self._values[name]

    def total(self, name: str) -> float:
        return sum(self.of(name).values())

    def nothing_held(self) -> bool:
        """No slot in use, no job and no token outstanding."""
        return all(self.total(name) == 0 for name in
                   ("sysone_slots_in_use", "sysone_group_outstanding_jobs", "sysone_group_outstanding_tokens"))


class Load:
    """with Load(url, clients, one_request): … keeps that many connections busy; leaving ends it and raises what went wrong.

    `one_request(client, number)` is called again and again on each client's own thread.
    """

    def __init__(self, url: str, clients: int, one_request: Callable[[KeepAliveClient, int], None]) -> None:
        self._url = url
        self._one_request = one_request
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self.done = [0] * clients
        self._clients: list[KeepAliveClient] = []
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def wait_for_more(self, requests: int) -> None:
        """Until every client has had that many more answers."""
        goal = [count + requests for count in self.done]
        wait_until(lambda: self._errors or all(d >= g for d, g in zip(self.done, goal)), "the clients get answers")
        if self._errors:
            raise self._errors[0]

    @property
    def failed(self) -> bool:
        return bool(self._errors)

    def ports(self) -> set[int]:
        """Those of the clients that are connected."""
        return {port for client in self._clients if (port := client.port())}

    def _run(self, index: int) -> None:
        try:
            with KeepAliveClient(self._url) as client:
                self._clients.append(client)
                while not self._stop.is_set():
                    self._one_request(client, index)
                    self.done[index] += 1
        except BaseException as error:  # shown by the thread that waits for this one
            self._errors.append(error)
