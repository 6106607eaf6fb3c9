"""An answer depends on its state and question alone: company, order and load change no bit of it.
SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from http_calls import answered, call
from sysone_server import SysoneServer

STATE = {"ticket": "I was charged twice. Please pay me back today.", "language": "English"}
QUESTIONS: dict[str, Any] = {
    "refund": {"type": "noul", "instructions": "Is money asked for?"},
    "urgent": {"type": "noul", "instructions": "Must it be today?", "criteria": {"true": "today", "false": "any day"}},
    "team": {"type": "choice", "instructions": "Which team?", "criteria": {"Billing": "refunds", "Technical": "bugs"}},
    "lang": {"type": "choice", "instructions": "Which language?", "criteria": {"English": None, "French": None, "Thai": None}},
    "many": {"type": "choice", "criteria": {f"queue {i}": None for i in range(12)}},
    "anger": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "frustrated", "very angry"]},
    "polite": {"type": "score", "instructions": "How polite?", "criteria": ["rude", "polite"]},
    "empty": {"type": "noul"},
}
# Long enough to be cut differently into passes and rows than the questions beside it.
OTHER_STATE = "The parcel has not come. " * 12


def asked(state: Any, salt: str | None, *names: str) -> dict[str, Any]:
    body = {"state": state, "questions": {name: QUESTIONS[name] for name in names}}
    return body if salt is None else {**body, "cache_salt": salt}


@pytest.fixture(scope="module")
def server() -> Iterator[SysoneServer]:
    with SysoneServer("--disable-log-requests") as running:
        yield running


@pytest.fixture(scope="module")
def alone(server: SysoneServer) -> dict[str, Any]:
    """Every question in a request of its own on an idle server, with nothing to be found in the cache. JSON carries doubles
    exactly, so == compares bits."""
    answers = {}
    for name in QUESTIONS:
        body = answered(server, asked(STATE, f"alone {name}", name))
        assert body["usage"]["x_cached_tokens"] == 0
        answers[name] = body["answers"][name]
    return answers


def test_the_answers_differ_from_each_other(alone: dict[str, Any]):
    nouls = {alone[name]["noul"] for name in ("refund", "urgent", "empty")}
    assert len(nouls) == 3, "equal answers to all questions would make the other tests of this file blind"


@pytest.mark.parametrize("seed", range(4))
def test_seven_others_in_any_order_change_nothing(server: SysoneServer, alone: dict[str, Any], seed: int):
    names = list(QUESTIONS)
    random.Random(seed).shuffle(names)
    answers = answered(server, {"state": STATE, "questions": {name: QUESTIONS[name] for name in names}})["answers"]
    assert list(answers) == names
    assert answers == alone


def test_load_changes_nothing(server: SysoneServer, alone: dict[str, Any]):
    def one(name: str) -> tuple[str, Any]:
        return name, answered(server, {"state": STATE, "questions": {name: QUESTIONS[name]}})["answers"][name]

    def company(seed: int) -> None:
        count = random.Random(seed).randint(1, 4)
        answered(server, {"state": f"{seed} {OTHER_STATE}",
                          "questions": dict(list(QUESTIONS.items())[:count])})

    def batches() -> tuple[float, float]:
        text = call(server, "GET", "/metrics").text
        value = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return float(value['sysone_group_batches{group="0"}']), float(value['sysone_group_jobs{group="0"}'])

    passes_before, jobs_before = batches()
    with ThreadPoolExecutor(16) as pool:
        others = [pool.submit(company, seed) for seed in range(8)]
        asked = [pool.submit(one, name) for name in [*QUESTIONS] * 2]
        found = [future.result() for future in asked]
        for other in others:
            other.result()
    passes_after, jobs_after = batches()
    assert jobs_after - jobs_before == 24
    assert passes_after - passes_before < 24, "no two requests ever shared a pass: this was no test under load"
    for name, answer in found:
        assert answer == alone[name]


def test_what_is_found_in_the_cache_changes_nothing(server: SysoneServer, alone: dict[str, Any]):
    for name in QUESTIONS:
        first = answered(server, asked(STATE, "cached", name))
        again = answered(server, asked(STATE, "cached", name))
        assert first["answers"][name] == alone[name] and again["answers"][name] == alone[name]
        if name != next(iter(QUESTIONS)):
            assert first["usage"]["x_cached_tokens"] > 0, "the state was there"
        assert again["usage"]["x_cached_tokens"] == again["usage"]["input_tokens"]
    together = answered(server, asked(STATE, "cached", *reversed(QUESTIONS)))
    assert together["answers"] == {name: alone[name] for name in reversed(QUESTIONS)}
    assert together["usage"]["x_cached_tokens"] == together["usage"]["input_tokens"]


@pytest.mark.parametrize("flags", [
    ("--max-num-batched-tokens", "16"),  # every prompt in pieces
    ("--max-num-batched-tokens", "100", "--no-enable-prefix-caching"),
    # Room for about two prompts: what was kept makes room all the time.
    ("--max-model-len", "512", "--kv-cache-memory", str(30 * 1024 * 1024)),
], ids=["pieces", "no_cache", "little_memory"])
def test_pieces_and_memory_change_nothing(alone: dict[str, Any], flags: tuple[str, ...]):
    def one(job: tuple[int, str]) -> tuple[str, Any]:
        number, name = job
        if number % 3 == 0:
            answered(server, asked(f"{number} {OTHER_STATE}", None, name))
        return name, answered(server, asked(STATE, None, name))["answers"][name]

    with SysoneServer("--disable-log-requests", *flags) as server, ThreadPoolExecutor(8) as pool:
        for name, answer in pool.map(one, enumerate([*QUESTIONS] * 3)):
            assert answer == alone[name]
