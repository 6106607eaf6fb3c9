"""The announced request as it stands, and the response asserted field by field.
SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from http_calls import ID_TEXT, answered, assert_error, assert_ids, decide
from sysone_server import SysoneServer

# The body of the announcement's curl, byte for byte.
ANNOUNCED = b"""{
  "model": "Qwen/Qwen3-0.6B",
  "state": {"team": "billing", "language": "French"},
  "questions": {
    "team": {"type": "choice", "instructions": "Which team does the message name?", "criteria": {"billing": null, "shipping": null, "security": null}},
    "lang": {"type": "choice", "instructions": "Which language does the message name?", "criteria": {"English": null, "French": null}}
  },
  "chat_template_kwargs": {"enable_thinking": false}
}"""
BODY = json.loads(ANNOUNCED)
NAMES = {"team": ["billing", "shipping", "security"], "lang": ["English", "French"]}

# What both sides compute from the same few doubles differs by rounding only: under ten operations, each off by at most 2^-53
# of a value below 10.
ROUNDING = 1e-14


@pytest.fixture(scope="module")
def server() -> Iterator[SysoneServer]:
    with SysoneServer("--served-model-name", "Qwen/Qwen3-0.6B", "second-name") as running:
        yield running


@pytest.fixture(scope="module")
def typesafe_server() -> Iterator[SysoneServer]:
    with SysoneServer("--response-fields", "typesafe", "--confidence", "vllm", "--diagnostics") as running:
        yield running


def assert_distribution(probabilities: dict[str, float], names: list[str]) -> None:
    assert list(probabilities) == names, "the options come back in the order of the request"
    assert all(isinstance(p, float) and 0 < p < 1 for p in probabilities.values())
    assert sum(probabilities.values()) == pytest.approx(1, abs=ROUNDING)


def scaled(top: float, n: int) -> float:
    return (top - 1 / n) / (1 - 1 / n)


def score_confidence(p: list[float]) -> float:
    n, mode = len(p), p.index(max(p))
    spread = sum(x * abs(i - mode) for i, x in enumerate(p))
    uniform = sum(abs(i - (n - 1) / 2) for i in range(n)) / n
    return max(0.0, 1 - spread / uniform)


def test_the_announced_request_is_answered_field_by_field(server: SysoneServer):
    before = int(time.time())
    response = decide(server, ANNOUNCED)
    after = int(time.time())
    assert response.status_code == 200, response.text
    assert response.headers["Content-Type"] == "application/json"
    body = response.json()
    assert list(body) == ["id", "object", "created", "model", "answers", "usage"]
    assert re.fullmatch(r"decision-[0-9a-f]{16}", body["id"])
    assert body["id"] == "decision-" + assert_ids(response)
    assert body["object"] == "structured_decision"
    assert isinstance(body["created"], int) and before <= body["created"] <= after
    assert body["model"] == "Qwen/Qwen3-0.6B"
    assert list(body["answers"]) == ["team", "lang"]
    for question, names in NAMES.items():
        answer = body["answers"][question]
        assert list(answer) == ["type", "choice", "probabilities", "confidence"]
        assert answer["type"] == "choice"
        assert_distribution(answer["probabilities"], names)
        assert answer["choice"] == max(names, key=answer["probabilities"].__getitem__)
        top = max(answer["probabilities"].values())
        assert answer["confidence"] == pytest.approx(scaled(top, len(names)), abs=ROUNDING)
    usage = body["usage"]
    assert list(usage) == ["input_tokens", "output_tokens", "x_cached_tokens"]
    assert all(type(count) is int for count in usage.values())
    assert usage["output_tokens"] == 2
    assert 0 <= usage["x_cached_tokens"] <= usage["input_tokens"]


def test_input_tokens_are_the_sum_over_the_questions(server: SysoneServer):
    together = answered(server, ANNOUNCED)["usage"]["input_tokens"]
    alone = [answered(server, {**BODY, "questions": {name: question}})["usage"]["input_tokens"]
             for name, question in BODY["questions"].items()]
    assert together == sum(alone)
    assert min(alone) > 30  # the instructions, the options and the template alone are more


@pytest.mark.parametrize("model", ["left out", None, "", "second-name", "jev-latest", "jev-preview"])
def test_the_model_may_be_left_out_or_named_otherwise(server: SysoneServer, model: str | None):
    body = dict(BODY)
    if model == "left out":
        del body["model"]
    else:
        body["model"] = model
    named, other = answered(server, ANNOUNCED), answered(server, body)
    assert other["answers"] == named["answers"]
    assert other["model"] == "Qwen/Qwen3-0.6B"
    assert other["id"] != named["id"]


@pytest.mark.parametrize("model", ["smollm2-135m", "Qwen/Qwen3-0.6b"])
def test_a_name_that_is_not_served_is_404(server: SysoneServer, model: str):
    body = assert_error(decide(server, {**BODY, "model": model}), 404, model)
    assert body["error"]["param"] == "model"


def test_the_headers_tell_the_time(server: SysoneServer):
    response = decide(server, ANNOUNCED)
    parts = dict(part.split(";dur=") for part in response.headers["Server-Timing"].split(", "))
    assert list(parts) == ["queue", "tokenise", "pass", "total"]
    times = {name: float(value) for name, value in parts.items()}
    assert all(value >= 0 for value in times.values()) and times["pass"] > 0
    assert times["total"] >= times["queue"] + times["tokenise"] + times["pass"] - 0.003  # three values rounded to 1 us


@pytest.mark.parametrize("header, field, expected", [("trace-1", None, "trace-1"), (None, "trace 2", "trace 2"),
                                                     ("trace-1", "trace 2", "trace-1")])
def test_the_clients_id_is_used(server: SysoneServer, header: str | None, field: str | None, expected: str):
    body = BODY if field is None else {**BODY, "request_id": field}
    response = decide(server, body, None if header is None else {"X-Request-Id": header})
    assert response.json()["id"] == f"decision-{expected}"
    assert assert_ids(response) == expected


def test_an_id_that_no_header_can_carry_is_replaced(server: SysoneServer):
    response = decide(server, BODY, {"X-Request-Id": "x" * 300})
    assert ID_TEXT.fullmatch(assert_ids(response))


LEVELS = ["calm", {"level": "Ärger"}, ["very", 1.0]]
THREE_TYPES: dict[str, Any] = {
    "state": "Please pay me back, Ödön 😡",
    "questions": {
        "noul 🎯": {"type": "noul", "instructions": "Is money asked for?"},
        "score": {"type": "score", "instructions": {"how": "angry"}, "criteria": LEVELS},
        "choice": {"type": "choice", "criteria": {"환불": "money", "b": {"x": 1}, "only c": None}},
    },
}


def test_each_type_has_its_fields(server: SysoneServer):
    response = decide(server, {**THREE_TYPES, "diagnostics": True})
    body = response.json()
    assert list(body) == ["id", "object", "created", "model", "answers", "usage", "diagnostics"]
    answers = body["answers"]
    assert list(answers) == ["noul 🎯", "score", "choice"]

    noul = answers["noul 🎯"]
    assert list(noul) == ["type", "noul", "probabilities", "confidence"] and noul["type"] == "noul"
    assert_distribution(noul["probabilities"], ["yes", "no"])
    assert noul["noul"] == noul["probabilities"]["yes"]
    assert noul["confidence"] == pytest.approx(scaled(max(noul["probabilities"].values()), 2), abs=ROUNDING)

    score = answers["score"]
    assert list(score) == ["type", "score", "legend", "probabilities", "confidence"] and score["type"] == "score"
    assert_distribution(score["probabilities"], ["0", "1", "2"])
    p = list(score["probabilities"].values())
    assert score["score"] == pytest.approx(p[1] + 2 * p[2], abs=ROUNDING)
    assert list(score["legend"].items()) == list(zip("012", LEVELS))
    assert '"2":["very",1.0]' in response.text.replace(", ", ","), "a level comes back as it was sent"
    assert score["confidence"] == pytest.approx(score_confidence(p), abs=ROUNDING)

    assert list(answers["choice"]) == ["type", "choice", "probabilities", "confidence"]
    assert_distribution(answers["choice"]["probabilities"], ["환불", "b", "only c"])

    assert list(body["diagnostics"]) == list(answers)
    for found in body["diagnostics"].values():
        assert list(found) == ["label_mass", "argmax_is_label"]
        assert 0 < found["label_mass"] < 1 and isinstance(found["argmax_is_label"], bool)


def test_typesafe_fields_and_vllms_confidence(typesafe_server: SysoneServer):
    body = answered(typesafe_server, THREE_TYPES)
    assert list(body) == ["model", "answers", "usage", "x_diagnostics"]
    assert list(body["answers"]["noul 🎯"]) == ["type", "noul"]
    for name in ("score", "choice"):
        answer = body["answers"][name]
        top = max(answer["probabilities"].values())
        assert answer["confidence"] == pytest.approx(top * body["x_diagnostics"][name]["label_mass"], abs=ROUNDING)
    without = answered(typesafe_server, {**THREE_TYPES, "diagnostics": False})
    assert list(without) == ["model", "answers", "usage"]
    assert without["answers"] == body["answers"]
