"""What scripts/setup says to wrong commands. Its work is seen in every fresh clone; here nothing is installed.

SPDX-License-Identifier: Apache-2.0
"""

import pathlib
import subprocess

import pytest

SETUP = pathlib.Path(__file__).resolve().parents[2] / "scripts/setup"


def run(*options):
    return subprocess.run([SETUP, *options], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("options, fault", [(["--bogus"], "unknown option --bogus"), (["--model"], "--model needs a name")])
def test_wrong_options_end_before_anything_is_done(options, fault):
    process = run(*options)
    assert process.returncode == 1
    assert process.stdout == ""
    assert fault in process.stderr


def test_help_names_every_option():
    process = run("--help")
    assert process.returncode == 0
    for option in ("--test", "--model", "--no-packages"):
        assert option in process.stdout


def test_every_pinned_package_is_pinned_exactly():
    for name in ("requirements-test.txt", "requirements-hub.txt"):
        lines = [line.split("#")[0].strip() for line in (SETUP.parent / name).read_text().splitlines()]
        pins = [line for line in lines if line]
        assert pins
        assert [pin for pin in pins if pin.count("==") != 1] == []
