#!/usr/bin/python3
"""Only the GPU's targets see CUDA's headers: what the compiler read for every object file of a build tells.

    scripts/checks/cuda_headers.py build/release

An object belongs to the GPU where its target has "cuda" in its name. The host emulation's headers of the same names are files
of this repository and no CUDA.

SPDX-License-Identifier: Apache-2.0
"""

import pathlib
import re
import subprocess
import sys

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_CUDA = re.compile(r"/(cuda|cublas|nccl|driver_types|device_launch)[^/]*\.h(pp)?$")
_TARGET = re.compile(r"/CMakeFiles/([^/]+)\.dir/")


def headers_of(listing):
    """Object -> the files that were read for it, from the text of `ninja -t deps`, but for objects that are no more."""
    found, current = {}, []
    for line in listing.splitlines():
        if ": #deps " in line:
            current = []
            if "(VALID)" in line:
                found[line.split(":")[0]] = current
        elif line.startswith(" "):
            current.append(line.strip())
    return found


def faults(objects):
    found = []
    for name, headers in sorted(objects.items()):
        target = _TARGET.search("/" + name)
        if target and "cuda" in target[1]:
            continue
        seen = [header for header in headers if _CUDA.search(header) and not header.startswith(("../", f"{_ROOT}/"))]
        if seen:
            found.append(f"{name}: reads {seen[0]}, a header of CUDA; only targets with cuda in their names may")
    return found


def main(build):
    listing = subprocess.run(["ninja", "-C", build, "-t", "deps"], stdout=subprocess.PIPE, text=True, check=True).stdout
    objects = headers_of(listing)
    found = faults(objects) if objects else [f"{build}: nothing was built there yet"]
    print("\n".join(found) if found else f"no faults in {len(objects)} objects")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
