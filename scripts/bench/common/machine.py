"""Where a figure was measured: a line that stands above every table, and its parts for the JSON files.

SPDX-License-Identifier: Apache-2.0
"""

import os
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Those that decide which kernels run.
_FLAGS_THAT_MATTER = ("avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16")


def _cpuinfo(key):
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        pairs = (line.partition(":") for line in file)
        return next((value.strip() for name, _, value in pairs if name.strip() == key), "unknown")


def _output(*command):
    try:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def describe():
    flags = _cpuinfo("flags").split()
    compiler = _output("g++", "--version").splitlines()
    return {
        "cpu": f"{_cpuinfo('model name')} (family {_cpuinfo('cpu family')}, model {_cpuinfo('model')})",
        "cores": len(os.sched_getaffinity(0)),
        "flags": [flag for flag in _FLAGS_THAT_MATTER if flag in flags],
        "kernel": platform.release(),
        "compiler": compiler[0] if compiler else "unknown",
        "commit": _output("git", "describe", "--always", "--dirty", "--abbrev=10"),
    }


def line(machine):
    return (f"{machine['cpu']}, {machine['cores']} cores, {' '.join(machine['flags'])}; Linux {machine['kernel']}; "
            f"{machine['compiler']}; sysone {machine['commit']}")
