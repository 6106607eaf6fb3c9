// Who may call: API keys and cross-origin rules.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "api_server/auth.h"
#include "api_server/cors.h"

namespace sysone {
namespace {

HttpRequest Request(std::string method, std::string path,
                    std::vector<HttpHeaders::Field> headers = {}) {
  HttpRequest request;
  request.method = std::move(method);
  request.path = std::move(path);
  for (auto& [name, value] : headers) request.headers.Add(name, value);
  return request;
}

HttpRequest Preflight(const std::string& origin, const std::string& method = "POST",
                      const std::string& headers = "") {
  HttpRequest request = Request("OPTIONS", "/v1/systemone",
                                {{"Origin", origin}, {"Access-Control-Request-Method", method}});
  if (!headers.empty()) request.headers.Add("Access-Control-Request-Headers", headers);
  return request;
}

std::string Header(const HttpResponse& response, std::string_view name) {
  const std::string* value = response.headers.Find(name);
  return value == nullptr ? "(none)" : *value;
}

Cors Make(CorsOptions options) {
  Result<Cors> cors = Cors::Make(std::move(options));
  EXPECT_TRUE(cors.ok()) << cors.status().message();
  return *std::move(cors);
}

TEST(Cors, IsClosedByDefault) {
  const Cors closed;
  const HttpResponse preflight = closed.AnswerPreflight(Preflight("https://a.example"));
  EXPECT_EQ(preflight.status, 403);
  EXPECT_EQ(Header(preflight, "Access-Control-Allow-Origin"), "(none)");
  HttpResponse response;
  closed.AddHeaders(Request("POST", "/", {{"Origin", "https://a.example"}}), response);
  EXPECT_TRUE(response.headers.fields().empty());
}

TEST(Cors, LetsListedOriginsInAndNoOthers) {
  const Cors cors = Make({.origins = {"https://a.example", "http://localhost:3000"}});
  const HttpResponse yes = cors.AnswerPreflight(
      Preflight("http://localhost:3000", "POST", "content-type, Authorization"));
  EXPECT_EQ(yes.status, 204);
  EXPECT_EQ(Header(yes, "Access-Control-Allow-Origin"), "http://localhost:3000");
  EXPECT_EQ(Header(yes, "Access-Control-Allow-Methods"), "GET, POST");
  EXPECT_EQ(Header(yes, "Access-Control-Allow-Headers"), "Content-Type, Authorization");
  EXPECT_EQ(Header(yes, "Access-Control-Allow-Credentials"), "(none)");
  EXPECT_EQ(Header(yes, "Vary"), "Origin");
  for (const char* other :
       {"https://b.example", "https://a.example:444", "https://A.example", "null", "*"})
    EXPECT_EQ(cors.AnswerPreflight(Preflight(other)).status, 403) << other;
  EXPECT_EQ(cors.AnswerPreflight(Preflight("https://a.example", "DELETE")).status, 403);
  EXPECT_EQ(cors.AnswerPreflight(Preflight("https://a.example", "POST", "X-Other")).status, 403);
  HttpResponse listed, unlisted;
  cors.AddHeaders(Request("POST", "/", {{"Origin", "https://a.example"}}), listed);
  cors.AddHeaders(Request("POST", "/", {{"Origin", "https://b.example"}}), unlisted);
  EXPECT_EQ(Header(listed, "Access-Control-Allow-Origin"), "https://a.example");
  EXPECT_EQ(Header(unlisted, "Access-Control-Allow-Origin"), "(none)");
  EXPECT_EQ(Header(unlisted, "Vary"), "Origin");
}

TEST(Cors, AStarStandsForEverything) {
  const Cors cors = Make({.origins = {"*"}, .methods = {"*"}, .headers = {"*"}});
  const HttpResponse yes =
      cors.AnswerPreflight(Preflight("https://any.example", "HEAD", "X-Any, X-Other"));
  EXPECT_EQ(yes.status, 204);
  EXPECT_EQ(Header(yes, "Access-Control-Allow-Origin"), "*");
  EXPECT_EQ(Header(yes, "Access-Control-Allow-Headers"), "X-Any, X-Other");
}

TEST(Cors, CredentialsAreForListedOriginsOnly) {
  EXPECT_EQ(
      Cors::Make({.origins = {"https://a.example", "*"}, .credentials = true}).status().code(),
      Code::kInvalidArgument);
  const Cors cors = Make({.origins = {"https://a.example"}, .credentials = true});
  EXPECT_EQ(Header(cors.AnswerPreflight(Preflight("https://a.example")),
                   "Access-Control-Allow-Credentials"),
            "true");
}

TEST(Cors, RefusesValuesThatAreNone) {
  for (const char* bad :
       {"a.example", "https://", "https://a.example/", "https://a.example/path", "", "https://a b"})
    EXPECT_FALSE(Cors::Make({.origins = {bad}}).ok()) << bad;
  EXPECT_FALSE(Cors::Make({.origins = {}, .methods = {"GET POST"}}).ok());
  EXPECT_FALSE(Cors::Make({.origins = {}, .headers = {"X:"}}).ok());
}

TEST(Cors, OnlyAnOptionsRequestWithBothHeadersIsAPreflight) {
  EXPECT_TRUE(Cors::IsPreflight(Preflight("https://a.example")));
  EXPECT_FALSE(Cors::IsPreflight(Request("OPTIONS", "/", {{"Origin", "https://a.example"}})));
  HttpRequest post = Preflight("https://a.example");
  post.method = "POST";
  EXPECT_FALSE(Cors::IsPreflight(post));
}

TEST(Auth, ComparesEveryByte) {
  EXPECT_TRUE(EqualsInConstantTime("secret", "secret"));
  for (const char* other : {"", "s", "secre", "secretsecret", "Secret", "secreT", "secrets"})
    EXPECT_FALSE(EqualsInConstantTime(other, "secret")) << other;
  EXPECT_TRUE(EqualsInConstantTime("", ""));
  EXPECT_FALSE(EqualsInConstantTime("x", ""));
}

KeyCheck::Verdict Check(const KeyCheck& keys, const std::string& path,
                        std::vector<HttpHeaders::Field> headers) {
  return keys.Check(Request("POST", path, std::move(headers)));
}

TEST(Auth, AsksForOneOfTheKeysBelowV1) {
  const KeyCheck keys({"first", "second"});
  using enum KeyCheck::Verdict;
  EXPECT_EQ(Check(keys, "/v1/systemone", {{"Authorization", "Bearer first"}}), kPass);
  EXPECT_EQ(Check(keys, "/v1/models", {{"authorization", "bearer  second"}}), kPass);
  EXPECT_EQ(Check(keys, "/v1/systemone", {{"Authorization", "Bearer third"}}), kWrong);
  EXPECT_EQ(Check(keys, "/v1/unknown", {{"Authorization", "Bearer firstsecond"}}), kWrong);
  EXPECT_EQ(Check(keys, "/v1", {}), kMissing);
  EXPECT_EQ(Check(keys, "/v1/systemone", {{"Authorization", "Basic Zmlyc3Q="}}), kMissing);
  EXPECT_EQ(Check(keys, "/v1/systemone", {{"Authorization", "Bearer "}}), kMissing);
  EXPECT_EQ(Check(keys, "/v1/systemone", {{"Authorization", "first"}}), kMissing);
  EXPECT_EQ(Check(keys, "/v1/systemone",
                  {{"Authorization", "Bearer first"}, {"Authorization", "Bearer x"}}),
            kWrong);
}

TEST(Auth, LeavesHealthAndMetricsOpen) {
  const KeyCheck keys({"key"});
  for (const char* path : {"/health", "/ready", "/metrics", "/openapi.json", "/v11", "/"})
    EXPECT_EQ(Check(keys, path, {}), KeyCheck::Verdict::kPass) << path;
}

TEST(Auth, WithoutKeysEverybodyPasses) {
  const KeyCheck open({});
  EXPECT_EQ(Check(open, "/v1/systemone", {}), KeyCheck::Verdict::kPass);
  EXPECT_EQ(Check(open, "/v1/systemone", {{"Authorization", "Bearer any"}}),
            KeyCheck::Verdict::kPass);
}

}  // namespace
}  // namespace sysone
