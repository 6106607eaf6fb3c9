// The API's description is valid, closed in itself, and says the same as the code.
// SPDX-License-Identifier: Apache-2.0
#include "api_server/openapi.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/json.h"

namespace sysone {
namespace {

class OpenApi : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<Json> parsed = Json::Parse(OpenApiJson());
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    document_ = *std::move(parsed);
  }

  // "#/components/schemas/Error" → the place in the document; nullptr when it leads nowhere.
  const Json* Resolve(std::string_view pointer) const {
    const Json* place = &document_;
    pointer.remove_prefix(2);
    while (place != nullptr && !pointer.empty()) {
      const std::string_view step = pointer.substr(0, pointer.find('/'));
      pointer.remove_prefix(std::min(pointer.size(), step.size() + 1));
      place = place->Find(step);
    }
    return place;
  }

  void Walk(const Json& value, std::set<std::string>& references) const {
    if (value.is_array())
      for (const Json& item : value.items()) Walk(item, references);
    if (!value.is_object()) return;
    for (const auto& [key, member] : value.members()) {
      if (key == "$ref") references.insert(member.string());
      Walk(member, references);
    }
  }

  const Json& At(std::initializer_list<std::string_view> path) const {
    const Json* place = &document_;
    for (const std::string_view step : path) {
      place = place->Find(step);
      SYSONE_CHECK(place != nullptr, "no %s", std::string(step).c_str());
    }
    return *place;
  }

  Json document_;
};

TEST_F(OpenApi, EveryReferenceLeadsSomewhereAndEverySchemaIsUsed) {
  std::set<std::string> references;
  Walk(document_, references);
  EXPECT_GT(references.size(), 20u);
  for (const std::string& reference : references)
    EXPECT_NE(Resolve(reference), nullptr) << reference;
  for (const char* kind : {"schemas", "responses", "headers", "parameters"})
    for (const auto& [name, value] : At({"components", kind}).members())
      EXPECT_TRUE(references.contains(std::string("#/components/") + kind + "/" + name)) << name;
}

TEST_F(OpenApi, DescribesEveryPath) {
  std::set<std::string> paths;
  for (const auto& [path, value] : At({"paths"}).members()) paths.insert(path);
  EXPECT_EQ(paths, (std::set<std::string>{"/v1/systemone", "/v1/models", "/health", "/ready",
                                          "/metrics", "/openapi.json"}));
}

TEST_F(OpenApi, ADecisionHasEveryStatusOfTheContract) {
  std::set<std::string> statuses;
  for (const auto& [status, value] : At({"paths", "/v1/systemone", "post", "responses"}).members())
    statuses.insert(status);
  for (const char* status : {"200", "400", "401", "403", "404", "405", "408", "413", "415", "422",
                             "429", "500", "501", "503", "504"})
    EXPECT_TRUE(statuses.contains(status)) << status;
}

TEST_F(OpenApi, StatesTheLimitsOfARequest) {
  EXPECT_EQ(
      At({"components", "schemas", "DecisionRequest", "properties", "questions", "maxProperties"})
          .AsInt64(),
      64);
  EXPECT_EQ(
      At({"components", "schemas", "ChoiceQuestion", "properties", "criteria", "maxProperties"})
          .AsInt64(),
      255);
  EXPECT_EQ(At({"components", "schemas", "ScoreQuestion", "properties", "criteria", "maxItems"})
                .AsInt64(),
            10);
  EXPECT_EQ(At({"components", "schemas", "DecisionRequest", "required"}).Dump(),
            R"(["state", "questions"])");
}

}  // namespace
}  // namespace sysone
