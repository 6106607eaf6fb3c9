"""The official SDK, unchanged, sync and async, against a real server: what its users get for answers and for errors.
SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator

import httpx2
import pytest
import typesafe_sdk
from typesafe_sdk import (
    AsyncTypeSafeClient,
    Choice,
    Noul,
    RetryPolicy,
    Score,
    SystemOneResponse,
    TypeSafeAPIError,
    TypeSafeAuthenticationError,
    TypeSafeBadRequestError,
    TypeSafeClient,
    TypeSafeNotFoundError,
    TypeSafePermissionDeniedError,
    TypeSafeUnprocessableEntityError,
)

from sysone_server import SysoneServer

KEY = "system-test-key-9d40"
# An attempt may take 10 s by default; a machine that is busy with other tests gets more. Nothing is tried twice: an error that
# a second try hides would not be seen.
OPTIONS = {"timeout": 120.0, "retry": RetryPolicy(max_retries=0)}
STATE = {"ticket": "I was charged twice. Please pay me back today."}
LEVELS = ["calm", {"level": "frustrated"}, ["very", "angry"]]
QUESTIONS = {
    "team": Choice(instructions="Which team?", criteria={"Billing": "Payments, refunds", "Technik für Kühlung": None}),
    "refund": Noul(instructions="Is money asked for?"),
    "anger": Score(instructions="How angry?", criteria=LEVELS),
}
REQUEST_ID = re.compile(r"[0-9a-f]{16}")


@pytest.fixture(scope="module", params=["vllm", "typesafe"])
def server(request: pytest.FixtureRequest) -> Iterator[SysoneServer]:
    with SysoneServer("--api-key", KEY, "--response-fields", request.param) as running:
        yield running


def ask(server: SysoneServer, kind: str, key: str = KEY, client_options: dict | None = None, **call) -> SystemOneResponse:
    options = {"api_key": key, "base_url": server.url, **OPTIONS, **(client_options or {})}
    arguments = {"state": STATE, "questions": QUESTIONS, **call}
    if kind == "sync":
        with TypeSafeClient(**options) as client:
            return client.system_one(**arguments)

    async def asynchronously() -> SystemOneResponse:
        async with AsyncTypeSafeClient(**options) as client:
            return await client.system_one(**arguments)

    return asyncio.run(asynchronously())


def test_it_is_the_sdk_that_users_install():
    assert typesafe_sdk.__version__.startswith("0.7.")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_all_three_question_types_are_answered(server: SysoneServer, kind: str):
    answer = ask(server, kind)
    assert list(answer.answers) == ["team", "refund", "anger"]
    assert answer.model == "smollm2-135m"

    team = answer.choices["team"]
    assert list(team.probabilities) == ["Billing", "Technik für Kühlung"]
    assert team.choice == max(team.probabilities, key=team.probabilities.__getitem__)
    assert sum(team.probabilities.values()) == pytest.approx(1, abs=1e-9)
    assert 0 <= team.confidence <= 1

    assert 0 < answer.nouls["refund"].noul < 1

    anger = answer.scores["anger"]
    assert anger.legend == dict(enumerate(LEVELS))
    assert list(anger.probabilities) == [0, 1, 2]
    # Both sides sum the same three products in doubles; only the order of the additions may differ.
    assert anger.score == pytest.approx(sum(level * p for level, p in anger.probabilities.items()), abs=1e-9)
    assert 0 <= anger.confidence <= 1

    assert answer.usage.input_tokens is not None and answer.usage.input_tokens > 60  # three prompts, the shortest over 20
    assert answer.usage.output_tokens == 3
    assert REQUEST_ID.fullmatch(answer.request_id)


def test_sync_and_async_and_raw_dictionaries_get_the_same_answers(server: SysoneServer):
    plain = {
        "team": {"type": "choice", "instructions": "Which team?",
                 "criteria": {"Billing": "Payments, refunds", "Technik für Kühlung": None}},
        "refund": {"type": "noul", "instructions": "Is money asked for?"},
        "anger": {"type": "score", "instructions": "How angry?", "criteria": LEVELS},
    }
    reference = ask(server, "sync")
    assert ask(server, "async").answers == reference.answers
    assert ask(server, "sync", questions=plain).answers == reference.answers
    other = ask(server, "sync", state={"ticket": "Hello!"})
    assert other.nouls["refund"] != reference.nouls["refund"], "the answers do not depend on the state"


def test_a_request_id_of_the_client_comes_back(server: SysoneServer):
    assert ask(server, "sync", extra_headers={"X-Request-Id": "mine-17"}).request_id == "mine-17"


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_models_are_listed(server: SysoneServer, kind: str):
    options = {"api_key": KEY, "base_url": server.url, **OPTIONS}
    if kind == "sync":
        with TypeSafeClient(**options) as client:
            listed = client.models.list()
    else:

        async def asynchronously():
            async with AsyncTypeSafeClient(**options) as client:
                return await client.models.list()

        listed = asyncio.run(asynchronously())
    assert [model.name for model in listed.models] == ["smollm2-135m"]
    assert listed.models[0].description
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", listed.models[0].release_date)
    assert REQUEST_ID.fullmatch(listed.request_id)


def without_key(request: httpx2.Request) -> None:
    del request.headers["Authorization"]


def as_plain_text(request: httpx2.Request) -> None:
    request.headers["Content-Type"] = "text/plain"


def changed_on_the_way(kind: str, change: Callable[[httpx2.Request], None]) -> dict:
    """Options of a client whose requests are changed after the SDK made them: it sends a key and its type always."""
    if kind == "sync":
        return {"http_client": httpx2.Client(timeout=120, event_hooks={"request": [change]})}

    async def asynchronously(request: httpx2.Request) -> None:
        change(request)

    return {"http_client": httpx2.AsyncClient(timeout=120, event_hooks={"request": [asynchronously]})}


ERRORS = [
    pytest.param({"model": "no-such-model"}, TypeSafeNotFoundError, 404, "no-such-model", id="unknown_model"),
    pytest.param({"extra_body": {"questions": {}}}, TypeSafeUnprocessableEntityError, 422, "questions", id="no_questions"),
    pytest.param({"extra_body": {"questions": {"q": {"type": "guess"}}}}, TypeSafeUnprocessableEntityError, 422, "type",
                 id="unknown_type"),
    pytest.param({"extra_body": {"questions": {"q": {"type": "score", "criteria": {"0": "a", "1": "b"}}}}},
                 TypeSafeUnprocessableEntityError, 422, "criteria", id="score_map"),
    pytest.param({"key": "wrong"}, TypeSafeAuthenticationError, 401, "key", id="wrong_key"),
    pytest.param({"change": without_key}, TypeSafePermissionDeniedError, 403, "key", id="missing_key"),
    pytest.param({"change": as_plain_text}, TypeSafeBadRequestError, 400, "Content-Type",
                 id="content_type"),
]


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("call, error_type, status, named", ERRORS)
def test_errors_are_the_sdks_exceptions(server, kind: str, call: dict, error_type: type[TypeSafeAPIError], status: int,
                                        named: str):
    call = dict(call)
    change = call.pop("change", None)
    client_options = None if change is None else changed_on_the_way(kind, change)
    with pytest.raises(error_type) as caught:
        ask(server, kind, client_options=client_options, **call)
    error = caught.value
    assert error.status == status
    assert named in str(error), "the message names what is wrong"
    assert error.request_id is not None and REQUEST_ID.fullmatch(error.request_id)
    assert f"request_id={error.request_id}" in str(error)
    assert error.body["error"]["code"] == status
