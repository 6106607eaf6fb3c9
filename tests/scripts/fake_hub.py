"""A tiny Hugging Face hub on a loopback port: enough of its API for fetch_model and for the hub's own client.

SPDX-License-Identifier: Apache-2.0
"""

import hashlib
import http.server
import json
import re
import threading


class FakeHub:
    """Serves `repos` {"org/name": {file: bytes}}. Used as a context manager; `requests` lists (method, path, range)."""

    COMMIT = "0123456789abcdef0123456789abcdef01234567"

    def __init__(self, repos, token=None, cut_after=None, cuts=1, hold_after=None):
        self.repos = repos
        self.token = token  # when set, every request must carry it
        self.cut_after = cut_after  # bytes of a file's body after which the connection is dropped
        self.cuts_left = cuts if cut_after is not None else 0
        self.hold_after = hold_after  # bytes of a file's body after which nothing more comes until the test is over
        self.over = threading.Event()
        self.requests = []
        self._lock = threading.Lock()

    def __enter__(self):
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub = hub
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def record(self, *request):
        with self._lock:
            self.requests.append(request)

    def take_cut(self):
        with self._lock:
            if self.cuts_left == 0:
                return None
            self.cuts_left -= 1
            return self.cut_after


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub = None

    def do_HEAD(self):
        self._answer()

    def do_GET(self):
        self._answer()

    def log_message(self, *_):
        pass

    def _answer(self):
        self.hub.record(self.command, self.path, self.headers.get("Range"))
        if self.hub.token and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            return self._send(401, b'{"error":"Invalid username or password."}', {"X-Error-Code": "RepoNotFound"})
        path = self.path.split("?")[0]
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/(.+))?", path):
            return self._answer_api(match[1], match[2], match[3] or "main")
        if match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            return self._answer_file(match[1], match[2], match[3])
        self._send(404, b"{}", {})

    def _answer_api(self, repo, what, revision):
        files = self.hub.repos.get(repo)
        if files is None:
            return self._send(404, b'{"error":"Repository not found"}', {"X-Error-Code": "RepoNotFound"})
        if revision not in ("main", self.hub.COMMIT):
            return self._send(404, b'{"error":"Invalid rev id"}', {"X-Error-Code": "RevisionNotFound"})
        if what == "tree":
            body = [{"type": "file", "path": name, "size": len(data), "oid": _etag(data)} for name, data in files.items()]
        else:
            body = {"id": repo, "modelId": repo, "sha": self.hub.COMMIT, "private": False, "tags": [], "downloads": 0}
            body["siblings"] = [{"rfilename": name} for name in files]
        self._send(200, json.dumps(body).encode(), {"Content-Type": "application/json", "X-Repo-Commit": self.hub.COMMIT})

    def _answer_file(self, repo, revision, name):
        data = self.hub.repos.get(repo, {}).get(name)
        if data is None or revision not in ("main", self.hub.COMMIT):
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        headers = {"ETag": f'"{_etag(data)}"', "X-Repo-Commit": self.hub.COMMIT, "Accept-Ranges": "bytes"}
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if not match:
            return self._send(200, data, headers)
        start = int(match[1])
        headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self._send(206, data[start:], headers)

    def _send(self, status, body, headers):
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.hub.hold_after is not None and "/resolve/" in self.path:
            self.wfile.write(body[: self.hub.hold_after])
            self.wfile.flush()
            self.hub.over.wait()
            self.close_connection = True
            return
        cut = self.hub.take_cut() if "/resolve/" in self.path else None
        if cut is None or cut >= len(body):
            self.wfile.write(body)
            return
        self.wfile.write(body[:cut])
        self.wfile.flush()
        self.close_connection = True


def _etag(data):
    return hashlib.sha1(data).hexdigest()
