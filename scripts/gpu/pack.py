"""Programs for a machine that can neither build nor install anything: copied, stripped, with the shared libraries that they need.

What comes with the system (the C and C++ runtimes) or with CUDA is left to that machine: cuBLASLt alone would be hundreds of megabytes.

SPDX-License-Identifier: Apache-2.0
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

# Of the system, and not to be mixed with another one's.
SYSTEM = re.compile(r"(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s))\.so")
CUDA = re.compile(r"lib(cublas|cublasLt|cudart|cuda|nccl|nvrtc|nvidia-ml)\.so")
PROGRAMS = ("sysone", "sysone-api-server", "sysone-intake", "sysone-worker-cuda")


def needed(listing):
    """From what ldd prints: (paths of libraries to take along, names of those that it did not find, CUDA's aside)."""
    take, gone = [], []
    for line in listing.splitlines():
        name, _, rest = line.strip().partition(" => ")
        if not rest or SYSTEM.match(name) or CUDA.match(name):
            continue
        path = rest.split(" (")[0]
        if path.startswith("/"):
            take.append(pathlib.Path(path))
        else:
            gone.append(name)
    return take, gone


def pack(programs, folder):
    """Copies programs to folder/bin and their libraries to folder/lib. Gives the bytes; raises ValueError where a library is not found."""
    bin_, lib = folder / "bin", folder / "lib"
    for place in (bin_, lib):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
    for program in programs:
        shutil.copy(program, bin_)
        take, gone = needed(subprocess.run(["ldd", program], stdout=subprocess.PIPE, text=True, check=True).stdout)
        if gone:
            raise ValueError(f"{program.name} needs {', '.join(gone)}, which is not here")
        for library in take:
            shutil.copy(library, lib)
    files = [*bin_.iterdir(), *lib.iterdir()]
    for file in files:
        subprocess.run(["strip", "--strip-unneeded", file], check=True)
    return sum(file.stat().st_size for file in files)


def cuda_folders(toolkit):
    """Folders of this machine's cuBLASLt and NCCL: the toolkit's, and those of Python's packages."""
    places = [toolkit / name for name in ("lib64", "lib", "targets/x86_64-linux/lib")] if toolkit else []
    # Without importing anything: folders of the interpreter that comes first in PATH, and of this one.
    python = shutil.which("python3") or sys.executable
    done = subprocess.run([python, "-c", "import os, sys; print(os.pathsep.join(filter(None, sys.path)))"], stdout=subprocess.PIPE, text=True)
    for place in filter(None, done.stdout.strip().split(os.pathsep)):
        places += sorted(pathlib.Path(place).glob("nvidia/*/lib"))
    found = [place for place in places if any(place.glob("libcublasLt.so.*")) or any(place.glob("libnccl.so.*"))]
    return list(dict.fromkeys(str(place) for place in found))
