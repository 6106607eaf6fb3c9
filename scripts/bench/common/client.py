"""A client that adds little to what it measures: one connection, one request at a time, no HTTP library. Connecting anew, where a
server closes connections after some time or number of requests, is no part of the times.

SPDX-License-Identifier: Apache-2.0
"""

import json
import re
import socket
import time

_TIMEOUT_S = 300
_IDLE_S = 3  # llama-server closes after 5


class Client:
    def __init__(self, port):
        self._port = port
        self._connect()

    def _connect(self):
        self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._used_at = time.monotonic()

    def close(self):
        self._socket.close()

    def post(self, path, body):
        """(milliseconds from the first byte sent to the last received, the answer, milliseconds of the pass or None)"""
        data = json.dumps(body).encode()
        request = (f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                   f"Content-Length: {len(data)}\r\n\r\n").encode() + data
        if time.monotonic() - self._used_at > _IDLE_S:
            self.close()
            self._connect()
        begin = time.perf_counter()
        self._socket.sendall(request)
        head, answer = self._response()
        spent = (time.perf_counter() - begin) * 1e3
        self._used_at = time.monotonic()
        if re.search(r"(?i)\nconnection: *close", head):
            self._used_at = float("-inf")
        status = int(head.split(" ", 2)[1])
        if status != 200:
            raise RuntimeError(f"{path} answered {status}: {answer[:500].decode(errors='replace')}")
        timing = re.search(r"\bpass;dur=([\d.]+)", head)
        return spent, json.loads(answer), float(timing[1]) if timing else None

    def _response(self):
        while b"\r\n\r\n" not in self._received:
            self._receive()
        head, _, rest = self._received.partition(b"\r\n\r\n")
        head = head.decode()
        length = int(re.search(r"(?i)\bcontent-length: *(\d+)", head)[1])
        self._received = rest
        while len(self._received) < length:
            self._receive()
        answer, self._received = self._received[:length], self._received[length:]
        return head, answer

    def _receive(self):
        more = self._socket.recv(1 << 16)
        if not more:
            raise RuntimeError("the server closed the connection")
        self._received += more
