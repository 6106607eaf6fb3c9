# Sources of the CUDA backend, relative to this folder: read by its own build and by the tests, which compile the same files for
# an emulated device (tests/kernels/emulation/).
set(SYSONE_CUDA_KERNELS  # CUDA C++
  row_kernels.cu
  operand_kernels.cu
  qkv_kernels.cu
  readout_kernels.cu
  attention_simple.cu
  attention_tensor.cu
)
set(SYSONE_CUDA_HOST  # C++ that calls CUDA
  attention.cc
  attention_tables.cc
  launch.cc
  device.cc
  device_facts.cc
  device_memory.cc
  memory_budget.cc
  stream.cc
  staging.cc
  matmul_choices.cc
  product_plan.cc
  product_tuning.cc
  matmul.cc
  built_in.cc
  pass_block.cc
  pass_inputs.cc
  pass_results.cc
  recorded_passes.cc
  weight_encoding.cc
  weight_loader.cc
  cuda_backend.cc
  cuda_operations.cc
)
