// All that the fake NCCL needs of CUDA, where there is no emulation of the rest.
// SPDX-License-Identifier: Apache-2.0
#pragma once

typedef struct CUstream_st* cudaStream_t;
