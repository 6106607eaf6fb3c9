// What one pass of the CUDA backend consists of: every operation with the bytes and floating-point operations it needs, and the
// kernels that it launches, in order. Over the emulated device, which runs none of them. scripts/bench/gpu_roofline runs it.
//
//   gpu_pass_trace MODEL LAYERS DTYPE TOKENS…      MODEL: a shape of made_model.h
//
// Prints a JSON document a number of tokens. A kernel is its address behind __executable_start, for nm.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "tests/bench/counted_backend.h"
#include "tests/bench/made_model.h"
#include "tests/kernels/emulation/emulation.h"
#include "worker/decoder.h"

// Of the linker: where the program lies in memory.
extern "C" const char __executable_start;  // NOLINT(bugprone-reserved-identifier)

namespace sysone {
namespace {

template <class T>
T Must(Result<T> result) {
  if (!result.ok()) {
    fprintf(stderr, "gpu_pass_trace: %s\n", result.status().message().c_str());
    exit(1);
  }
  return std::move(result).value();
}

void Print(const CountedOperation& operation, bool last) {
  printf("{\"name\": \"%s\", \"in_pass\": %s, \"bytes\": %.0f, \"memory_bytes\": %.0f, ",
         operation.name.c_str(), operation.in_pass ? "true" : "false", operation.bytes,
         operation.memory_bytes);
  printf("\"flops\": %.0f, ", operation.flops);
  printf("\"host_bytes\": %.0f, \"copies\": %d, \"launches\": [", operation.host_bytes,
         operation.copies);
  for (size_t i = 0; i < operation.launches.size(); ++i) {
    const CountedLaunch& launch = operation.launches[i];
    const long long address =
        launch.kernel ? static_cast<const char*>(launch.kernel) - &__executable_start : -1;
    printf("%s{\"address\": %lld, \"blocks\": %u, \"threads\": %u, \"shared\": %zu}",
           i == 0 ? "" : ", ", address, launch.blocks, launch.threads, launch.shared_bytes);
  }
  printf("]}%s\n", last ? "" : ",");
}

void Trace(CountedBackend& backend, Decoder& decoder, int32_t vocab, int32_t length) {
  std::vector<TokenId> tokens(static_cast<size_t>(length));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<TokenId>((i * 7919 + 31) % static_cast<size_t>(vocab));
  const std::vector<TokenId> labels{32, 33};
  const JobTokens job{{}, {{tokens, labels}}, false};
  Pass pass;
  pass.Build(std::vector<PassItem>{{&job, 0, 1}});
  std::vector<float> logits(2);
  static_cast<void>(backend.Take());
  decoder.Forward(pass, logits, {});
  const std::vector<CountedOperation> operations = backend.Take();
  printf("{\"tokens\": %d, \"rows\": %d, \"operations\": [\n", length, backend.PassRows(length));
  for (size_t i = 0; i < operations.size(); ++i) Print(operations[i], i + 1 == operations.size());
  printf("]}\n");
}

void Run(const std::string& name, int32_t layers, const std::string& dtype,
         const std::vector<int32_t>& lengths) {
  emulation::SetDevices(1, size_t{140} << 30, 90);
  const MadeModel model = Must(MakeModel(name, layers));
  // Not recorded: a recorded pass would call its operations twice.
  const auto cuda = Must(MakeCudaBackend({.dtype = dtype, .threads = 2, .graphs = false}));
  CountedBackend backend(*cuda);
  DecoderLimits limits;
  limits.max_rows = *std::ranges::max_element(lengths);
  limits.max_reads = 1;
  limits.max_positions = limits.max_rows;
  const auto decoder =
      Must(Decoder::Load(backend, model.config, model.tensors, limits, [](double) {}));
  for (const int32_t length : lengths) Trace(backend, *decoder, model.config.vocab, length);
}

}  // namespace
}  // namespace sysone

int main(int argc, char** argv) {
  if (argc < 5) {
    fputs("usage: gpu_pass_trace MODEL LAYERS DTYPE TOKENS…\n", stderr);
    return 2;
  }
  std::vector<int32_t> lengths;
  for (int i = 4; i < argc; ++i) lengths.push_back(std::max(1, std::atoi(argv[i])));
  sysone::Run(argv[1], std::atoi(argv[2]), argv[3], lengths);
  return 0;
}
