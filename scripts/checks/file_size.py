#!/usr/bin/python3
"""No source file is above 600 lines: a file is one idea, and one that long holds several.

SPDX-License-Identifier: Apache-2.0
"""

import sys

import repository

MOST_LINES = 600
_SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".cmake", ".js"}


def _is_source(path, content):
    return path.suffix in _SUFFIXES or path.name == "CMakeLists.txt" or content.startswith("#!")


def faults(root):
    found, count = [], 0
    for path in repository.files(root):
        content = repository.text(root / path)
        if content is None or not _is_source(path, content):
            continue
        count += 1
        lines = len(content.splitlines())
        if lines > MOST_LINES:
            found.append(f"{path}:{MOST_LINES + 1}: {lines} lines; split it, {MOST_LINES} are the most")
    return found if count else [f"{root}: no sources were found"]


if __name__ == "__main__":
    sys.exit(repository.run(faults))
