#!/usr/bin/python3
"""The repository speaks of itself alone: no folder of somebody's machine, no address or host of a private network.

Hosts are judged by a list of those that may be named, so that none of the others has to be written down here.

SPDX-License-Identifier: Apache-2.0
"""

import re
import sys

import repository

_HOSTS = {
    "localhost",
    "127.0.0.1",
    "[::1]",
    "0.0.0.0",
    "huggingface.co",
    "www.apache.org",  # the licence
    "www.w3.org",
    "json-schema.org",
    "spec.openapis.org",
    "github.com",
}
# RFC 2606, and the single letters of tests.
_RESERVED = re.compile(r"(?:.*\.)?(?:example(?:\.com|\.org|\.net)?|test|invalid)$|[a-z]$")
_URL = re.compile(r"\b(?:https?|wss?|ftp)://(?:[^\s/@\"'`<>]*@)?(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9.-]+)(?=[:/\s\"'`<>)\],;?#\\]|$)")
# The brackets keep the patterns from matching themselves.
_MACHINE_PATHS = re.compile(r"(?<![\w.$}/-])/(?:wor[k]|roo[t]|hom[e]/(?!user/)\w+|Use[r]s/\w+|workspac[e])/[\w.-]+|\.\./share[d]/")
_PRIVATE = re.compile(r"(?<![\d.])(?:10\.\d+|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.\d+\.\d+(?![\d.])")
_MOST_BYTES = 1 << 20  # larger files are data


def _line_faults(line):
    for match in _URL.finditer(line):
        host = match[1].lower().rstrip(".")
        if host not in _HOSTS and not _RESERVED.match(host):
            yield f"names the host {host}; leave it out, or add it to the list of scripts/checks/words.py"
    for match in _MACHINE_PATHS.finditer(line):
        yield f"names a folder of one machine, {match[0]}"
    for match in _PRIVATE.finditer(line):
        yield f"names an address of a private network, {match[0]}"


def faults(root):
    found, count = [], 0
    for path in repository.files(root):
        if (root / path).is_symlink() or (root / path).stat().st_size > _MOST_BYTES:
            continue
        content = repository.text(root / path)
        if content is None:
            continue
        count += 1
        for number, line in enumerate(content.splitlines(), 1):
            found += [f"{path}:{number}: {fault}" for fault in _line_faults(line)]
    return found if count else [f"{root}: no files were found"]


if __name__ == "__main__":
    sys.exit(repository.run(faults))
