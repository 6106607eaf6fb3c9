#!/usr/bin/python3
"""Dependencies point one way, and a third-party header appears in one file or a listed few.

base <- shm_arena, kernels, model, link <- api_server, router, worker; the last three never include each other. Tests may
include whatever they test.

SPDX-License-Identifier: Apache-2.0
"""

import fnmatch
import re
import sys

import repository

_MIDDLE = {"shm_arena", "kernels", "model", "link"}
_MAY_INCLUDE = {
    "base": {"base"},
    **{layer: {"base", layer} for layer in _MIDDLE},
    **{process: {"base", process} | _MIDDLE for process in ("api_server", "router", "worker")},
}

# Third-party header -> the files that may include it. A new library gets its line here, with as few files as can be.
_THIRD_PARTY = [
    ("httplib.h", ["api_server/http_codec.cc", "api_server/http_server.cc"]),
    ("zlib.h", ["api_server/inflate.cc"]),
    ("Python.h", ["api_server/chat_template.cc"]),
    ("zmq.h", ["shm_arena/doorbell.cc", "link/link_keys.cc", "link/link_socket.cc"]),
    ("boost/interprocess/*", ["shm_arena/segment.cc"]),
    ("simdjson.h", ["base/json.cc"]),
    ("dnnl.h*", ["kernels/cpu/*.cc"]),
    ("oneapi/dnnl/*", ["kernels/cpu/*.cc"]),
    ("omp.h", ["kernels/cpu/onednn_matmul.cc"]),
    ("hwy/*", ["kernels/cpu/*"]),
    ("immintrin.h", ["kernels/cpu/*"]),
    ("mpi.h", ["worker/comm/*.cc"]),
    ("nccl.h", ["worker/comm/nccl_collective.cc"]),
    ("cu*.h", ["kernels/cuda/*", "worker/comm/nccl_collective.cc"]),
    ("ptx.h", ["kernels/cuda/*"]),  # ours, but the tests put another one in its place
]

# Headers of the C library and of Linux; C++ standard headers are known by having no suffix.
_SYSTEM_FOLDERS = ("sys/", "netinet/", "arpa/", "linux/", "net/")
_SYSTEM = set(
    """dirent.h dlfcn.h errno.h fcntl.h fenv.h float.h ftw.h getopt.h glob.h inttypes.h limits.h locale.h malloc.h
    math.h netdb.h poll.h pthread.h sched.h semaphore.h signal.h spawn.h stdarg.h stddef.h stdint.h stdio.h stdlib.h
    string.h strings.h syslog.h termios.h time.h unistd.h utime.h wait.h""".split()
)

_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def _is_third_party(header):
    return any(fnmatch.fnmatch(header, pattern) for pattern, _ in _THIRD_PARTY)


def _own_fault(root, folder, header):
    target = header.split("/")[0] if "/" in header else None
    if target is None or not (root / header).is_file():
        return f'"{header}" is no file of the repository; write the path from its top'
    if folder in _MAY_INCLUDE and target not in _MAY_INCLUDE[folder]:
        return f"{folder}/ must not include {target}/; it may include {', '.join(sorted(_MAY_INCLUDE[folder]))}"
    return None


def _other_fault(path, header):
    if "." not in header or header in _SYSTEM or header.startswith(_SYSTEM_FOLDERS):
        return None
    for pattern, allowed in _THIRD_PARTY:
        if fnmatch.fnmatch(header, pattern):
            if any(fnmatch.fnmatch(str(path), place) for place in allowed):
                return None
            return f"<{header}> belongs in {', '.join(allowed)} alone"
    return f"<{header}> is not known; add it to the table of scripts/checks/layers.py, with the files that may use it"


def faults(root):
    found = []
    sources = [path for path in repository.files(root, ".h", ".cc", ".cu", ".cuh") if path.parts[0] != "tests"]
    if not sources:
        return [f"{root}: no sources were found"]
    for path in sources:
        if len(path.parts) == 1 or path.parts[0] not in _MAY_INCLUDE:
            found.append(f"{path}:1: sources belong in {', '.join(_MAY_INCLUDE)} or tests")
            continue
        content = (root / path).read_text(encoding="utf-8")
        for match in _INCLUDE.finditer(content):
            # Some libraries are included with quotes.
            own = match[1] == '"' and not _is_third_party(match[2])
            fault = _own_fault(root, path.parts[0], match[2]) if own else _other_fault(path, match[2])
            if fault:
                found.append(f"{path}:{content.count(chr(10), 0, match.start(2)) + 1}: {fault}")
    return found


if __name__ == "__main__":
    sys.exit(repository.run(faults))
