"""The rest of the HTTP contract through all processes: the other paths, errors, compressed bodies, keys and CORS.
SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import gzip
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from http_calls import NOUL, ONE_QUESTION, answered, assert_error, assert_ids, call, decide
from sysone_server import PROGRAM, SysoneServer

KEY = "system-test-key-c3"
LIMIT = 64 * 1024


@pytest.fixture(scope="module")
def server() -> Iterator[SysoneServer]:
    with SysoneServer("--max-request-bytes", str(LIMIT), "--max-model-len", "256", "--max-questions", "3",
                      "--served-model-name", "one", "two") as running:
        yield running


@pytest.fixture(scope="module")
def open_server() -> Iterator[SysoneServer]:
    """With a key, and open to two origins."""
    with SysoneServer("--api-key", KEY, "--allowed-origins", '["https://app.example.com", "https://b.example.com:8443"]',
                      "--allow-credentials") as running:
        yield running


def test_models_are_listed_for_both_kinds_of_client(server: SysoneServer):
    response = call(server, "GET", "/v1/models")
    assert response.status_code == 200
    assert_ids(response)
    body = response.json()
    assert body["object"] == "list"
    assert [list(model) for model in body["models"]] == [["name", "description", "release_date"]] * 2
    assert [list(model) for model in body["data"]] == [["id", "object", "created", "owned_by"]] * 2
    assert [model["name"] for model in body["models"]] == [model["id"] for model in body["data"]] == ["one", "two"]
    assert all(re.fullmatch(r"\d{4}-\d{2}-\d{2}", model["release_date"]) for model in body["models"])
    assert all(model["object"] == "model" and type(model["created"]) is int for model in body["data"])


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_health_and_readiness(server: SysoneServer, path: str):
    response = call(server, "GET", path)
    assert (response.status_code, response.json()) == (200, {"status": "ok"})
    assert_ids(response)


SAMPLE = re.compile(r'(sysone_[a-z0-9_]+)(\{[a-z_]+="[^"]*"(?:,[a-z_]+="[^"]*")*\})? (-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?|NaN|[+-]Inf)')


def samples(server: SysoneServer) -> dict[str, float]:
    response = call(server, "GET", "/metrics")
    assert response.status_code == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    found = {}
    for line in response.text.splitlines():
        if not line.startswith("# "):
            match = SAMPLE.fullmatch(line)
            assert match, f"no Prometheus sample: {line!r}"
            found[match[1] + (match[2] or "")] = float(match[3])
    return found


def test_metrics_count_what_happened(server: SysoneServer):
    before = samples(server)
    tokens = answered(server, {**ONE_QUESTION, "questions": {"a": NOUL, "b": NOUL}})["usage"]["input_tokens"]
    assert_error(decide(server, {**ONE_QUESTION, "model": "three"}), 404)
    after = samples(server)
    grown = {name: after[name] - before[name] for name in before}
    assert grown['sysone_decisions_total{type="noul"}'] == 2
    assert grown['sysone_decisions_total{type="choice"}'] == 0
    assert grown["sysone_prompt_tokens_total"] == tokens
    assert grown['sysone_requests_total{code="404"}'] == 1
    assert grown['sysone_requests_total{code="200"}'] >= 1
    assert grown["sysone_request_pass_time_seconds_count"] == 1
    assert after['sysone_group_ready{group="0"}'] == 1
    assert sum(value for name, value in after.items() if name.startswith("sysone_slots_in_use")) == 0


def test_every_metric_that_operations_names_is_there(server: SysoneServer):
    known = re.findall(r"^# TYPE (\S+) ", call(server, "GET", "/metrics").text, re.MULTILINE)
    named = set(re.findall(r"`(sysone_\w+)`", (Path(__file__).resolve().parents[2] / "OPERATIONS.md").read_text()))
    assert len(named) >= 10 and named <= set(known), f"no such metric: {named - set(known)}"


def test_the_api_describes_itself(server: SysoneServer):
    description = call(server, "GET", "/openapi.json").json()
    assert description["openapi"].startswith("3.")
    for path, method in [("/v1/systemone", "post"), ("/v1/models", "get"), ("/health", "get"), ("/ready", "get"),
                         ("/metrics", "get")]:
        assert method in description["paths"][path]
    for status in ["200", "400", "401", "403", "404", "413", "415", "422", "503"]:
        assert status in description["paths"]["/v1/systemone"]["post"]["responses"]


def with_question(question: object) -> dict:
    return {**ONE_QUESTION, "questions": {"q": question}}


BROKEN_RULES = [
    pytest.param({"questions": {"q": NOUL}}, ["body", "state"], id="no_state"),
    pytest.param({"state": "x"}, ["body", "questions"], id="no_questions"),
    pytest.param({**ONE_QUESTION, "questions": []}, ["body", "questions"], id="questions_is_a_list"),
    pytest.param({**ONE_QUESTION, "questions": {str(i): NOUL for i in range(4)}}, ["body", "questions"], id="too_many"),
    pytest.param(with_question({"instructions": "x"}), ["body", "questions", "q", "type"], id="no_type"),
    pytest.param(with_question({**NOUL, "colour": 1}), ["body", "questions", "q", "colour"], id="another_field"),
    pytest.param(with_question({**NOUL, "criteria": {"maybe": "x"}}), ["body", "questions", "q", "criteria", "maybe"],
                 id="noul_criteria"),
    pytest.param(with_question({"type": "choice", "criteria": {}}), ["body", "questions", "q", "criteria"], id="no_options"),
    pytest.param(with_question({"type": "score", "criteria": ["one"]}), ["body", "questions", "q", "criteria"],
                 id="one_level"),
    pytest.param(with_question({"type": "score", "criteria": ["a", None]}), ["body", "questions", "q", "criteria", 1],
                 id="null_level"),
    pytest.param({**ONE_QUESTION, "chat_template_kwargs": {"enable_thinking": True}},
                 ["body", "chat_template_kwargs", "enable_thinking"], id="thinking"),
    pytest.param({**ONE_QUESTION, "images": ["data:image/png;base64,AA=="]}, ["body", "images"], id="images"),
    pytest.param({**ONE_QUESTION, "cache_salt": "a@b"}, ["body", "cache_salt"], id="salt"),
    pytest.param({**ONE_QUESTION, "priority": "high"}, ["body", "priority"], id="priority"),
]


@pytest.mark.parametrize("body, place", BROKEN_RULES)
def test_a_broken_rule_is_422_and_names_the_place(server: SysoneServer, body: dict, place: list):
    issues = assert_error(decide(server, body), 422)["detail"]
    assert place in [issue["loc"] for issue in issues]


def test_what_is_no_json_is_400(server: SysoneServer):
    assert_error(decide(server, b"state=1"), 400)
    assert_error(decide(server, b""), 400)
    assert_error(decide(server, b'{"state": "\xff\xfe", "questions": {}}'), 400)
    assert_error(decide(server, b"{}", {"Content-Type": "text/plain"}), 400, "Content-Type")


def test_an_object_that_breaks_off_is_a_validation_error(server: SysoneServer):
    body = assert_error(decide(server, b'{"state": 1,'), 422)
    assert [issue["type"] for issue in body["detail"]] == ["json_invalid"]


def test_unknown_paths_and_wrong_methods(server: SysoneServer):
    assert_error(call(server, "GET", "/v1/chat/completions"), 404)
    wrong = call(server, "GET", "/v1/systemone")
    assert_error(wrong, 405, "POST")
    assert wrong.headers["Allow"] == "POST"


def test_what_is_too_long_is_413(server: SysoneServer):
    assert_error(decide(server, {**ONE_QUESTION, "state": "x" * (2 * LIMIT)}), 413)
    long_prompt = assert_error(decide(server, {**ONE_QUESTION, "state": "word " * 400}), 413, "256")
    assert any(int(number) > 400 for number in re.findall(r"\d+", long_prompt["error"]["message"])), "both numbers are told"


# The JavaScript SDK compresses bodies of 1 KiB and more. Blanks between the fields do not reach the prompt.
LARGE = json.dumps(ONE_QUESTION).encode().replace(b", ", b"," + b" " * 1200)


def test_a_compressed_body_is_the_same_request(server: SysoneServer):
    assert len(LARGE) > 1024
    plain = answered(server, LARGE)
    packed = answered(server, gzip.compress(LARGE), {"Content-Encoding": "gzip"})
    assert packed["answers"] == plain["answers"] and packed["usage"] == plain["usage"]
    assert answered(server, LARGE, {"Content-Encoding": "identity"})["answers"] == plain["answers"]


def test_bad_compressed_bodies_are_refused(server: SysoneServer):
    bomb = gzip.compress(b" " * (100 * LIMIT))
    assert len(bomb) < LIMIT
    assert_error(decide(server, bomb, {"Content-Encoding": "gzip"}), 413)
    assert_error(decide(server, gzip.compress(LARGE)[:-9], {"Content-Encoding": "gzip"}), 400)
    assert_error(decide(server, LARGE, {"Content-Encoding": "gzip"}), 400)
    for encoding in ("br", "zstd", "deflate"):
        refused = decide(server, LARGE, {"Content-Encoding": encoding})
        assert_error(refused, 415)
        assert refused.headers["Accept-Encoding"] == "gzip, identity"


def test_a_key_guards_the_api_and_not_the_probes(open_server: SysoneServer):
    missing = assert_error(decide(open_server, ONE_QUESTION), 403, "key")
    wrong = assert_error(decide(open_server, ONE_QUESTION, {"Authorization": "Bearer no"}), 401, "key")
    assert missing["detail"]["error_type"] == wrong["detail"]["error_type"] == "authentication_error"
    assert_error(call(open_server, "GET", "/v1/models"), 403)
    # The key is judged before the body.
    assert_error(decide(open_server, b"no json"), 403)
    assert answered(open_server, ONE_QUESTION, {"Authorization": f"Bearer {KEY}"})["answers"]
    for path in ("/health", "/ready", "/metrics"):
        assert call(open_server, "GET", path).status_code == 200


def preflight(server: SysoneServer, origin: str, method: str = "POST"):
    return call(server, "OPTIONS", "/v1/systemone", headers={
        "Origin": origin, "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "authorization, content-type"})


def test_pages_of_other_origins_are_shut_out_by_default(server: SysoneServer):
    response = decide(server, ONE_QUESTION, {"Origin": "https://app.example.com"})
    assert response.status_code == 200
    assert not [name for name in response.headers if name.startswith("access-control-")]
    assert_error(preflight(server, "https://app.example.com"), 403, "origin")


def test_listed_origins_may_call_and_no_others(open_server: SysoneServer):
    for origin in ("https://app.example.com", "https://b.example.com:8443"):
        allowed = preflight(open_server, origin)  # without a key: browsers send none here
        assert allowed.status_code == 204
        assert allowed.headers["Access-Control-Allow-Origin"] == origin
        assert allowed.headers["Access-Control-Allow-Credentials"] == "true"
        assert "POST" in allowed.headers["Access-Control-Allow-Methods"]
        assert "authorization" in allowed.headers["Access-Control-Allow-Headers"].lower()
        call_itself = decide(open_server, ONE_QUESTION, {"Origin": origin, "Authorization": f"Bearer {KEY}"})
        assert call_itself.status_code == 200
        assert call_itself.headers["Access-Control-Allow-Origin"] == origin
        assert "Origin" in call_itself.headers["Vary"]
        assert "x-typesafe-request-id" in call_itself.headers["Access-Control-Expose-Headers"]
    for origin in ("https://app.example.com.evil.example", "http://app.example.com", "null"):
        assert_error(preflight(open_server, origin), 403, "origin")
        stranger = decide(open_server, ONE_QUESTION, {"Origin": origin, "Authorization": f"Bearer {KEY}"})
        assert "Access-Control-Allow-Origin" not in stranger.headers
    assert_error(preflight(open_server, "https://app.example.com", "DELETE"), 403, "method")


def test_any_origin_with_credentials_is_refused_at_start():
    done = subprocess.run([str(PROGRAM), "serve", "smollm2-135m", "--host", "127.0.0.1", "--port", "0",
                           "--allowed-origins", "*", "--allow-credentials"],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode not in (0, -6, -11)
    assert "--allow-credentials" in done.stderr + done.stdout
