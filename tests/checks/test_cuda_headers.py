"""scripts/checks/cuda_headers.py.

SPDX-License-Identifier: Apache-2.0
"""

import cuda_headers

LISTING = """\
base/CMakeFiles/sysone_base.dir/log.cc.o: #deps 2, deps mtime 17 (VALID)
    ../../base/log.cc
    {header}

kernels/cuda/CMakeFiles/sysone_cuda.dir/device_memory.cc.o: #deps 2, deps mtime 17 (VALID)
    ../../kernels/cuda/device_memory.cc
    /usr/local/cuda/include/cuda_runtime.h

base/CMakeFiles/gone.dir/log.cc.o: #deps 1, deps mtime 17 (STALE)
    /usr/local/cuda/include/cuda_runtime.h
"""


def faults_with(header):
    return cuda_headers.faults(cuda_headers.headers_of(LISTING.format(header=header)))


def test_headers_of_cuda_in_a_target_of_the_gpu_and_in_none_else_pass():
    assert len(cuda_headers.headers_of(LISTING)) == 2
    assert faults_with("/usr/include/c++/12/cstdarg") == []


def test_a_header_of_cuda_in_another_target_is_a_fault():
    for header in ("/usr/local/cuda/include/cublasLt.h", "/usr/local/include/cuda_bf16.h", "/usr/include/nccl.h"):
        (fault,) = faults_with(header)
        assert fault.startswith("base/CMakeFiles/sysone_base.dir/log.cc.o") and header in fault


def test_headers_of_the_emulation_are_none_of_cuda():
    assert faults_with("../../tests/kernels/emulation/include/cuda_runtime.h") == []
    assert faults_with(f"{cuda_headers._ROOT}/tests/kernels/emulation/include/cuda_runtime.h") == []


def test_our_own_headers_of_the_backend_are_none_of_cuda():
    assert faults_with("../../kernels/cuda/cuda_backend.h") == []
