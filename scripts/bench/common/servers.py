"""The servers that are measured: started on a free port of the loopback, waited for, watched, and ended by their process ids.

SPDX-License-Identifier: Apache-2.0
"""

import os
import pathlib
import re
import select
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from common import machine

_READY_DEADLINE_S = 120
_TICKS = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """with a server: … server.port …; leaving ends it. `name` stands in tables."""

    def __init__(self, name, command):
        self.name = name
        self.port = 0
        self._command = [str(word) for word in command]
        self._process = None
        self._log = None

    def __enter__(self):
        self._log = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=self._log, text=True)
        try:
            self._wait_ready(time.monotonic() + _READY_DEADLINE_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._process.terminate()
        try:
            self._process.wait(45)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def failed(self):
        self._log.seek(0)
        return RuntimeError(f"{' '.join(self._command)} did not get ready:\n{self._log.read()[-2000:]}")

    def pids(self):
        """The server and its children."""
        found = [self._process.pid]
        for pid in found:
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
        return found

    def cpu_seconds(self):
        """Processor time of all its processes so far: a server that waits its turn must not take any."""
        total = 0
        for pid in self.pids():
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / _TICKS

    def resident_mib(self):
        """By process name; memory that is shared is counted in each."""
        sizes = {}
        for pid in self.pids():
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            name = re.search(r"Name:\s+(\S+)", status)[1]
            sizes[name] = sizes.get(name, 0) + int(re.search(r"VmRSS:\s+(\d+)", status)[1]) // 1024
        return sizes

    def _wait_ready(self, deadline):
        raise NotImplementedError


class SysoneServer(Server):
    def __init__(self, model_file, dtype, flags=(), threads=2):
        super().__init__("sysone", [
            machine.ROOT / "build/release/bin/sysone", "serve", model_file, "--host", "127.0.0.1", "--port", "0",
            "--instance-name", f"bench-{os.getpid()}-{free_port()}", "--threads", threads, "--dtype", dtype,
            "--disable-log-requests", "--log-level", "warning", *flags])

    def _wait_ready(self, deadline):
        # The ready line is the only one on stdout.
        while time.monotonic() < deadline and self._process.poll() is None:
            if select.select([self._process.stdout], [], [], 1)[0]:
                line = self._process.stdout.readline()
                if found := re.search(r"ready on \S+:(\d+)", line):
                    self.port = int(found[1])
                    return
        raise self.failed()


class LlamaServer(Server):
    """llama-server with `slots` requests at once, each up to `slot_tokens` long, for up to `clients` connections.

    A connection that its HTTP threads do not reach waits until another one ends, after 100 requests or 5 idle seconds: so there
    is one for each. It logs errors only. What it reads and writes may take an hour (--timeout), and its caches are as they are by
    default.
    """

    def __init__(self, model_file, slots=1, slot_tokens=4096, threads=2, flags=(), clients=8):
        port = free_port()
        super().__init__("llama-server", [
            peers_folder() / "llama-server", "-m", model_file, "--host", "127.0.0.1", "--port", port, "-t", threads,
            "-tb", threads, "-np", slots, "-c", slots * slot_tokens, "--threads-http", clients + 8, "-lv", 1, *flags])
        self.port = port

    def _wait_ready(self, deadline):
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except (urllib.error.URLError, OSError):
                pass
            time.sleep(0.1)
        raise self.failed()


def cache_folder():
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(os.environ.get("SYSONE_CACHE") or f"{home}/sysone")


def peers_folder():
    found = sorted((cache_folder() / "peers").glob("llama.cpp-*/stamp"))
    if not found:
        raise SystemExit("llama.cpp is not there: run scripts/bench/setup_peers")
    return found[-1].parent / "build/bin"
