"""scripts/checks/repository.py: the exit code and the output of a check.

SPDX-License-Identifier: Apache-2.0
"""

import pathlib

import repository


def test_faults_are_printed_and_fail(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("sys.argv", ["check", str(tmp_path)])
    assert repository.run(lambda root: [f"{root.name}: one", "two"]) == 1
    assert capsys.readouterr().out == f"{tmp_path.name}: one\ntwo\n"


def test_no_faults_pass(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["check"])
    roots = []
    assert repository.run(lambda root: roots.append(root) or []) == 0
    assert roots == [pathlib.Path(__file__).resolve().parents[2]]
    assert capsys.readouterr().out == "no faults\n"


def test_only_our_own_files_are_listed(repo):
    root = repo({"a/b.h": "", "a/c.cc": "", "build/x.h": "", ".git/y.h": "", ".venv/z.h": "", "third_party/q/w.h": ""})
    assert [str(path) for path in repository.files(root, ".h")] == ["a/b.h"]
    assert [str(path) for path in repository.files(root)] == ["a/b.h", "a/c.cc"]
