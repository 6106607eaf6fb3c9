// SPDX-License-Identifier: Apache-2.0
#include "model/catalogue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "model/mapped_file.h"

namespace sysone {
namespace {

TEST(Catalogue, IsTheCommittedFile) {
  const auto text = ReadWholeFile(SYSONE_SOURCE_DIR "/model/catalogue.json");
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(CatalogueJson(), *text);
}

TEST(Catalogue, HasUniqueNamesOneDefaultAndWellFormedFields) {
  std::set<std::string> names, files;
  int defaults = 0;
  for (const CatalogueModel& model : ReadCatalogue()) {
    EXPECT_TRUE(names.insert(model.name).second) << model.name;
    EXPECT_TRUE(files.insert(model.file).second) << model.file;
    EXPECT_EQ(model.file.find('/'), std::string::npos);
    EXPECT_EQ(model.sha256.size(), 64u);
    EXPECT_TRUE(std::all_of(model.sha256.begin(), model.sha256.end(), [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    })) << model.sha256;
    EXPECT_EQ(model.release_date.size(), 10u);
    defaults += model.is_default;
  }
  EXPECT_EQ(defaults, 1);
  EXPECT_GE(names.size(), 2u);
}

TEST(Catalogue, FindsByName) {
  EXPECT_EQ(DefaultModel().name, "qwen2.5-coder-1.5b");
  const auto small = FindInCatalogue("smollm2-135m");
  ASSERT_TRUE(small.has_value());
  EXPECT_EQ(small->bytes, 98362432);
  EXPECT_EQ(small->license, "Apache-2.0");
  EXPECT_EQ(FindInCatalogue("smollm2"), std::nullopt);
}

}  // namespace
}  // namespace sysone
