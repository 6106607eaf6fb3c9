"""Two hosts on one machine: network namespaces with a cable between them, made for a test and removed afterwards.
SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

# RFC 5737: addresses for documentation; nothing else is reached in there.
ADDRESS_A, ADDRESS_B = "198.51.100.1", "198.51.100.2"
NOBODY = "02:00:00:00:00:77"  # no interface has this address: what is sent there disappears

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


def why_not() -> str:
    """What keeps this machine from making network namespaces; empty when nothing does."""
    if shutil.which("ip") is None:
        return "the program ip (package iproute2) is not there"
    name = f"sysone-try-{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if tried.returncode == 0:
        tried = subprocess.run(["ip", "-n", name, "link", "add", "try0", "type", "veth", "peer", "name", "try1"],
                               capture_output=True, text=True)
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return "" if tried.returncode == 0 else f"network namespaces cannot be made here: {tried.stderr.strip()}"


def _remove_stale() -> None:
    """What a test left that was killed: its process id is in the names."""
    names = os.listdir("/run/netns") if os.path.isdir("/run/netns") else []
    for name in names:
        made_by = re.fullmatch(r"sysone-(?:a|b|try)-(\d+)", name)
        if made_by and not Path(f"/proc/{made_by[1]}").exists():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


class TwoHosts:
    """with TwoHosts() as hosts: … the calling thread, and all that it starts, is on host A meanwhile.

    `on_b` is a command prefix that runs the rest on host B.
    """

    def __init__(self) -> None:
        if reason := why_not():
            pytest.skip(reason)
        _remove_stale()
        self.a, self.b = f"sysone-a-{os.getpid()}", f"sysone-b-{os.getpid()}"
        self.on_b = ("ip", "netns", "exec", self.b)
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)

    def __enter__(self) -> TwoHosts:
        try:
            for name in (self.a, self.b):
                _ip("netns", "add", name)
                _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", self.a, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", self.b)
            for name, address in ((self.a, ADDRESS_A), (self.b, ADDRESS_B)):
                _ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
                _ip("-n", name, "link", "set", "cable", "up")
            handle = os.open(f"/run/netns/{self.a}", os.O_RDONLY)
            self._enter(handle)
            os.close(handle)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._enter(self._home)
        self._remove()

    def unplug(self) -> None:
        _ip("-n", self.b, "link", "set", "cable", "down")

    def plug(self) -> None:
        _ip("-n", self.b, "link", "set", "cable", "up")

    def swallow(self) -> None:
        """Both ends send as before, and nothing arrives: no error tells of it."""
        for name, other in ((self.a, ADDRESS_B), (self.b, ADDRESS_A)):
            _ip("-n", name, "neighbour", "replace", other, "lladdr", NOBODY, "nud", "permanent", "dev", "cable")

    def deliver(self) -> None:
        for name, other in ((self.a, ADDRESS_B), (self.b, ADDRESS_A)):
            _ip("-n", name, "neighbour", "delete", other, "dev", "cable")

    def bytes_on_cable(self) -> int:
        shown = subprocess.run(["ip", "-n", self.b, "-s", "-j", "link", "show", "cable"], capture_output=True, text=True, check=True)
        counts = json.loads(shown.stdout)[0]["stats64"]
        return counts["rx"]["bytes"] + counts["tx"]["bytes"]

    @staticmethod
    def _enter(handle: int) -> None:
        assert _libc.setns(handle, _CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())

    def _remove(self) -> None:
        for name in (self.a, self.b):
            if Path(f"/run/netns/{name}").exists():
                _ip("netns", "delete", name)
