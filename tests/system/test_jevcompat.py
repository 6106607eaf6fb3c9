"""The public conformance suite, as its users run it, against a real server: every MUST, and every SHOULD that our fields allow.
SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sysone_server import SysoneServer

KEY = "system-test-key-27b1"
# Conformance is not speed: the question with 255 options is thousands of tokens, and a busy machine without the instructions
# that the kernels like takes a minute for it. Time is given, nothing else is changed.
PATIENCE_S = "600"
AUTH_ON_CHECKS = {"auth.bearer": "skip", "auth.missing": "skip", "auth.invalid": "skip"}
OWN_FIELDS = {"response.extensions": "fail"}  # `id`, `object`, … of the announced response have no prefix x_


def run_suite(server: SysoneServer, report: Path, key: str | None = None) -> dict[str, Any]:
    command = [str(Path(sys.executable).parent / "jevcompat"), "test", server.url, "--timeout", PATIENCE_S,
               "--json", str(report)]
    env = {**os.environ}
    if key is not None:
        command += ["--key-env", "SYSTEM_TEST_KEY"]
        env["SYSTEM_TEST_KEY"] = key
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    return json.loads(report.read_text())


def not_passed(report: dict[str, Any]) -> dict[str, str]:
    """Check → status, of every check that did not pass."""
    return {result["id"]: result["status"] for result in report["results"] if result["status"] != "pass"}


def explain(report: dict[str, Any], expected: dict[str, str]) -> str:
    lines = ["jevcompat found what it should not:"]
    for result in report["results"]:
        if result["status"] != expected.get(result["id"], "pass"):
            lines.append(f"{result['level']} {result['id']} is {result['status']}: {result['reason']}")
            lines += [f"    {finding['case']} {finding['where']}: {finding['message']}" for finding in result["findings"][:3]]
    return "\n".join(lines)


def assert_report(report: dict[str, Any], expected: dict[str, str]) -> None:
    assert report["aborted"] is None and report["case_errors"] == [] and report["inconclusive"] == []
    levels = [result["level"] for result in report["results"]]
    assert (levels.count("MUST"), levels.count("SHOULD")) == (33, 15), "the suite is not the one that was counted"
    assert not_passed(report) == expected, explain(report, expected)


@pytest.mark.parametrize(
    "flags, key, expected",
    [
        pytest.param([], None, {**AUTH_ON_CHECKS, **OWN_FIELDS}, id="default_fields"),
        pytest.param(["--response-fields", "typesafe"], None, AUTH_ON_CHECKS, id="typesafe_fields"),
        pytest.param(["--api-key", KEY], KEY, {"auth.ignored-when-off": "skip", **OWN_FIELDS}, id="api_key"),
    ],
)
def test_every_must_and_should_passes(tmp_path: Path, flags: list[str], key: str | None, expected: dict[str, str]) -> None:
    with SysoneServer("--request-timeout", PATIENCE_S, *flags) as server:
        report = run_suite(server, tmp_path / "report.json", key)
    print({level: report["summary"][level] for level in ("MUST", "SHOULD")})
    assert_report(report, expected)

    # A judge that lets everything pass would show here.
    doctored = copy.deepcopy(report)
    doctored["results"][0]["status"] = "fail"
    with pytest.raises(AssertionError, match="http.endpoint is fail"):
        assert_report(doctored, expected)
