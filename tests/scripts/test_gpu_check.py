"""scripts/gpu_check without a device: its steps' time limits, the report's rules, what the roofline makes of a trace.

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import xml.etree.ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from gpu import pack, report, roofline, shape_model  # noqa: E402


@pytest.fixture(scope="module")
def program():
    loader = importlib.machinery.SourceFileLoader("gpu_check", str(ROOT / "scripts/gpu_check"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def document(**changes):
    step = {"name": "a", "state": "passed", "seconds": 1.0, "limit_s": 2.0, "command": "a", "log": "a.log", "reason": ""}
    row = {"model": "m", "dtype": "bfloat16", "tokens": 60, "rounds": 5, "recorded_ms": 0.7, "recorded_p99_ms": 0.8, "single_ms": 1.5, "single_p99_ms": 1.6}
    return {"began": "now", "seconds": 1.0, "commit": "c", "device": "<d>", "driver": "1", "cuda": "13.0", "dry_run": False, "steps": [step], "passes": [row],
            "http": [], "verdict": "passed"} | changes


def test_a_right_report_has_no_faults():
    assert report.faults(document()) == []


@pytest.mark.parametrize("changes", [
    {"seconds": "1"}, {"seconds": float("nan")}, {"seconds": -1.0}, {"extra": 1}, {"verdict": "failed"}, {"steps": [{"name": "a"}]},
    {"steps": [{**document()["steps"][0], "state": "well"}]}, {"steps": [{**document()["steps"][0], "state": "failed"}]},
    {"passes": [{**document()["passes"][0], "tokens": 60.5}]}, {"passes": [{**document()["passes"][0], "recorded_ms": float("inf")}]},
    {"http": [{"tokens": 60}]},
])
def test_a_wrong_report_has_faults(changes):
    assert report.faults(document(**changes))


def test_a_report_without_a_field_has_faults():
    for name in document():
        assert report.faults({key: value for key, value in document().items() if key != name}), name


def test_what_failed_decides_before_what_was_skipped():
    def of(*states):
        return report.verdict([{"state": state} for state in states])
    assert of("passed", "passed") == "passed"
    assert of("passed", "skipped") == "incomplete"
    assert of("skipped", "failed") == "failed"
    assert of("timed out", "passed") == "failed"
    assert of() == "incomplete"


def test_the_plot_is_an_svg_with_or_without_passes():
    for passes in ([], document()["passes"], [{**document()["passes"][0], "floor_ms": 0.2, "aim_ms": 0.8}] * 4):
        xml.etree.ElementTree.fromstring(report.plot(document(passes=passes)))


def test_a_step_over_its_limit_is_ended_and_says_so(program, tmp_path):
    step = program.Step("slow", 0.3, ["/bin/sh", "-c", "echo begun; read never < /dev/zero; cat /dev/zero > /dev/null"])
    entry = program.run(step, tmp_path / "slow.log", 100, has_device=True)
    assert entry["state"] == "timed out" and entry["seconds"] < 60
    assert program.run(program.Step("next", 10, ["/bin/true"]), tmp_path / "next.log", 100, has_device=True)["state"] == "passed"


def test_a_step_that_fails_tells_its_last_line(program, tmp_path):
    entry = program.run(program.Step("bad", 10, ["/bin/sh", "-c", "echo first; echo last; exit 5"]), tmp_path / "bad.log", 100, has_device=True)
    assert entry["state"] == "failed" and entry["reason"] == "exit status 5: last"


@pytest.mark.parametrize("arguments, device, left, reason", [
    (dict(missing="no tool"), True, 100, "no tool"), ({}, False, 100, "needs a device"),
])
def test_a_step_that_cannot_be_done_is_skipped_with_its_reason(program, tmp_path, arguments, device, left, reason):
    entry = program.run(program.Step("a", 10, ["/bin/true"], **arguments), tmp_path / "a.log", left, has_device=device)
    assert (entry["state"], entry["reason"]) == ("skipped", reason)


def test_a_step_that_the_whole_has_no_time_for_is_cut_and_no_failure(program, tmp_path):
    late = program.run(program.Step("a", 10, ["/bin/true"]), tmp_path / "a.log", 1, has_device=True)
    assert (late["state"], late["reason"]) == ("cut", "no time was left")
    step = program.Step("slow", 10000, ["/bin/sh", "-c", "echo begun; cat /dev/zero > /dev/null"])
    entry = program.run(step, tmp_path / "slow.log", 5, has_device=True)
    assert entry["state"] == "cut" and "of its 10000" in entry["reason"]
    assert report.verdict([entry]) == report.verdict([late]) == "incomplete"


def test_a_program_that_cannot_be_run_fails_its_step_alone(program, tmp_path):
    (tmp_path / "foreign").write_bytes(b"\x7fELF of another machine")
    (tmp_path / "foreign").chmod(0o755)
    entry = program.run(program.Step("a", 10, [tmp_path / "foreign"]), tmp_path / "a.log", 100, has_device=True)
    assert entry["state"] == "failed" and "format" in entry["reason"]


def test_each_report_is_whole_however_far_it_went(program, tmp_path):
    (tmp_path / "passes.log").write_text('no JSON\n{"model": "m", "dtype": "bfloat16", "tokens": 60, "rounds": 5, "recorded_ms": 0.7, "recorded_p99_ms": 0.8,'
                                         ' "single_ms": 1.5, "single_p99_ms": 1.6}\n{"model": "m", "dt', encoding="utf-8")
    steps = []
    for _ in range(2):
        steps.append(document()["steps"][0])
        program.write(document(steps=steps), tmp_path, [tmp_path / "passes.log", tmp_path / "none.log"], 0)
        written = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
        assert report.faults(written) == [] and len(written["steps"]) == len(steps) and len(written["passes"]) == 1
        assert "<svg" in (tmp_path / "passes.svg").read_text(encoding="utf-8")


def test_a_pack_takes_libraries_but_the_system_s_and_cuda_s():
    listing = """\tlinux-vdso.so.1 (0x7ff)
