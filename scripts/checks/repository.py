"""What the repository checks share: which files there are, and how a check reports.

A check is a module with `faults(root)`, a list of messages "path:line: what is wrong and what to change".

SPDX-License-Identifier: Apache-2.0
"""

import os
import pathlib
import sys

# Made by set-up and build, or git's own.
_NOT_OURS = {".git", ".venv", "build", "third_party", "__pycache__", ".pytest_cache"}


def files(root: pathlib.Path, *suffixes: str):
    """Our files below `root`, sorted, as paths relative to it; with these suffixes, or all when none is given."""
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - _NOT_OURS)
        # Where a checkout shares its history with another one, .git is a file.
        found += [(pathlib.Path(folder) / name).relative_to(root) for name in sorted(names) if name != ".git"]
    return [path for path in found if not suffixes or path.suffix in suffixes]


def text(path: pathlib.Path):
    """The file's text, or None when it is not UTF-8 text."""
    try:
        content = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in content else content


def run(check) -> int:
    """Runs `check` over the repository (or the folder given as argument); prints its faults; the exit code."""
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    found = check(root)
    print("\n".join(found) if found else "no faults")
    return 1 if found else 0
