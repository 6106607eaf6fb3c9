"""The load generator against servers that close connections: nothing that was asked may vanish from its figures.

SPDX-License-Identifier: Apache-2.0
"""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import threading

import pytest

PROGRAM = pathlib.Path(os.environ["SYSONE_TESTS_BIN_DIR"]) / "load_generator"
BODY = b'{"answers":{"q":{"type":"noul"},"r":{"type":"noul"}},"usage":{}}'


def response(*fields):
    head = ["HTTP/1.1 200 OK", f"Content-Length: {len(BODY)}", *fields]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + BODY


WHOLE = response()
LAST = response("Connection: close")


def read_request(connection):
    """Whether a whole one came."""
    received = b""
    while b"\r\n\r\n" not in received:
        if not (more := connection.recv(1 << 16)):
            return False
        received += more
    head, _, rest = received.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    while len(rest) < length:
        if not (more := connection.recv(1 << 16)):
            return False
        rest += more
    return True


@contextlib.contextmanager
def server(script):
    """Answers the requests of every connection with the texts of `script` in turn, and closes it after the last."""
    def serve(connection):
        with connection, contextlib.suppress(OSError):
            for text in script:
                if not read_request(connection):
                    return
                connection.sendall(text)

    def accept(listener):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def run(tmp_path, script, *options):
    """Exit code and figures."""
    bodies = tmp_path / "bodies.jsonl"
    bodies.write_text('{"state": "a"}\n{"state": "b"}\n', encoding="utf-8")
    with server(script) as port:
        done = subprocess.run([PROGRAM, "--port", str(port), "--bodies", bodies, *options], stdout=subprocess.PIPE, text=True, timeout=60)
    return done.returncode, json.loads(done.stdout)


def test_every_answer_of_a_server_that_closes_nothing_is_counted(tmp_path):
    code, found = run(tmp_path, [WHOLE] * 100, "--connections", "3", "--requests", "12")
    assert code == 0
    assert (found["asked"], found["requests"], found["answers"]) == (12, 12, 24)
    assert (found["errors"], found["unanswered"], found["reconnects"]) == (0, 0, 0)


def test_warm_requests_are_asked_and_not_measured(tmp_path):
    code, found = run(tmp_path, [WHOLE] * 100, "--requests", "12", "--warm-requests", "5")
    assert (code, found["asked"], found["requests"]) == (0, 17, 12)


def test_everybody_goes_on_asking_until_the_warm_requests_are_done(tmp_path):
    code, found = run(tmp_path, [WHOLE] * 100, "--connections", "3", "--warm-requests", "6", "--seconds", "0")
    assert (code, found["asked"], found["requests"]) == (0, 8, 2)


def test_a_close_that_was_announced_costs_a_reconnect_and_no_answer(tmp_path):
    code, found = run(tmp_path, [WHOLE, WHOLE, LAST], "--requests", "8")
    assert (code, found["requests"], found["unanswered"]) == (0, 8, 0)
    assert found["reconnects"] == 2  # after the third and the sixth


@pytest.mark.parametrize("cut", [b"", WHOLE[:10], WHOLE[:-1]])
def test_a_request_whose_connection_breaks_is_unanswered_and_an_error_of_the_run(tmp_path, cut):
    code, found = run(tmp_path, [WHOLE, WHOLE, cut], "--requests", "9")
    assert code == 1
    assert (found["asked"], found["requests"], found["unanswered"], found["errors"]) == (9, 6, 3, 0)
    assert found["reconnects"] == 2  # nothing is asked after the ninth


def test_broken_connections_count_among_warm_requests_too(tmp_path):
    code, found = run(tmp_path, [WHOLE, b""], "--requests", "2", "--warm-requests", "4")
    assert (code, found["asked"], found["requests"], found["unanswered"]) == (1, 6, 1, 3)


def test_the_mark_says_what_counts_as_an_answer(tmp_path):
    _, found = run(tmp_path, [WHOLE] * 100, "--requests", "4", "--answer-mark", '"usage"')
    assert found["answers"] == 4


def test_a_server_that_answers_nothing_ends_in_figures_all_the_same(tmp_path):
    code, found = run(tmp_path, [b""], "--requests", "3")
    assert (code, found["requests"], found["unanswered"], found["answers_per_s"]) == (1, 0, 3, 0)
