"""A Slurm of one machine for a test: munged, slurmctld and two slurmd, as if they were two machines, on free ports of the loopback
device, in a folder of their own, as the user who runs the test. They end with the block.
SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from load_client import wait_until

PATIENCE_S = 30.0
SBIN = os.environ["PATH"] + ":/usr/sbin:/sbin"  # daemons are often out of a user's PATH
DAEMONS = ("munged", "slurmctld", "slurmd")
COMMANDS = ("sbatch", "scontrol", "srun", "squeue", "scancel", "sinfo")


def missing_programs() -> list[str]:
    return [name for name in (*DAEMONS, *COMMANDS) if shutil.which(name, path=SBIN) is None]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


# The first is this machine under its own name, as OpenMPI expects it; the second, which Slurm sorts behind it, runs here, too.
NODES = (socket.gethostname(), socket.gethostname() + "-far")


class SlurmCluster:
    """with SlurmCluster() as slurm: slurm.run("sbatch", …). `slurm.env`: for commands that the test starts itself."""

    def __init__(self, cpus: int = 8) -> None:
        self._cpus = cpus
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.folder = Path()
        self.env: dict[str, str] = {}

    def __enter__(self) -> SlurmCluster:
        self.folder = Path(tempfile.mkdtemp(prefix="sysone-slurm-"))
        self.folder.chmod(0o711)  # munged wants its socket to be reachable by everybody
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (self.folder / name).mkdir(mode=0o700)
        self.env = {**os.environ, "PATH": SBIN, "SLURM_CONF": str(self.folder / "slurm.conf")}
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end_jobs()
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in reversed(self._daemons):
            try:
                daemon.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *command: str) -> str:
        """The standard output of a Slurm command that must succeed."""
        ran = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=PATIENCE_S)
        assert ran.returncode == 0, f"{' '.join(command)}: {ran.stderr}\n{self._logs()}"
        return ran.stdout.strip()

    def _end_jobs(self) -> None:
        """A test that failed may have left some, and they outlive the daemons."""
        try:
            self.run("scancel", "--user", _user())
            wait_until(lambda: not self.run("squeue", "--noheader"), "every job has ended", 2 * PATIENCE_S)
        except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
            print(f"a job of the test may still run: {error}")

    def _start(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        munge_socket = self.folder / "munge.sock"
        self._daemon("munged", "--foreground", f"--key-file={key}", f"--socket={munge_socket}",
                     f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/munged-own.log",
                     f"--seed-file={self.folder}/munged.seed")
        self._wait(munge_socket.exists, "munged listens")
        self._write_config(munge_socket)
        config = self.env["SLURM_CONF"]
        self._daemon("slurmctld", "-D", "-f", config)
        for node in NODES:
            self._daemon("slurmd", "-D", "-f", config, "-N", node)
        self._wait(self._are_idle, "both nodes are idle")

    def _write_config(self, munge_socket: Path) -> None:
        user = _user()
        folder = self.folder
        nodes = "\n".join(f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={free_port()} CPUs={self._cpus} State=UNKNOWN"
                          for node in NODES)
        (folder / "slurm.conf").write_text(f"""ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={free_port()}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={munge_socket}
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
# More processors than the machine may have: nothing is bound to them.
SlurmdParameters=config_overrides
ReturnToService=2
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""")

    def _daemon(self, *command: str) -> None:
        with open(self.folder / f"{len(self._daemons)}-{command[0]}.log", "wb") as log:
            self._daemons.append(subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=log,
                                                  stderr=subprocess.STDOUT))

    def _are_idle(self) -> bool:
        ran = subprocess.run(["sinfo", "--noheader", "--format=%D %t"], env=self.env, capture_output=True, text=True,
                             timeout=PATIENCE_S)
        return ran.stdout.strip() == f"{len(NODES)} idle"

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        try:
            wait_until(lambda: condition() or any(daemon.poll() is not None for daemon in self._daemons), what, PATIENCE_S)
            assert condition(), f"a daemon ended instead: {what}"
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._logs()}") from None

    def _logs(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}"
                         for log in sorted(self.folder.glob("*.log")))
