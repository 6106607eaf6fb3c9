"""scripts/checks/words.py. Forbidden words are put together here, so that this file may stand in the repository.

SPDX-License-Identifier: Apache-2.0
"""

import pytest
import words

HTTP = "http" + "://"
HOME = "/" + "home/"
PRIVATE = "192." + "168.1.20"


@pytest.mark.parametrize(
    "line",
    [
        f"curl {HTTP}localhost:8000/v1/models",
        f"{HTTP}127.0.0.1:0 and {HTTP}[::1]:80/",
        "https" + "://huggingface.co/Qwen",
        f'origin = "{HTTP}app.example.com"',
        f'Format("{HTTP}%s:%d or {HTTP}[%s]:%d")',
        "~/.cache/sysone/models",
        "$HOME/work/me",
        "${ROOT}/work/me",
        "version 10.0.1 and 1.10.0.1.2",
        "10.1",
        "a/root/thing",
        f"{HOME}user/notes.txt",
    ],
)
def test_general_words_pass(repo, line):
    assert words.faults(repo({"README.md": line})) == []


@pytest.mark.parametrize(
    "line, fault",
    [
        (f"{HTTP}registry.somewhere.net/simple", "the host registry.somewhere.net"),
        ("https" + "://user:secret@mirror.somewhere.org/x", "the host mirror.somewhere.org"),
        (f"see {HOME}anna/src", f"one machine, {HOME}anna/src"),
        ("cd /" + "work/main", "one machine, /" + "work/main"),
        ("cd /" + "root/.cache", "one machine, /" + "root/.cache"),
        ("see .." + "/shared/DESIGN.md", "one machine"),
        (f"bind {PRIVATE}:80", f"a private network, {PRIVATE}"),
    ],
)
def test_words_of_one_machine_are_named_with_their_line(repo, line, fault):
    found = words.faults(repo({"base/a.cc": f"// first\n// {line}\n"}))
    assert len(found) == 1
    assert found[0].startswith("base/a.cc:2: names ")
    assert fault in found[0]


def test_binary_files_are_skipped_and_an_empty_repository_is_a_fault(repo):
    assert words.faults(repo({})) != []
    assert words.faults(repo({"a.bin": b"\xff\xfe /" + b"root/x", "b.md": "fine"})) == []
