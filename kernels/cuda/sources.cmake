# Sources of the CUDA backend, relative to this folder: read by its own build and by the tests, which compile the same files for
# an emulated device (tests/kernels/emulation/).
set(SYSONE_CUDA_KERNELS  # CUDA C++
)
set(SYSONE_CUDA_HOST  # C++ that calls CUDA
  launch.cc
)
