"""`sysone serve` within somebody else's launcher: its own mpirun must not take what the outer one says for its own.
SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import os
import subprocess

from http_calls import answered
from sysone_server import PROGRAM, SysoneServer

MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none")
QUESTION = {"state": "I was charged twice.", "questions": {"refund": {"type": "noul", "instructions": "Is a refund due?"}}}


def test_a_group_of_ranks_serves_within_an_outer_mpirun():
    with SysoneServer("-tp", "2", "--threads", "1") as plain:
        expected = answered(plain, QUESTION)["answers"]
        assert "rank 0 of 1, started without a launcher" in plain.output()
    with SysoneServer("-tp", "2", "--threads", "1", launcher=(*MPIRUN, "-n", "1")) as within:
        assert answered(within, QUESTION)["answers"] == expected
        assert "rank 0 of 1 (local 0 of 1, 1 machine), told by mpirun" in within.output()


def test_several_copies_on_one_machine_are_told_what_to_do():
    ran = subprocess.run([*MPIRUN, "-n", "2", str(PROGRAM), "serve", "smollm2-135m", "--port", "0"],
                         capture_output=True, text=True, timeout=60)
    assert ran.returncode == 3
    assert "start `sysone serve` once (mpirun -n 1, srun --ntasks=1)" in ran.stderr


def test_a_variable_of_a_launcher_that_makes_no_sense_is_named():
    env = {**os.environ, "OMPI_COMM_WORLD_RANK": "one", "OMPI_COMM_WORLD_SIZE": "2"}
    ran = subprocess.run([str(PROGRAM), "serve", "smollm2-135m"], capture_output=True, text=True, timeout=60, env=env)
    assert ran.returncode == 2
    assert ran.stderr.strip() == ("sysone: the environment variable OMPI_COMM_WORLD_RANK is 'one', not a whole number "
                                  "from 0 to 2147483647")
