#!/usr/bin/python3
"""Every path that README.md and ARCHITECTURE.md name exists, and every function is in the file it is said to be in.

What counts as a path: a link's target, or text in backticks that starts with a folder of ours or ends like a source
file (`shm_arena/slot_pool.h`, `slot_pool.h`, `kernels/cpu/`, `base/json.{h,cc}`, `kernels/cpu/*.cc`).
Functions are named behind their file's path, as `path: Name` or `path`: `Name`, `Other`.

SPDX-License-Identifier: Apache-2.0
"""

import itertools
import re
import sys

import repository

PAGES = ("README.md", "ARCHITECTURE.md")
_NEEDED = "ARCHITECTURE.md"

_PATH = r"[\w.{},*-]+(?:/[\w.{},*-]+)*/?"
_SOURCE_NAME = re.compile(r"[\w{},*-]+\.(?:h|cc|cu|cuh|py|cmake|\{[\w,]+\})")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_NAME = r"~?[A-Za-z_][\w:~]*(?:\(\))?"
_IN_ONE = re.compile(rf"({_PATH}):\s?({_NAME})")
_FOLLOWED_BY_NAMES = re.compile(rf"`({_PATH})`:\s*(`{_NAME}`(?:(?:,| and|, and) `{_NAME}`)*)")
# Made by set-up and build, so not there in a fresh clone.
_MADE = ("build", "third_party", ".venv")


def _without_blocks(page):
    """The page with fenced blocks blanked, line numbers kept: commands and drawings name all kinds of things."""
    return re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), page, flags=re.DOTALL | re.MULTILINE)


def _expand(path):
    """a.{h,cc} -> a.h, a.cc"""
    parts = [part.strip("{}").split(",") if part.startswith("{") else [part] for part in re.split(r"(\{[^}]*\})", path)]
    return ["".join(choice) for choice in itertools.product(*parts)]


def _looks_like_ours(token, tops):
    if not re.fullmatch(_PATH, token):
        return False
    first, *rest = token.rstrip("/").split("/")
    is_source = _SOURCE_NAME.fullmatch(token.split("/")[-1]) is not None
    return is_source or (first in tops and (rest or token.endswith("/")))


class _Repository:
    def __init__(self, root):
        self._root = root
        self._files = repository.files(root)
        self.tops = {path.name for path in root.iterdir()} | set(_MADE)

    def matches(self, path):
        """Files (or the folder) that one expanded path names; a bare name may be anywhere."""
        path = path.rstrip("/")
        if "/" not in path:
            return [file for file in self._files if file.match(path)] or list(self._root.glob(path))
        return [found.relative_to(self._root) for found in self._root.glob(path)]

    def path_fault(self, path):
        if path.split("/")[0] in _MADE:
            return None
        missing = [one for one in _expand(path) if not self.matches(one)]
        return f"{', '.join(missing)} does not exist" if missing else None

    def name_fault(self, path, name):
        # Class::Member is found by its last part: headers declare members without the class.
        last = name.removesuffix("()").split("::")[-1]
        for one in _expand(path):
            for file in self.matches(one):
                content = repository.text(self._root / file) if (self._root / file).is_file() else ""
                if content and re.search(rf"(?<![\w]){re.escape(last)}\b", content):
                    return None
        return f"{path} has no {name}"


def _page_faults(ours, page):
    """(position, message) of every fault of one page."""
    for match in _LINK.finditer(page):
        target = match[1].split("#")[0]
        if target and "://" not in target and not target.startswith("mailto:"):
            yield match.start(), ours.path_fault(target)
    for match in re.finditer(r"`([^`\n]+)`", page):
        pair = _IN_ONE.fullmatch(match[1])
        path = pair[1] if pair else match[1]
        if not _looks_like_ours(path, ours.tops):
            continue
        fault = ours.path_fault(path)
        yield match.start(), fault or (ours.name_fault(path, pair[2]) if pair else None)
    for match in _FOLLOWED_BY_NAMES.finditer(page):
        if _looks_like_ours(match[1], ours.tops) and not ours.path_fault(match[1]):
            for name in re.findall(r"`([^`]+)`", match[2]):
                yield match.start(), ours.name_fault(match[1], name)


def faults(root):
    found = [] if (root / _NEEDED).is_file() else [f"{_NEEDED}:1: is missing"]
    ours = _Repository(root)
    for name in PAGES:
        if not (root / name).is_file():
            continue
        page = _without_blocks((root / name).read_text(encoding="utf-8"))
        for position, fault in _page_faults(ours, page):
            if fault:
                found.append(f"{name}:{page.count(chr(10), 0, position) + 1}: {fault}")
    return found


if __name__ == "__main__":
    sys.exit(repository.run(faults))
