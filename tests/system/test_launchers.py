"""`sysone serve` within somebody else's launcher: its own mpirun must not take what the outer one says for its own.
SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from http_calls import answered
from load_client import KeepAliveClient, wait_until
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


def remote_shell(folder: Path, leave: str) -> dict[str, str]:
    """An environment whose mpirun reaches other machines through a stand-in for ssh: the command runs on this machine, in
    process ids of its own as `leave` (a command, or nothing) makes them."""
    script = folder / "remote_shell"
    script.write_text(f'#!/bin/sh\necho "$1" >>{folder}/hosts\nshift\nexec {leave} sh -c "$*"\n')
    script.chmod(0o755)
    return {"OMPI_MCA_plm_rsh_agent": str(script)}


def test_a_group_over_two_hosts_answers_and_comes_back_when_its_far_rank_dies(tmp_path: Path):
    # In process ids of its own a rank cannot map rank 0's memory, just as on another machine, so that MPI carries the sums.
    leave = "unshare --pid --fork --mount-proc" if subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True).returncode == 0 else ""
    (tmp_path / "hostfile").write_text("localhost slots=1\nfar slots=1  # the stand-in for ssh answers\n")
    with SysoneServer("-tp", "2", "--threads", "1") as plain:
        expected = answered(plain, QUESTION)["answers"]
    with SysoneServer("-tp", "2", "--threads", "1", "--mpi-hostfile", str(tmp_path / "hostfile"),
                      env=remote_shell(tmp_path, leave)) as server:
        assert (tmp_path / "hosts").read_text() == "far\n"
        assert ("2 ranks over MPI" if leave else "2 ranks over") in server.output()
        assert answered(server, QUESTION)["answers"] == expected, "sums are added in the order of ranks, whatever carries them"
        workers = [pid for pid in server.child_pids() if os.readlink(f"/proc/{pid}/exe").endswith("sysone-worker")]
        far = next(pid for pid in workers if b"OMPI_COMM_WORLD_RANK=1" in Path(f"/proc/{pid}/environ").read_bytes())
        os.kill(far, signal.SIGKILL)
        with KeepAliveClient(server.url) as client:
            wait_until(lambda: client.metrics().of("sysone_restarts_total")["worker"] == 1 and client.ready(), "the group is back")
        assert answered(server, QUESTION)["answers"] == expected


def test_a_host_list_that_does_not_begin_here_ends_the_start():
    ran = subprocess.run([str(PROGRAM), "serve", "smollm2-135m", "-tp", "2", "--mpi-hosts", "far.invalid,localhost"],
                         capture_output=True, text=True, timeout=60)
    assert ran.returncode == 3
    assert "the first host, 'far.invalid', is not this machine" in ran.stderr


def test_several_copies_on_one_machine_are_told_what_to_do():
    ran = subprocess.run([*MPIRUN, "-n", "2", str(PROGRAM), "serve", "smollm2-135m", "--port", "0"],
                         capture_output=True, text=True, timeout=60)
    assert ran.returncode == 3
    assert "start `sysone serve` once on a machine (mpirun -n 1, srun --ntasks=1)" in ran.stderr


def test_a_variable_of_a_launcher_that_makes_no_sense_is_named():
    env = {**os.environ, "OMPI_COMM_WORLD_RANK": "one", "OMPI_COMM_WORLD_SIZE": "2"}
    ran = subprocess.run([str(PROGRAM), "serve", "smollm2-135m"], capture_output=True, text=True, timeout=60, env=env)
    assert ran.returncode == 2
    assert ran.stderr.strip() == ("sysone: the environment variable OMPI_COMM_WORLD_RANK is 'one', not a whole number "
                                  "from 0 to 2147483647")
