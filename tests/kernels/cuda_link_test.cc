// That programs with the GPU libraries link and begin to run, also where there is neither a device nor a driver.
// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstdio>

TEST(CudaLinkTest, LibrariesSayWhichTheyAreWithoutADriver) {
  int runtime = 0, driver = -1, nccl = 0;
  ASSERT_EQ(cudaRuntimeGetVersion(&runtime), cudaSuccess);
  ASSERT_EQ(ncclGetVersion(&nccl), ncclSuccess);
  ASSERT_EQ(cudaDriverGetVersion(&driver), cudaSuccess);  // 0 where there is none
  const size_t cublas_lt = cublasLtGetVersion();
  printf("CUDA runtime %d, cuBLASLt %zu, NCCL %d, driver %d\n", runtime, cublas_lt, nccl, driver);
  // Headers and libraries belong together: the first two numbers are the same.
  EXPECT_EQ(runtime / 10, CUDART_VERSION / 10);
  EXPECT_EQ(cublas_lt / 100, CUBLAS_VERSION / 100u);
  EXPECT_EQ(nccl / 100, NCCL_VERSION_CODE / 100);
  // What worker/comm/nccl_collective.cc says of an error is the library's own text.
  EXPECT_STRNE(ncclGetErrorString(ncclRemoteError), ncclGetErrorString(ncclSystemError));
}
