// Which backends this build and host have. The only file that knows all of them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/dtype.h"
#include "kernels/reference/reference_backend.h"

namespace sysone {
namespace {

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Nothing for auto: the backend knows best.
Result<std::optional<Dtype>> ParseDtype(const std::string& name) {
  if (name == "auto") return std::optional<Dtype>();
  for (const Dtype dtype : {Dtype::kInt8, Dtype::kBfloat16, Dtype::kFloat32})
    if (name == DtypeName(dtype)) return std::optional(dtype);
  return Error(Code::kInvalidArgument, "unknown dtype '%s'; known: auto, int8, bfloat16, float32",
               name.c_str());
}

}  // namespace

std::vector<std::string> BackendNames() { return {"cpu", "reference"}; }

Result<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options) {
  SYSONE_ASSIGN_OR_RETURN(const std::optional<Dtype> dtype, ParseDtype(options.dtype));
  const std::vector<std::string> names = BackendNames();
  const std::string name = options.name == "auto" ? names.front() : options.name;
  if (name == "cpu")
    return MakeCpuBackend(dtype, options.threads, options.isa, MatMulChoice::kFastest,
                          options.weight_grain);
  if (name == "cpu-onednn")
    return MakeCpuBackend(dtype, options.threads, options.isa, MatMulChoice::kOnednn,
                          options.weight_grain);
  if (name == "reference")
    return MakeReferenceBackend(dtype.value_or(Dtype::kFloat32), options.weight_grain);
  return Error(Code::kInvalidArgument, "unknown backend '%s'; known: auto, %s", name.c_str(),
               Joined(names).c_str());
}

}  // namespace sysone
