"""The engine on GPUs as a user starts it, with a worker whose devices are emulated (tests/kernels/emulation/) and whose NCCL is a
fake: flags, choice of the device, answers on one and two ranks, and what is said when it cannot start.
SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from http_calls import answered, decide
from load_client import wait_until
from sysone_server import PROGRAM, SysoneServer

TINY = str(Path(__file__).parents[1] / "golden" / "qwen3")
EMULATED = Path(os.environ["SYSONE_EMULATED_GPU_DIR"])
# The file that stands for the driver is there, and the programs lie in another folder.
ON_GPUS = ("--device", "cuda", "--program-dir", str(EMULATED), "--device-file", "/dev/null", "--max-model-len", "512",
           # All that is left of a device would have to be filled; and every usual size of a pass is run at a start.
           "--kv-cache-memory", str(8 << 20), "--max-num-batched-tokens", "64")
FLAGS = ("--disable-log-requests", "--diagnostics", "--no-enable-prefix-caching")
QUESTIONS: dict[str, Any] = {
    "refund": {"type": "noul", "instructions": "Is money asked for?"},
    "team": {"type": "choice", "criteria": {"Billing": "refunds", "Technical": "bugs"}},
    "anger": {"type": "score", "criteria": ["calm", "frustrated", "very angry"]},
}
ASKED = {"state": {"ticket": "Please pay me back."}, "questions": QUESTIONS}


def numbers(answers: Any) -> list[float]:
    if isinstance(answers, dict):
        return [number for key in answers for number in numbers(answers[key])]
    if isinstance(answers, list):
        return [number for item in answers for number in numbers(item)]
    return [float(answers)] if isinstance(answers, (int, float)) and not isinstance(answers, bool) else []


def difference(a: Any, b: Any) -> float:
    pairs = list(zip(numbers(a), numbers(b), strict=True))
    assert len(pairs) >= 3
    return max(abs(x - y) for x, y in pairs)


def answers(*flags: str, says: tuple[str, ...] = (), company: float = 5e-5) -> Any:
    """`company`: how much an answer may depend on the other questions of its request."""
    with SysoneServer(*flags, *FLAGS, model=TINY) as server:
        first = answered(server, ASKED)["answers"]
        for _ in range(3):  # nothing is kept: the second pass of a size is recorded, the later ones are launched as a whole
            assert answered(server, ASKED)["answers"] == first
        for name in QUESTIONS:
            alone = answered(server, {**ASKED, "questions": {name: QUESTIONS[name]}})["answers"][name]
            assert difference(alone, first[name]) <= company
        for text in says:
            assert text in server.output()
    return first


@pytest.fixture(scope="module")
def on_cpu() -> Any:
    return answers("--dtype", "float32", "--max-model-len", "512", says=("device: cpu",))


# Another order of the same sums moves a logit of the tiny models by up to 1e-4 (tests/worker/decoder_golden_test.cc), and a
# probability by at most half of what the logits move.
@pytest.mark.parametrize("flags", [("--device", "auto"), ("--enforce-eager",)])
def test_a_gpu_gives_the_answers_of_the_cpu(flags: tuple[str, ...], on_cpu: Any):
    got = answers(*ON_GPUS, *flags, "--dtype", "float32", says=("device: cuda", "Emulated device 0"))
    assert difference(on_cpu, got) <= 5e-5


def test_bfloat16_is_the_type_of_gpus_and_answers_near_float32(on_cpu: Any):
    # Eight bits of mantissa, on weights and activations of three layers; logits of the tiny models are a few units large.
    assert 0 < difference(on_cpu, answers(*ON_GPUS, says=("bfloat16",), company=5e-2)) <= 5e-2


def test_with_batch_invariance_an_answer_depends_on_no_other_question_at_all():
    answers(*ON_GPUS, "--batch-invariant", says=("bfloat16",), company=0)


def test_two_ranks_on_two_gpus_give_the_answers_of_one(on_cpu: Any):
    got = answers(*ON_GPUS, "-tp", "2", "--dtype", "float32",
                  says=("rank 1 of 2: Emulated device 1", "their devices by NCCL", "reaches 1 of the 1 other"))
    assert difference(on_cpu, got) <= 5e-5


def test_a_group_on_gpus_of_which_a_rank_is_killed_is_started_again():
    with SysoneServer(*ON_GPUS, "-tp", "2", "--dtype", "float32", *FLAGS, model=TINY) as server:
        expected = answered(server, ASKED)["answers"]
        ranks = [pid for pid in server.child_pids()
                 if Path(os.readlink(f"/proc/{pid}/exe")).name == "sysone-worker-cuda"]
        assert len(ranks) == 2
        os.kill(max(ranks), signal.SIGKILL)
        wait_until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in ranks), "both ranks end")
        again = wait_until(lambda: (response := decide(server, ASKED)).status_code == 200 and response, "the group is back")
        assert again.json()["answers"] == expected


@pytest.mark.parametrize("flags, words", [
    (("--device", "cuda", "--program-dir", str(PROGRAM.parent), "--device-file", "/nowhere/driver"), "--device cuda: "),
    ((*ON_GPUS, "--device-file", "/nowhere/driver"), "--device cuda: /nowhere/driver is not there"),
    (("--device", "cpu", "--dtype", "fp8"), "--dtype fp8 is for GPUs"),
    ((*ON_GPUS, "-dp", "3"), "needs 3 GPUs, one each, and 2 are visible"),
    ((*ON_GPUS, "--gpu-memory-utilization", "0.01"), "MiB"),
])
def test_what_cannot_start_says_why(flags: tuple[str, ...], words: str):
    run = subprocess.run([PROGRAM, "serve", TINY, "--host", "127.0.0.1", "--port", "0", *flags],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert run.returncode != 0
    assert words in run.stdout, run.stdout
