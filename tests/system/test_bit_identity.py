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


@pytest.fixture(scope="module")
def server() -> Iterator[SysoneServer]:
    with SysoneServer("--disable-log-requests") as running:
        yield running


@pytest.fixture(scope="module")
def alone(server: SysoneServer) -> dict[str, Any]:
    """Every question in a request of its own on an idle server. JSON carries doubles exactly, so == compares bits."""
    return {name: answered(server, {"state": STATE, "questions": {name: question}})["answers"][name]
            for name, question in QUESTIONS.items()}


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