\tlibzmq.so.5 => /lib/x/libzmq.so.5 (0x7f)
\tlibcublasLt.so.13 => not found
\tlibnccl.so.2 => /usr/local/cuda/lib/libnccl.so.2 (0x7f)
\tlibstdc++.so.6 => /lib/x/libstdc++.so.6 (0x7f)
\tlibcom_err.so.2 => /lib/x/libcom_err.so.2 (0x7f)
\tlibc.so.6 => /lib/x/libc.so.6 (0x7f)
\tlibgone.so.1 => not found
\t/lib64/ld-linux-x86-64.so.2 (0x7f)
"""
    assert pack.needed(listing) == ([pathlib.Path("/lib/x/libzmq.so.5"), pathlib.Path("/lib/x/libcom_err.so.2")], ["libgone.so.1"])


def test_packed_programs_run_with_their_own_libraries_and_nothing_is_built(program, tmp_path):
    pack.pack([pathlib.Path("/usr/bin/env")], tmp_path)
    options = argparse.Namespace(models=["qwen3-0.6b"], rounds=1, out=tmp_path, dry_run=False, targets=None, packed=tmp_path, pack=None)
    todo = {step.name: step for step in program.steps(options, tmp_path / "unused", "90-real", None)}
    assert not {"configure", "build"} & set(todo) and todo["http"].missing and pathlib.Path(todo["conformance"].command[0]).parent == tmp_path / "bin"
    assert todo["conformance"].environment["LD_LIBRARY_PATH"].startswith(str(tmp_path / "lib"))
    assert subprocess.run([tmp_path / "bin/env"], stdout=subprocess.DEVNULL).returncode == 0


def test_a_program_that_was_not_built_is_skipped(program, tmp_path):
    entry = program.run(program.Step("a", 10, [tmp_path / "gone"]), tmp_path / "a.log", 100, has_device=True)
    assert (entry["state"], entry["reason"]) == ("skipped", "gone was not built")


def test_all_limits_together_are_below_eight_minutes_of_work(program):
    options = argparse.Namespace(models=["qwen3-0.6b", "qwen2.5-3b"], rounds=1, out=pathlib.Path("/x"), dry_run=False, targets=None, packed=None, pack=None)
    todo = program.steps(options, pathlib.Path("/x"), "90-real", None)
    assert sum(step.limit_s for step in todo) <= program.WHOLE_S - 5 and program.WHOLE_S < 480
    assert len({step.name for step in todo}) == len(todo)


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there is a device")
def test_without_a_device_it_says_so_with_its_own_status(tmp_path):
    done = subprocess.run([ROOT / "scripts/gpu_check", "--out", tmp_path], capture_output=True, text=True, env={**os.environ, "PATH": "/usr/bin:/bin"})
    assert done.returncode == 3 and "no NVIDIA device" in done.stderr


def operation(name, bytes_, flops, launches, in_pass=True):
    return {"name": name, "in_pass": in_pass, "bytes": bytes_, "memory_bytes": bytes_ / 2, "flops": flops, "host_bytes": 0, "copies": 0,
            "launches": [{"address": 16, "blocks": 4, "threads": 128, "shared": 0}] * launches}


def test_inner_layers_are_counted_by_what_the_third_one_adds():
    names = {16: "Kernel"}
    two = roofline.totals({"operations": [operation("embed", 10, 0, 1), operation("layer", 100, 7, 2), operation("layer", 100, 7, 2)]}, names)
    three = roofline.totals({"operations": [operation("embed", 10, 0, 1), *[operation("layer", 100, 7, 2)] * 3]}, names)
    whole = roofline.whole_model(two, three, 28)
    assert (whole["embed"]["bytes"], whole["layer"]["bytes"], whole["layer"]["launches"]) == (10, 2800, 56)
    assert whole["layer"]["kernels"] == [{"kernel": "Kernel", "threads": 128, "blocks": 4, "shared": 0}]
    with pytest.raises(ValueError):
        roofline.whole_model(two, roofline.totals({"operations": [operation("other", 1, 1, 1)]}, names), 28)


def test_the_floor_is_the_larger_of_the_two_times_of_each_operation():
    bandwidth, arithmetic = roofline.BANDWIDTH, roofline.ARITHMETIC
    assert roofline.seconds({"bytes": bandwidth, "flops": 0}) == 1
    assert roofline.seconds({"bytes": bandwidth, "flops": 3 * arithmetic}) == 3
    two = roofline.totals({"operations": [operation("layer", bandwidth / 1e3, 0, 9)] * 2}, {16: "K"})
    three = roofline.totals({"operations": [operation("layer", bandwidth / 1e3, 0, 9)] * 3}, {16: "K"})
    row = roofline.summary("qwen3-0.6b", 60, 64, two, three)
    assert row["floor_ms"] == pytest.approx(28) and row["launches"] == 252 and row["launches_a_layer"] == 9
    assert row["recorded_ms"] == pytest.approx(28 + 252 * 1e3 * roofline.GRAPH_GAP + 1e3 * roofline.ENDS)
    assert row["cached_floor_ms"] == pytest.approx(14)
    assert roofline.floor_ms(row, bandwidth / 2, arithmetic) == pytest.approx(28)


def test_documents_one_behind_the_other_are_read():
    assert roofline.traces('{"a": 1}\n{"b": [2]}\n') == [{"a": 1}, {"b": [2]}]


def test_a_made_model_has_the_tensors_that_its_header_promises(tmp_path):
    folder = shape_model.make("tiny", tmp_path / "model")
    data = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8: 8 + length])
    assert len(data) == 8 + length + max(entry["data_offsets"][1] for entry in header.values())
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert header["model.layers.3.mlp.down_proj.weight"]["shape"] == [config["hidden_size"], config["intermediate_size"]]
    begin = 8 + length + header["model.norm.weight"]["data_offsets"][0]
    assert data[begin: begin + 2] == b"\x80\x3f"  # 1.0
