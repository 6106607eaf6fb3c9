"""Deadlines, full queues, clients that leave and the connection cap: each has its answer, and none leaves anything behind.
SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from load_client import KeepAliveClient, wait_until
from sysone_server import SysoneServer

QUEUE, CONNECTIONS = 4, 12
SHORT = {"state": "Hello", "questions": {"q": {"type": "noul"}}}
# About 800 tokens, several passes while others wait: a good part of a second on two fast cores. The same text again must take
# as long, so these servers keep nothing.
LONG = {"state": "The parcel has not come. " * 130, "questions": {"q": {"type": "noul"}}}


@pytest.fixture(scope="module")
def server() -> Iterator[SysoneServer]:
    with SysoneServer("--max-num-queued-reqs", str(QUEUE), "--max-connections", str(CONNECTIONS),
                      "--max-num-batched-tokens", "1024", "--no-enable-prefix-caching", "--request-timeout", "600") as running:
        yield running


@pytest.fixture
def watcher(server: SysoneServer) -> Iterator[KeepAliveClient]:
    with KeepAliveClient(server.url) as client:
        wait_for_rest(client)
        yield client
        wait_for_rest(client)


def wait_for_rest(client: KeepAliveClient) -> None:
    def at_rest() -> bool:
        metrics = client.metrics()
        return metrics.nothing_held() and metrics.total("sysone_server_open_connections") == 1
    wait_until(at_rest, "no slot in use, nothing outstanding, no other connection open")


def send_long(server: SysoneServer, watcher: KeepAliveClient, count: int) -> list[KeepAliveClient]:
    clients = [KeepAliveClient(server.url) for _ in range(count)]
    for client in clients:
        client.send("POST", "/v1/systemone", LONG)
    wait_until(lambda: watcher.metrics().total("sysone_group_outstanding_jobs") == count, "all are accepted")
    return clients


def assert_refused(client: KeepAliveClient, status: int, text: str) -> None:
    assert status == 503, text
    assert 1 <= int(client.headers["retry-after"]) <= 60


def test_a_full_queue_refuses_the_next_request_and_keeps_its_word_to_the_others(server: SysoneServer,
                                                                               watcher: KeepAliveClient):
    clients = send_long(server, watcher, QUEUE)
    status, text = watcher.request("POST", "/v1/systemone", SHORT)
    assert_refused(watcher, status, text)
    assert "--max-num-queued-reqs" in text
    for client in clients:
        assert client.receive()[0] == 200
        client.close()
    watcher.decide(SHORT)


def test_a_client_that_leaves_frees_its_slot_and_its_place_in_the_queue(server: SysoneServer, watcher: KeepAliveClient):
    before = watcher.metrics()
    for client in send_long(server, watcher, QUEUE):
        client.close()
    wait_until(lambda: watcher.request("POST", "/v1/systemone", SHORT)[0] == 200, "there is room again")
    after = watcher.metrics()
    # The short one, and what was computed already: at least the last in the queue is never run.
    assert after.total("sysone_group_jobs") - before.total("sysone_group_jobs") <= QUEUE


def test_the_connection_over_the_cap_is_told_so(server: SysoneServer, watcher: KeepAliveClient):
    others = [KeepAliveClient(server.url) for _ in range(CONNECTIONS - 1)]
    for other in others:
        assert other.ready()
    with KeepAliveClient(server.url) as over:
        status, text = over.request("GET", "/health")
        assert_refused(over, status, text)
        assert over.headers["connection"] == "close"
    watcher.decide(SHORT)
    others.pop().close()

    def room() -> bool:
        with KeepAliveClient(server.url) as client:
            return client.request("GET", "/health")[0] == 200
    wait_until(room, "a place is free again")
    for other in others:
        other.close()


def test_a_deadline_that_passes_is_504_and_leaks_nothing():
    with SysoneServer("--request-timeout", "0.05", "--no-enable-prefix-caching") as server, KeepAliveClient(server.url) as client:
        def too_late() -> bool:
            status, text = client.request("POST", "/v1/systemone", LONG)
            wait_until(lambda: client.metrics().nothing_held(), "the worker is through with it")
            # On a busy machine the time may be over before the request is accepted: then it is refused.
            assert status in (503, 504), text
            return status == 504
        wait_until(too_late, "a request is accepted, and late")
        assert client.metrics().of("sysone_requests_total")["504"] == 1
