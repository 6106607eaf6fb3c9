// MakeBackend: every listed name works, everything else is refused with a list.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/backend.h"
#include "kernels/cpu/isa.h"

namespace sysone {
namespace {

TEST(BackendRegistry, MakesEveryBackendThatItNamesInEveryDtype) {
  const std::vector<std::string> names = BackendNames();
  EXPECT_NE(std::ranges::find(names, "reference"), names.end());
  for (const std::string& name : names) {
    for (const char* dtype : {"float32", "bfloat16", "int8"}) {
      auto backend = MakeBackend({.name = name, .dtype = dtype});
      ASSERT_TRUE(backend.ok()) << name << ": " << backend.status().message();
      EXPECT_NE((*backend)->Describe().find(dtype), std::string::npos) << (*backend)->Describe();
    }
  }
}

TEST(BackendRegistry, AutoIsInt8WhereTheInstructionSetIsFastAtItAndElseFloat32) {
  for (const std::string& isa : IsaNames()) {
    auto backend = MakeBackend({.name = "cpu", .isa = isa});
    ASSERT_TRUE(backend.ok()) << backend.status().message();
    const char* const dtype = isa == "portable" || isa == "sse4" ? "float32" : "int8";
    EXPECT_NE((*backend)->Describe().find(dtype), std::string::npos) << (*backend)->Describe();
  }
}

TEST(BackendRegistry, RefusesAnUnknownInstructionSetAndListsTheKnown) {
  const auto backend = MakeBackend({.name = "cpu", .isa = "avx9"});
  ASSERT_FALSE(backend.ok());
  EXPECT_EQ(backend.status().code(), Code::kInvalidArgument);
  for (const char* known : {"'avx9'", "auto", "portable"})
    EXPECT_NE(backend.status().message().find(known), std::string::npos) << known;
}

TEST(BackendRegistry, TheOnednnVariantExistsOrSaysThatItCannot) {
  for (const char* dtype : {"float32", "bfloat16", "int8"}) {
    auto backend = MakeBackend({.name = "cpu-onednn", .dtype = dtype});
    if (backend.ok())
      EXPECT_NE((*backend)->Describe().find("oneDNN"), std::string::npos) << (*backend)->Describe();
    else
      EXPECT_EQ(backend.status().code(), Code::kUnsupported) << backend.status().message();
  }
}

TEST(BackendRegistry, TakesTheNumberOfThreadsThatIsGiven) {
  auto backend = MakeBackend({.name = "cpu", .threads = 3});
  ASSERT_TRUE(backend.ok()) << backend.status().message();
  EXPECT_NE((*backend)->Describe().find("3 threads"), std::string::npos) << (*backend)->Describe();
  EXPECT_FALSE(MakeBackend({.name = "cpu", .threads = -1}).ok());
}

TEST(BackendRegistry, RefusesAnUnknownNameAndListsTheKnown) {
  const auto backend = MakeBackend({.name = "gpu"});
  ASSERT_FALSE(backend.ok());
  EXPECT_EQ(backend.status().code(), Code::kInvalidArgument);
  EXPECT_NE(backend.status().message().find("'gpu'"), std::string::npos);
  for (const std::string& name : BackendNames())
    EXPECT_NE(backend.status().message().find(name), std::string::npos) << name;
}

TEST(BackendRegistry, RefusesAnUnknownDtypeAndListsTheKnown) {
  const auto backend = MakeBackend({.dtype = "int4"});
  ASSERT_FALSE(backend.ok());
  EXPECT_EQ(backend.status().code(), Code::kInvalidArgument);
  for (const char* known : {"'int4'", "auto", "int8", "bfloat16", "float32"})
    EXPECT_NE(backend.status().message().find(known), std::string::npos) << known;
}

}  // namespace
}  // namespace sysone
