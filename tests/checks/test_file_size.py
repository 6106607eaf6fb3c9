"""scripts/checks/file_size.py.

SPDX-License-Identifier: Apache-2.0
"""

import file_size
import pytest

LONGEST = "x\n" * 600


def test_600_lines_pass(repo):
    assert file_size.faults(repo({"base/a.cc": LONGEST, "scripts/b.py": LONGEST})) == []


@pytest.mark.parametrize("name", ["base/a.h", "base/a.cc", "kernels/cuda/a.cu", "scripts/a.py", "base/CMakeLists.txt"])
def test_601_lines_are_named(repo, name):
    found = file_size.faults(repo({name: LONGEST + "x"}))
    assert found == [f"{name}:601: 601 lines; split it, 600 are the most"]


def test_a_script_is_known_by_its_first_line(repo):
    assert len(file_size.faults(repo({"scripts/setup": "#!/bin/sh\n" + LONGEST}))) == 1


def test_data_and_pages_may_be_longer(repo):
    files = {"base/a.cc": "", "tests/golden/a.json": LONGEST * 2, "README.md": LONGEST * 2, "tests/a.bin": b"\xff\n" * 700}
    assert file_size.faults(repo(files)) == []


def test_an_empty_repository_is_a_fault(repo):
    assert file_size.faults(repo({})) != []
