"""scripts/gpu_resources: the parser on what nvcc 13.0 printed, the occupancy against CUDA's own, and the verdict.

SPDX-License-Identifier: Apache-2.0
"""

import importlib.machinery
import importlib.util
import itertools
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from gpu import occupancy, ptxas  # noqa: E402

PRINTED = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN36_GLOBAL__N__9c8fae87_4_a_cu_a245543e1KI13__nv_bfloat16EEvPfi' for 'sm_80'
ptxas info    : Function properties for _ZN36_GLOBAL__N__9c8fae87_4_a_cu_a245543e1KI13__nv_bfloat16EEvPfi
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 364 bytes cmem[0]
ptxas info    : Compile time = 4.556 ms
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN6sysone5SpillILi4EEEvPf' for 'sm_90'
ptxas info    : Function properties for _ZN6sysone5SpillILi4EEEvPf
    304 bytes stack frame, 76 bytes spill stores, 80 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers, 304 bytes cumulative stack size, 2048 bytes smem
ptxas info    : Function properties for _ZN6sysone6HelperEf
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
"""


@pytest.fixture(scope="module")
def program():
    loader = importlib.machinery.SourceFileLoader("gpu_resources", str(ROOT / "scripts/gpu_resources"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_registers_shared_memory_and_spills_are_read():
    first, second = ptxas.parse(PRINTED)
    assert (first["arch"], first["registers"], first["shared"], first["stack"], first["spilled"]) == (80, 10, 0, 0, 0)
    assert (second["arch"], second["registers"], second["shared"], second["stack"], second["spilled"]) == (90, 255, 2048, 304, 156)


def test_a_kernel_of_which_nothing_is_said_is_an_error():
    with pytest.raises(ValueError, match="Spill"):
        ptxas.parse(PRINTED.replace("Used 255 registers", "Used none"))


def test_names_are_those_that_people_write():
    symbols = [kernel["symbol"] for kernel in ptxas.parse(PRINTED)]
    assert list(ptxas.demangled(symbols).values()) == ["K<bf16>", "Spill<4>"]
    assert ptxas.short("void sysone::(anonymous namespace)::Kernel<float, (sysone::Encoding)2, (int)4>(float*, int)") == "Kernel<float, 2, 4>"


def made(program, tmp_path, text, launched=None):
    folder = tmp_path / "kernels/cuda/CMakeFiles/sysone_cuda.dir"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.cu.o.ptxas").write_text(text, encoding="utf-8")
    return program.rows(program.read(tmp_path), launched or {})


def test_a_spill_is_a_fault_and_no_spill_is_none(program, tmp_path):
    (fault,) = program.faults(made(program, tmp_path, PRINTED))
    assert "Spill<4> spills 156 bytes" in fault and "sm_90" in fault
    assert program.faults(made(program, tmp_path, PRINTED.replace("76 bytes spill stores, 80 bytes", "0 bytes spill stores, 0 bytes"))) == []


def test_a_launch_that_no_multiprocessor_holds_is_a_fault(program, tmp_path):
    rows = made(program, tmp_path, PRINTED.split("ptxas info    : 0 bytes gmem")[1], {"K<bf16>": (1024, 163 * 1024)})
    assert program.faults(rows) == []
    rows = made(program, tmp_path, PRINTED.split("ptxas info    : 0 bytes gmem")[1], {"K<bf16>": (1024, 164 * 1024)})
    assert len(program.faults(rows)) == 1


def test_block_sizes_come_from_the_traced_launches(program, tmp_path):
    path = tmp_path / "gpu_passes.json"
    launch = {"kernel": "K<bf16>", "threads": 128, "shared": 64}
    path.write_text(json.dumps({"rows": [{"kernels": [launch, {**launch, "shared": 512, "threads": 256}]}]}), encoding="utf-8")
    assert program.launches(path) == {"K<bf16>": (256, 512)}
    row = made(program, tmp_path, PRINTED, program.launches(path))[0]
    assert row["archs"]["80"]["occupancy"] == 1.0
    assert program.cells(row)[-3:] == ["256", "512", "100%"]


CUDA_OWN = r"""
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <cuda_occupancy.h>
int main() {
  int arch, threads, registers, shared;
  while (scanf("%d %d %d %d", &arch, &threads, &registers, &shared) == 4) {
    cudaOccDeviceProp device;
    device.computeMajor = arch / 10, device.computeMinor = arch % 10;
    device.maxThreadsPerBlock = 1024, device.maxThreadsPerMultiprocessor = 2048;
    device.regsPerBlock = device.regsPerMultiprocessor = 65536, device.warpSize = 32, device.numSms = 1;
    device.sharedMemPerBlock = 48 * 1024, device.reservedSharedMemPerBlock = 1024;
    device.sharedMemPerMultiprocessor = (arch == 80 ? 164 : 228) * 1024;
    device.sharedMemPerBlockOptin = device.sharedMemPerMultiprocessor - 1024;
    cudaOccFuncAttributes kernel;
    kernel.maxThreadsPerBlock = 1024, kernel.numRegs = registers, kernel.sharedSizeBytes = 0;
    kernel.partitionedGCConfig = PARTITIONED_GC_OFF, kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.maxDynamicSharedSizeBytes = device.sharedMemPerBlockOptin, kernel.numBlockBarriers = 1;
    cudaOccDeviceState state;
    state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    cudaOccResult result;
    const auto status = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, static_cast<size_t>(shared));
    printf("%d\n", status == CUDA_OCC_SUCCESS ? result.activeBlocksPerMultiprocessor : -1);
  }
}
"""


@pytest.mark.skipif(not os.path.exists("/usr/local/cuda/include/cuda_occupancy.h"), reason="needs CUDA's headers")
def test_occupancy_is_that_of_cudas_own_calculator(tmp_path):
    (tmp_path / "own.cc").write_text(CUDA_OWN, encoding="utf-8")
    subprocess.run(["g++", "-I/usr/local/cuda/include", "-o", tmp_path / "own", tmp_path / "own.cc"], check=True)
    cases = list(itertools.product((80, 90, 100), (32, 96, 128, 160, 256, 512, 1024), (10, 32, 33, 63, 64, 128, 168, 255),
                                   (0, 1024, 9000, 48 * 1024, 100 * 1024, 163 * 1024)))
    text = "\n".join(" ".join(map(str, case)) for case in cases)
    done = subprocess.run([tmp_path / "own"], input=text, stdout=subprocess.PIPE, text=True, check=True)
    expected = list(map(int, done.stdout.split()))
    assert len(expected) == len(cases) and min(expected) == 0 and max(expected) == 32
    assert [occupancy.blocks(*case) for case in cases] == expected
