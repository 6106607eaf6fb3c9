"""A model that is replaced under a running instance: who comes later is refused, who is there serves on, and all is well when the
old files are back.
SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from http_calls import answered
from load_client import KeepAliveClient, wait_until
from sysone_server import SysoneServer

TINY = Path(__file__).resolve().parents[1] / "golden/qwen3"
QUESTION = {"state": "I was charged twice.", "questions": {"refund": {"type": "noul"}}}


@pytest.mark.parametrize("program, role, ranks", [("sysone-api-server", "api_server", 1), ("sysone-worker", "worker", 1),
                                                  ("sysone-worker", "worker", 2)])
def test_a_process_with_another_model_is_refused_until_the_old_one_is_back(tmp_path: Path, program: str, role: str, ranks: int):
    model = tmp_path / "model"
    shutil.copytree(TINY, model)
    old = (model / "config.json").read_text()
    with SysoneServer("--api-server-count", "2", "-tp", str(ranks), model=str(model)) as server:
        expected = answered(server, QUESTION)["answers"]
        (model / "config.json").write_text(old.replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05'))
        victim = next(pid for pid in server.child_pids() if os.readlink(f"/proc/{pid}/exe").endswith(program))
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: "this process may not join: the model's fingerprint is " in server.output(), "the new one is refused")
        if role == "api_server":
            assert answered(server, QUESTION)["answers"] == expected, "the other one serves on"
        (model / "config.json").write_text(old)
        with KeepAliveClient(server.url) as client:
            wait_until(lambda: client.ready() and client.metrics().of("sysone_restarts_total")[role] >= 2, "it is back")
        wait_until(lambda: len([pid for pid in server.child_pids() if os.readlink(f"/proc/{pid}/exe").endswith(program)])
                   == (2 if role == "api_server" else ranks), "as many as before")
        assert answered(server, QUESTION)["answers"] == expected
