"""cmake/cuda.cmake: what a configuration does with CUDA, without it, and with an nvcc that does not work.

SPDX-License-Identifier: Apache-2.0
"""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
_PROJECT = f"""
cmake_minimum_required(VERSION 3.25)
project(probe LANGUAGES C CXX)
include({ROOT}/cmake/sysone.cmake)
include({ROOT}/cmake/cuda.cmake)
file(WRITE ${{CMAKE_BINARY_DIR}}/found "${{SYSONE_CUDA_FOUND}}")
"""
# nvcc where a machine may have it, so that a test may hide it.
_PLACES = [folder for folder in ["/usr/local/cuda/bin", *os.environ["PATH"].split(":")] if os.path.exists(f"{folder}/nvcc")]


@pytest.fixture
def configure(tmp_path):
    """configure(*options, nvcc=TEXT): output, exit status and whether CUDA was found, with TEXT as the only nvcc or with none."""
    def run(*options, nvcc=None):
        source, tools = tmp_path / "source", tmp_path / "toolkit" / "bin"
        source.mkdir()
        tools.mkdir(parents=True)
        (source / "CMakeLists.txt").write_text(_PROJECT, encoding="utf-8")
        if nvcc is not None:
            (tools / "nvcc").write_text(nvcc, encoding="utf-8")
            (tools / "nvcc").chmod(0o755)
        hidden = ";".join(_PLACES)
        command = ["cmake", "-G", "Ninja", "-S", str(source), "-B", str(tmp_path / "build"), f"-DCMAKE_PROGRAM_PATH={tools}",
                   f"-DCMAKE_IGNORE_PATH={hidden}", *options]
        environment = {name: value for name, value in os.environ.items() if name not in ("CUDA_HOME", "CUDACXX", "CUDA_PATH")}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
        found = tmp_path / "build" / "found"
        return done.stdout + done.stderr, done.returncode, found.read_text(encoding="utf-8") if found.exists() else None
    return run


def test_without_nvcc_it_goes_on_and_says_so(configure):
    output, status, found = configure()
    assert (status, found) == (0, "FALSE"), output
    assert "GPU programs are not built: no nvcc" in output


def test_off_is_off(configure):
    output, status, found = configure("-DSYSONE_CUDA=OFF")
    assert (status, found) == (0, "FALSE"), output
    assert "GPU programs are not built: SYSONE_CUDA is OFF" in output


def test_on_without_nvcc_is_an_error(configure):
    output, status, found = configure("-DSYSONE_CUDA=ON")
    assert status != 0 and found is None, output
    assert "SYSONE_CUDA is ON, but no nvcc" in output


def test_an_nvcc_that_does_not_start_is_passed_over(configure):
    output, status, found = configure(nvcc="#!/bin/sh\nexit 3\n")
    assert (status, found) == (0, "FALSE"), output
    assert "GPU programs are not built" in output and "nvcc" in output


@pytest.mark.skipif(not os.path.exists("/usr/local/cuda/bin/nvcc"), reason="needs a toolkit in /usr/local/cuda")
def test_an_nvcc_that_cannot_compile_is_passed_over(configure):
    real = "/usr/local/cuda/bin/nvcc"
    broken = f'#!/bin/sh\ncase "$*" in *--version*|*--list-gpu-arch*|*dryrun*) exec {real} "$@";; esac\necho broken >&2\nexit 1\n'
    output, status, found = configure(nvcc=broken)
    assert (status, found) == (0, "FALSE"), output
    assert "cannot compile" in output


def test_the_launcher_keeps_what_the_assembler_says_and_passes_on_the_rest(tmp_path):
    said = "ptxas info    : Used 10 registers\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\nwarning: real\n"
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\nprintf '%s' '{said}' >&2\nexit 7\n", encoding="utf-8")
    compiler.chmod(0o755)
    done = subprocess.run([ROOT / "cmake/nvcc_launcher", compiler, "-c", "a.cu", "-o", tmp_path / "a.o"], capture_output=True, text=True)
    assert done.returncode == 7
    assert done.stderr == "warning: real\n"
    assert (tmp_path / "a.o.ptxas").read_text(encoding="utf-8") == said
