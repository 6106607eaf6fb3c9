"""The batch file for Slurm, and `sysone serve` as a task of srun, on a Slurm of one machine that the test starts.
SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import itertools
import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from http_calls import answered
from load_client import KeepAliveClient, wait_until
from slurm_cluster import NODES, SlurmCluster, free_port, missing_programs
from sysone_server import PROGRAM, READY, READY_DEADLINE_S, STOP_DEADLINE_S, SysoneServer, leftover_paths, living_pids

ROOT = Path(__file__).resolve().parents[2]
# Another order of the same sums, and other blocks of activations in int8: either side is off by up to 0.012 of a probability with
# this model (int8_quality, README).
BOUND = 0.024

_counter = itertools.count(1)

pytestmark = pytest.mark.skipif(bool(missing_programs()), reason=f"Slurm is not installed: {', '.join(missing_programs())}")


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with SlurmCluster() as running:
        yield running


def readme_example() -> tuple[list[str], dict[str, Any]]:
    """The announced request as the README writes it, as words of a command line, and the answer under it."""
    blocks = (ROOT / "README.md").read_text().split("\n## Ask\n")[1].split("```\n")
    return shlex.split(blocks[1]), json.loads(blocks[3])


class BatchJob:
    """One `sbatch scripts/slurm/serve.sbatch`, and all that is known about it."""

    def __init__(self, slurm: SlurmCluster, *flags: str, options: tuple[str, ...] = ()) -> None:
        self._slurm = slurm
        self.instance = f"slurm-{os.getpid()}-{next(_counter)}"
        self._output = slurm.folder / f"{self.instance}.out"
        slurm.env["SYSONE_PROGRAM"] = str(PROGRAM)
        self.id = slurm.run("sbatch", "--parsable", f"--output={self._output}", *options, str(ROOT / "scripts/slurm/serve.sbatch"), *flags,
                            "--host", "127.0.0.1", "--port", "0", "--instance-name", self.instance)

    def output(self) -> str:
        return self._output.read_text() if self._output.exists() else ""

    def over(self) -> bool:
        return self._slurm.run("squeue", "--noheader", "--jobs", self.id, "--states=all", "--format=%T") in (
            "CANCELLED", "COMPLETED", "FAILED", "TIMEOUT")

    def wait_for_url(self) -> str:
        try:
            wait_until(lambda: READY.search(self.output()) or self.over(), "the job is ready", READY_DEADLINE_S)
            return READY.search(self.output()).group(1)
        except (AssertionError, AttributeError):
            raise AssertionError(f"the job is not ready; its output:\n{self.output()}") from None

    def programs(self) -> list[str]:
        return sorted(Path(os.readlink(f"/proc/{pid}/exe")).name for pid in living_pids(self.instance))

    def leftovers(self) -> list[Any]:
        return [*living_pids(self.instance), *leftover_paths(self.instance, self._slurm.env)]

    def wait_until_gone(self) -> None:
        wait_until(self.over, "Slurm has ended the job", STOP_DEADLINE_S)
        wait_until(lambda: not self.leftovers(), f"nothing is left of it\n{self.output()}", STOP_DEADLINE_S)


def test_the_batch_file_serves_the_announced_request_and_scancel_leaves_nothing(slurm: SlurmCluster):
    curl, expected = readme_example()
    job = BatchJob(slurm, "--api-server-count", "2")
    url = job.wait_for_url()
    assert job.programs() == [
        "orterun", "sysone", "sysone", "sysone-api-server", "sysone-api-server", "sysone-worker", "sysone-worker"]
    assert any(f"rank 0 of 1 (local 0 of 1, 1 machine, first {node}), told by a Slurm job" in job.output() for node in NODES)

    curl = [word.replace("localhost:8000", url.removeprefix("http://")) for word in curl]
    got = json.loads(subprocess.run(curl, capture_output=True, text=True, check=True, timeout=60).stdout)
    print(json.dumps(got))
    assert got["model"] == expected["model"] and got["usage"]["input_tokens"] == expected["usage"]["input_tokens"]
    assert list(got["answers"]) == list(expected["answers"])
    for name, answer in expected["answers"].items():
        assert got["answers"][name]["choice"] == answer["choice"]
        for option, probability in answer["probabilities"].items():
            assert got["answers"][name]["probabilities"][option] == pytest.approx(probability, abs=BOUND)

    slurm.run("scancel", job.id)
    job.wait_until_gone()


def test_a_signal_to_the_batch_script_alone_answers_what_is_in_flight(slurm: SlurmCluster):
    job = BatchJob(slurm, "smollm2-135m")
    url = job.wait_for_url()
    body = json.dumps({"state": "word " * 600, "questions": {"q": {"type": "noul", "instructions": "Is it long?"}}})
    with subprocess.Popen(["curl", "-s", "-d", body, "-H", "Content-Type: application/json", url + "/v1/systemone"],
                          stdout=subprocess.PIPE, text=True) as client:
        with KeepAliveClient(url) as probe:
            wait_until(lambda: probe.metrics().total("sysone_group_outstanding_jobs") == 1, "the request is being answered")
        slurm.run("scancel", "--batch", "--signal=TERM", job.id)
        answer = json.loads(client.communicate(timeout=60)[0])
    assert "q" in answer["answers"], answer
    job.wait_until_gone()
    assert "stopped" in job.output()


def test_a_group_over_two_machines_of_the_job_answers(slurm: SlurmCluster):
    question = {"state": "I was charged twice.", "questions": {"refund": {"type": "noul"}}}
    with SysoneServer("-tp", "2", "--threads", "1") as plain:
        expected = answered(plain, question)["answers"]
    job = BatchJob(slurm, "smollm2-135m", options=("--nodes=2", "--ntasks-per-node=1"))
    with KeepAliveClient(job.wait_for_url()) as client:
        assert client.decide(question) == expected
    workers = [pid for pid in living_pids(job.instance) if os.readlink(f"/proc/{pid}/exe").endswith("sysone-worker")]
    nodes = {dict(line.split("=", 1) for line in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in line)["SLURMD_NODENAME"]
             for pid in workers}
    assert len(workers) == 2 and nodes == set(NODES)
    slurm.run("scancel", job.id)
    job.wait_until_gone()


def test_two_nodes_of_srun_share_the_groups_out(slurm: SlurmCluster, tmp_path: Path):
    """The same command on each machine: the first serves, the second lends it its group over a link with keys."""
    question = {"state": "I was charged twice.", "questions": {"refund": {"type": "noul"}}}
    subprocess.run([PROGRAM, "keys", str(tmp_path / "keys")], check=True, capture_output=True)
    port, log, instance = free_port(), tmp_path / "log", f"nodes-{os.getpid()}"
    # Both are on this machine here, so that they need different names.
    named = f'exec "$0" "$@" --instance-name {instance}-$SLURM_PROCID'
    command = ["srun", f"--job-name={instance}", "--nodes=2", "--ntasks-per-node=1", "bash", "-c", named, str(PROGRAM), "serve", "smollm2-135m", "-dp", "2",
               "--threads", "1", "--host", "127.0.0.1", "--port", str(port), "--master-port", str(free_port()),
               "--curve-keys", str(tmp_path / "keys")]
    with open(log, "wb") as out:
        srun = subprocess.Popen(command, env=slurm.env, stdout=out, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: READY.search(log.read_text()) or srun.poll() is not None, "node 0 is ready", READY_DEADLINE_S)
        with KeepAliveClient(f"http://127.0.0.1:{port}") as client:
            wait_until(lambda: sum(client.metrics().of("sysone_group_ready").values()) == 2, "both groups are there")
            assert 0 < client.decide(question)["refund"]["noul"] < 1
        assert f"rank 1 of 2 (local 0 of 1, 2 machines, first {NODES[0]}), told by srun" in log.read_text()
        slurm.run("scancel", "--name", instance)
        srun.wait(STOP_DEADLINE_S)
    except BaseException:
        print(log.read_text())
        raise
    finally:
        srun.kill()
        srun.wait()
    for node in (0, 1):
        wait_until(lambda: not living_pids(f"{instance}-{node}") and not leftover_paths(f"{instance}-{node}", slurm.env),
                   f"node {node} leaves nothing", STOP_DEADLINE_S)


def test_a_group_of_ranks_serves_as_a_task_of_srun(slurm: SlurmCluster):
    question = {"state": "I was charged twice.", "questions": {"refund": {"type": "noul"}}}
    with SysoneServer("-tp", "2", "--threads", "1", env=slurm.env, launcher=("srun", "-n", "1", "--mpi=pmix")) as server:
        assert 0 < answered(server, question)["answers"]["refund"]["noul"] < 1
        # On the second node when the first one still ends an earlier job.
        assert any(f"rank 0 of 1 (local 0 of 1, 1 machine, first {node}), told by srun" in server.output() for node in NODES)


def test_several_tasks_of_srun_are_told_what_to_do(slurm: SlurmCluster):
    ran = subprocess.run(["srun", "-n", "2", str(PROGRAM), "serve", "smollm2-135m", "--port", "0"], env=slurm.env,
                         capture_output=True, text=True, timeout=60)
    assert ran.returncode == 3
    assert ran.stderr.count("start `sysone serve` once on a machine (mpirun -n 1, srun --ntasks=1)") == 2
