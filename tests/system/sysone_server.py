"""A real `sysone serve` for a test: started with flags, waited for until it is ready, stopped, and searched for leftovers.
SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import ctypes
import itertools
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

PROGRAM = Path(os.environ["SYSONE_BIN_DIR"]) / "sysone"
READY = re.compile(r"sysone is ready on (\w+://\S+) \(model ([^,]+),")
READY_DEADLINE_S = 120.0
STOP_DEADLINE_S = 40.0  # --shutdown-timeout's default of 30 s, and time for the processes to end

_counter = itertools.count(1)
_libc = ctypes.CDLL(None)


def _end_with_parent() -> None:
    """Runs in the child: a test program that is killed (a time-out of ctest) takes its server with it."""
    pr_set_pdeathsig = 1
    _libc.prctl(pr_set_pdeathsig, signal.SIGTERM)


def living_pids(instance: str, session: int = -1) -> list[int]:
    """Every living process of an instance, by the session it was started in or the name in its command line, so that it is
    found even when its parent died. A zombie has ended: it does not count."""
    pids = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            state, _, _, its_session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        named = any(word.removeprefix(b"--instance-name=") == instance.encode() for word in words)
        if state != "Z" and (int(its_session) == session or named):
            pids.append(int(folder.name))
    return sorted(pids)


def leftover_paths(instance: str, env: Mapping[str, str]) -> list[Path]:
    """The shared segment and the run folder of an instance, as far as they are there."""
    places = [Path("/dev/shm"), Path(f"/tmp/sysone-{os.getuid()}")]
    if runtime := env.get("XDG_RUNTIME_DIR"):
        places.append(Path(runtime))
    return [path for place in places if place.is_dir() for path in place.iterdir()
            if path.name.removeprefix("sysone.").removeprefix("sysone-") == instance]


def _must_be_cached(model: str, env: dict[str, str]) -> None:
    """Tests fetch nothing: a catalogue model that is not there is a failure that says what to run."""
    cache = env.get("SYSONE_CACHE") or (env.get("XDG_CACHE_HOME") or env["HOME"] + "/.cache") + "/sysone"
    if "/" not in model:
        file = Path(cache) / "models" / f"{model}.gguf"
        assert file.is_file(), f"{file} is missing: run scripts/fetch_model {model}"


def end_by_force(instance: str, session: int, env: Mapping[str, str]) -> None:
    """Kills every process of an instance and removes what it left. The router is no match: its keeper is killed with it."""
    while pids := living_pids(instance, session):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    for path in leftover_paths(instance, env):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


class SysoneServer:
    """with SysoneServer("--response-fields", "typesafe") as server: … server.url …

    Leaving the block stops the server with SIGTERM and asserts that it exits with 0 and leaves nothing behind.
    It ends with the thread that entered the block, so enter it in the main thread.
    `launcher`: a command that starts the program, mpirun for example; it ends when the program has ended.
    """

    def __init__(self, *flags: str, model: str = "smollm2-135m", env: dict[str, str] | None = None,
                 launcher: tuple[str, ...] = (), keeper_is_killed: bool = False) -> None:
        self.instance = f"system-{os.getpid()}-{next(_counter)}"
        self.url = ""
        self.model = ""  # the served name
        self.pids: list[int] = []  # all processes: the keeper first, which is what was started
        # The model comes first: a flag that takes a list would swallow it.
        # Answers are compared with those of CPUs, also on a machine with a GPU; the last flag counts.
        self._command = [*launcher, str(PROGRAM), "serve", model, "--host", "127.0.0.1", "--port", "0",
                         "--instance-name", self.instance, "--device", "cpu", *flags]
        # A key or a cache place that the developer's shell has set must not change what is tested.
        kept = {k: v for k, v in os.environ.items() if k not in ("SYSONE_API_KEY", "VLLM_API_KEY")}
        self._env = {**kept, **(env or {})}
        self._keeper_is_killed = keeper_is_killed
        self._lines: list[str] = []
        self._closed = False  # the last process that writes there has ended
        self._grown = threading.Condition()
        self._model_argument = model
        self._process: subprocess.Popen[str] | None = None
        self._guardian: subprocess.Popen[bytes] | None = None

    def output(self) -> str:
        """Everything that the instance has printed so far, stdout and stderr together."""
        with self._grown:
            return "".join(self._lines)

    def all_pids(self) -> list[int]:
        """Every living process of the instance."""
        assert self._process is not None
        return living_pids(self.instance, self._process.pid)

    def child_pids(self) -> list[int]:
        """Every living process of the instance but the keeper."""
        assert self._process is not None
        return [pid for pid in self.all_pids() if pid != self._process.pid]

    def keeper_pid(self) -> int:
        """The one that a signal to stop goes to: what was started, perhaps by a launcher, or who took its place."""
        assert self._process is not None
        parents = {}
        for pid in self.all_pids():
            try:
                if os.readlink(f"/proc/{pid}/exe") == str(PROGRAM.resolve()):
                    parents[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):  # ended meanwhile
                continue
        keepers = [pid for pid, parent in parents.items() if parent not in parents]
        return keepers[0] if keepers else self._process.pid

    def __enter__(self) -> SysoneServer:
        _must_be_cached(self._model_argument, self._env)
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                         errors="replace", env=self._env, start_new_session=True,
                                         preexec_fn=_end_with_parent)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if self._keeper_is_killed:
            self._guard()
        try:
            self._wait_ready()
        except BaseException:
            self._end_by_force()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._stop()
        except BaseException:
            self._end_by_force()
            if kind is None:
                raise
            print(f"and it did not stop cleanly:\n{self.output()}")
            return
        finally:
            if self._guardian is not None:
                self._guardian.communicate()
        if kind is not None:
            print(f"--- output of the server\n{self.output()}---")

    def _guard(self) -> None:
        """A killed test takes its server with it through the keeper. Where that is killed and followed by another, a process
        waits for the end of the test and ends what is left of the instance."""
        assert self._process is not None
        self._guardian = subprocess.Popen([sys.executable, "-B", __file__, f"{self.instance}/{self._process.pid}"],
                                          stdin=subprocess.PIPE, env=self._env, start_new_session=True)

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            with self._grown:
                self._lines.append(line)
                self._grown.notify_all()
        with self._grown:
            self._closed = True
            self._grown.notify_all()

    def _wait_ready(self) -> None:
        assert self._process is not None

        def ready() -> bool:
            return any(READY.search(line) for line in self._lines)

        with self._grown:
            self._grown.wait_for(lambda: ready() or self._closed, READY_DEADLINE_S)
            found = next((m for line in self._lines if (m := READY.search(line))), None)
        if found is None:
            raise AssertionError(f"{' '.join(self._command)} did not become ready; it printed:\n{self.output()}")
        self.url, self.model = found.group(1), found.group(2)
        self.pids = [self._process.pid, *self.child_pids()]
        assert len(self.pids) >= 4, f"keeper, router, an API server and a worker are expected, found {self.pids}"

    def _stop(self) -> None:
        assert self._process is not None
        keeper_pid = self.keeper_pid()
        keeper = os.pidfd_open(keeper_pid)
        try:
            os.kill(keeper_pid, signal.SIGTERM)
            status = self._process.wait(STOP_DEADLINE_S)
            # Whoever took the place of a killed keeper is nobody's child here, and its output closes before it has ended.
            ended, _, _ = select.select([keeper], [], [], STOP_DEADLINE_S)
        finally:
            os.close(keeper)
        assert ended, f"the keeper outlives SIGTERM; output:\n{self.output()}"
        self._reader.join(STOP_DEADLINE_S)
        # The test's own kill; whoever keeps the instance since then is nobody's child here.
        if not (self._keeper_is_killed and status == -signal.SIGKILL):
            assert status == 0, f"exit status {status} after SIGTERM; output:\n{self.output()}"
        alive = self.all_pids()
        assert not alive, f"processes {alive} outlive the keeper; output:\n{self.output()}"
        assert not self._reader.is_alive(), "something still holds the server's output open"
        left = self._leftover_paths()
        assert not left, f"left behind: {', '.join(map(str, left))}"

    def _leftover_paths(self) -> list[Path]:
        return leftover_paths(self.instance, self._env)

    def _end_by_force(self) -> None:
        assert self._process is not None
        end_by_force(self.instance, self._process.pid, self._env)
        self._process.wait()


if __name__ == "__main__":  # the guardian
    sys.stdin.read()
    _instance, _, _session = sys.argv[1].partition("/")
    end_by_force(_instance, int(_session), os.environ)
