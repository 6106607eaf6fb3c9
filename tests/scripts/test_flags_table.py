"""scripts/flags_table with a stand-in for the program.

SPDX-License-Identifier: Apache-2.0
"""

import pathlib
import subprocess

import pytest

FLAGS_TABLE = pathlib.Path(__file__).resolve().parents[2] / "scripts/flags_table"
PAGE = "# Title\n<!-- flags:begin -->\n{}<!-- flags:end -->\nEnd\n"


@pytest.fixture
def run(tmp_path):
    """run(page, *options): the process, and the page as it is afterwards."""
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\n[ "$*" = "flags --markdown" ] && echo "| \\`--port\\` |"\n')
    program.chmod(0o755)

    def go(page, *options):
        (tmp_path / "page.md").write_text(page)
        command = [FLAGS_TABLE, "--program", program, "--page", tmp_path / "page.md", *options]
        process = subprocess.run(command, capture_output=True, text=True)
        return process, (tmp_path / "page.md").read_text()

    return go


RIGHT = PAGE.format("| `--port` |\n")


@pytest.mark.parametrize("stale", ["", "| `--old` |\n"])
def test_a_stale_table_is_written_anew(run, stale):
    process, page = run(PAGE.format(stale))
    assert process.returncode == 0
    assert page == RIGHT


def test_the_check_passes_the_right_table(run):
    process, page = run(RIGHT, "--check")
    assert process.returncode == 0
    assert page == RIGHT


def test_the_check_fails_on_a_stale_table_and_shows_the_difference(run):
    stale = PAGE.format("| `--old` |\n")
    process, page = run(stale, "--check")
    assert process.returncode == 1
    assert "-| `--old` |\n+| `--port` |" in process.stdout
    assert page == stale


@pytest.mark.parametrize("page", ["no markers", RIGHT + RIGHT, "<!-- flags:end -->\n<!-- flags:begin -->\n"])
def test_a_page_without_its_markers_is_an_error(run, page):
    process, after = run(page)
    assert process.returncode == 1
    assert "must hold" in process.stderr
    assert after == page


def test_a_program_that_fails_is_an_error(run):
    process, _ = run(RIGHT, "--program", "/bin/false")
    assert process.returncode == 1
