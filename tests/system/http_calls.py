"""Small HTTP helpers of the system tests, and what every JSON error must look like.
SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import json
import re
from typing import Any

import httpx

from sysone_server import SysoneServer

JSON = {"Content-Type": "application/json"}
NOUL = {"type": "noul", "instructions": "Is money asked for?"}
ONE_QUESTION = {"state": "Please pay me back.", "questions": {"refund": NOUL}}
ID_TEXT = re.compile(r"[0-9a-f]{16}")


def call(server: SysoneServer, method: str, path: str, **arguments: Any) -> httpx.Response:
    with httpx.Client(base_url=server.url, timeout=120, trust_env=False) as client:
        return client.request(method, path, **arguments)


def decide(server: SysoneServer, body: Any, headers: dict[str, str] | None = None) -> httpx.Response:
    """`body`: bytes go as they are, anything else as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    return call(server, "POST", "/v1/systemone", content=content, headers={**JSON, **(headers or {})})


def answered(server: SysoneServer, body: Any, headers: dict[str, str] | None = None) -> dict[str, Any]:
    response = decide(server, body, headers)
    assert response.status_code == 200, response.text
    return response.json()


def assert_ids(response: httpx.Response) -> str:
    request_id = response.headers["x-typesafe-request-id"]
    assert response.headers["X-Request-Id"] == request_id
    return request_id


def assert_error(response: httpx.Response, status: int, named: str = "") -> dict[str, Any]:
    """A JSON error of both kinds, with ids, that names `named` and nothing of the server's inside."""
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"] == "application/json"
    assert_ids(response)
    body = response.json()
    assert list(body) == ["detail", "error"]
    error, detail = body["error"], body["detail"]
    assert list(error) == ["message", "type", "param", "code"]
    assert error["code"] == status and isinstance(error["type"], str)
    assert error["param"] is None or isinstance(error["param"], str)
    if status == 422:
        assert detail and all(list(item) == ["loc", "msg", "type"] for item in detail)
        assert all(item["loc"][0] == "body" for item in detail)
        messages = " ".join(item["msg"] for item in detail) + json.dumps([item["loc"] for item in detail])
    else:
        assert list(detail) == ["error_type", "message"]
        assert detail["message"] == error["message"]
        messages = error["message"]
    assert named in messages, f"{named!r} is not named in {messages!r}"
    assert not re.search(r"/tmp|/dev/shm|\.cc\b|0x[0-9a-f]{6}", response.text), "an error tells of the server's inside"
    return body
