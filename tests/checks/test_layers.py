"""scripts/checks/layers.py: it passes what the layers allow, and fails on each kind of breach.

SPDX-License-Identifier: Apache-2.0
"""

import layers
import pytest

LOWER = {f"{folder}/{folder}.h": "" for folder in ("base", "shm_arena", "kernels", "model", "api_server", "router", "worker")}


@pytest.mark.parametrize("folder", ["api_server", "router", "worker"])
def test_a_process_may_include_all_lower_layers_and_itself(repo, folder):
    wanted = ["base", "shm_arena", "kernels", "model", folder]
    text = "".join(f'#include "{name}/{name}.h"\n' for name in wanted) + "#include <vector>\n#include <sys/mman.h>\n"
    assert layers.faults(repo({**LOWER, f"{folder}/main.cc": text})) == []


@pytest.mark.parametrize(
    "folder, other",
    [
        ("base", "model"),
        ("model", "kernels"),
        ("kernels", "shm_arena"),
        ("shm_arena", "worker"),
        ("api_server", "worker"),
        ("worker", "router"),
        ("router", "api_server"),
    ],
)
def test_an_include_against_the_direction_is_named_with_its_line(repo, folder, other):
    found = layers.faults(repo({**LOWER, f"{folder}/bad.cc": f'// top\n\n  #  include "{other}/{other}.h"\n'}))
    assert len(found) == 1
    assert found[0].startswith(f"{folder}/bad.cc:3: {folder}/ must not include {other}/")


@pytest.mark.parametrize("header", ["base.h", "../base/base.h", "base/missing.h"])
def test_an_include_that_is_not_a_path_from_the_top_is_refused(repo, header):
    found = layers.faults(repo({**LOWER, "model/bad.cc": f'#include "{header}"\n'}))
    assert len(found) == 1
    assert "is no file of the repository" in found[0]


@pytest.mark.parametrize(
    "header, right, wrong",
    [
        ("zmq.h", "shm_arena/doorbell.cc", "shm_arena/doorbell.h"),
        ("simdjson.h", "base/json.cc", "api_server/validation.cc"),
        ("boost/interprocess/mapped_region.hpp", "shm_arena/segment.cc", "router/main.cc"),
        ("hwy/highway.h", "kernels/cpu/attention-inl.h", "kernels/backend.h"),
        ("cuda_runtime.h", "kernels/cuda/backend.cc", "kernels/cpu/backend.cc"),
        ("dnnl.hpp", "kernels/cpu/matmul.cc", "worker/main.cc"),
    ],
)
def test_a_third_party_header_stays_in_its_file(repo, header, right, wrong):
    text = f"#include <{header}>\n"
    assert layers.faults(repo({right: text})) == []
    found = layers.faults(repo({wrong: text}))
    assert len(found) == 1
    assert found[0].startswith(f"{wrong}:1: <{header}> belongs in ")


def test_quotes_do_not_hide_a_third_party_header(repo):
    text = '#include "hwy/highway.h"\n'
    assert layers.faults(repo({"kernels/cpu/row_kernels.cc": text})) == []
    assert "belongs in kernels/cpu/* alone" in layers.faults(repo({"worker/row.cc": text}))[0]


def test_a_library_that_is_not_listed_is_refused(repo):
    found = layers.faults(repo({"base/log.cc": "#include <spdlog/spdlog.h>\n"}))
    assert len(found) == 1
    assert "<spdlog/spdlog.h> is not known" in found[0]


def test_a_source_outside_the_layers_is_refused(repo):
    assert len(layers.faults(repo({"util/misc.cc": "", "main.cc": ""}))) == 2


def test_tests_and_built_files_are_left_alone(repo):
    text = '#include "worker/worker.h"\n#include <httplib.h>\n'
    assert layers.faults(repo({**LOWER, "tests/system/a_test.cc": text, "build/release/x.cc": text})) == []


def test_an_empty_repository_is_a_fault(repo):
    assert layers.faults(repo({})) != []
