// The application behind the HTTP server: which request gets which answer, and in which order things are checked.
// SPDX-License-Identifier: Apache-2.0
#include "api_server/app.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "api_server/request_id.h"
#include "api_server/server_timing.h"
#include "base/clock.h"
#include "base/json.h"
#include "tests/api_server/http_server_fixture.h"

namespace sysone {
namespace {

class FakeService final : public DecisionService {
 public:
  void Decide(const HttpRequest& request, const std::string& request_id, Done done) override {
    HttpResponse response;
    response.body = R"({"id": "decision-)" + request_id + R"(", "bytes": )" +
                    std::to_string(request.body.size()) + "}";
    if (!timing.empty()) response.headers.Set("Server-Timing", timing);
    response.status = status;
    if (!later) return done(std::move(response));
    held = [done, response] { done(response); };
  }
  bool Quick(const HttpRequest& request) const override { return request.body.size() < 10; }
  std::string ModelsJson() override { return R"({"models": []})"; }
  HealthState Health() override { return health; }
  std::string MetricsText() override { return "sysone_up 1\n"; }

  HealthState health{true, true, ""};
  std::string timing;
  int status = 200;
  bool later = false;  // keep the answer back
  std::function<void()> held;
};

HttpRequest Request(std::string method, std::string path,
                    std::vector<HttpHeaders::Field> headers = {}, std::string body = "") {
  HttpRequest request;
  request.method = std::move(method);
  request.path = std::move(path);
  request.body = std::move(body);
  request.received_us = MonotonicUs();
  for (auto& [name, value] : headers) request.headers.Add(name, value);
  return request;
}

const HttpHeaders::Field kJson{"Content-Type", "application/json"};

std::string Header(const HttpResponse& response, std::string_view name) {
  const std::string* value = response.headers.Find(name);
  return value == nullptr ? "(none)" : *value;
}

// An app whose answers are there when Handle returns.
class SyncApp : public App {
 public:
  using App::App;
  HttpResponse Handle(HttpRequest request) {
    HttpResponse answer;
    answer.status = 0;
    App::Handle(
        HttpCall(std::move(request), [&](const HttpRequest&, std::optional<HttpResponse> response) {
          if (response) answer = std::move(*response);
        }));
    return answer;
  }
};

class AppTest : public ::testing::Test {
 protected:
  SyncApp Make() {
    AppOptions options;
    options.api_keys = keys_;
    options.cors = cors_;
    options.observe = [this](const Served& served) {
      seen_.push_back(std::string(served.route) + " " + std::to_string(served.status));
    };
    return SyncApp(std::move(options), &service_);
  }

  FakeService service_;
  std::vector<std::string> keys_;
  Cors cors_;
  std::vector<std::string> seen_;
};

TEST_F(AppTest, ADecisionMayBeAnsweredLater) {
  SyncApp app = Make();
  service_.later = true;
  HttpResponse answer;
  int answers = 0;
  app.App::Handle(
      HttpCall(Request("POST", "/v1/systemone", {kJson, {"X-Request-Id", "late"}}, "{}"),
               [&](const HttpRequest& request, std::optional<HttpResponse> response) {
                 EXPECT_EQ(request.body, "{}");
                 if (response) answer = std::move(*response);
                 ++answers;
               }));
  EXPECT_EQ(answers, 0);
  EXPECT_TRUE(seen_.empty());
  service_.held();
  EXPECT_EQ(answers, 1);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(Header(answer, "X-Request-Id"), "late");
  EXPECT_EQ(seen_, std::vector<std::string>{"/v1/systemone 200"});
}

TEST_F(AppTest, OnlyDecisionsMayBeTooMuchForTheLoop) {
  const SyncApp app = Make();
  EXPECT_TRUE(app.Quick(Request("POST", "/v1/systemone", {kJson}, "{}")));
  EXPECT_FALSE(app.Quick(Request("POST", "/v1/systemone", {kJson}, std::string(100, ' '))));
  EXPECT_TRUE(app.Quick(Request("GET", "/health")));
}

TEST_F(AppTest, HandsDecisionsToTheService) {
  SyncApp app = Make();
  const HttpResponse response =
      app.Handle(Request("POST", "/v1/systemone", {kJson, {"X-Request-Id", "abc 1"}}, "{}"));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, R"({"id": "decision-abc 1", "bytes": 2})");
  EXPECT_EQ(Header(response, "X-Request-Id"), "abc 1");
  EXPECT_EQ(Header(response, "x-typesafe-request-id"), "abc 1");
  EXPECT_TRUE(Header(response, "Server-Timing").starts_with("total;dur="))
      << Header(response, "Server-Timing");
  EXPECT_EQ(seen_, std::vector<std::string>{"/v1/systemone 200"});
}

TEST_F(AppTest, AddsTheTotalToTheServicesTiming) {
  service_.timing = "queue;dur=1.000";
  SyncApp app = Make();
  const std::string timing =
      Header(app.Handle(Request("POST", "/v1/systemone", {kJson})), "Server-Timing");
  EXPECT_TRUE(timing.starts_with("queue;dur=1.000, total;dur=")) << timing;
}

TEST_F(AppTest, ServesWhatIsRead) {
  SyncApp app = Make();
  EXPECT_EQ(app.Handle(Request("GET", "/v1/models")).body, R"({"models": []})");
  EXPECT_EQ(app.Handle(Request("GET", "/metrics")).body, "sysone_up 1\n");
  EXPECT_EQ(app.Handle(Request("GET", "/metrics")).content_type,
            "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(app.Handle(Request("HEAD", "/health")).status, 200);
  EXPECT_TRUE(Json::Parse(app.Handle(Request("GET", "/openapi.json")).body).ok());
}

TEST_F(AppTest, NamesTheMethodsThatAPathTakes) {
  SyncApp app = Make();
  for (const char* method : {"GET", "HEAD", "PUT", "DELETE", "TRACE", "OPTIONS", "ODD"}) {
    const HttpResponse response = app.Handle(Request(method, "/v1/systemone", {kJson}));
    EXPECT_EQ(response.status, 405) << method;
    EXPECT_EQ(Header(response, "Allow"), "POST");
  }
  const HttpResponse response = app.Handle(Request("POST", "/health"));
  EXPECT_EQ(response.status, 405);
  EXPECT_EQ(Header(response, "Allow"), "GET, HEAD");
}

TEST_F(AppTest, KnowsNoOtherPaths) {
  SyncApp app = Make();
  for (const std::string path :
       {"/", "", "*", "/v1", "/v1/systemone/", "//v1/systemone", "/health\n", "/\xff\xfe"}) {
    const HttpResponse response = app.Handle(Request("POST", path, {kJson}));
    EXPECT_EQ(response.status, 404) << path;
    EXPECT_TRUE(Json::Parse(response.body).ok()) << response.body;
  }
  EXPECT_EQ(std::set(seen_.begin(), seen_.end()), std::set<std::string>{"other 404"});
}

TEST_F(AppTest, TakesJsonInAnySpellingAndNothingElse) {
  SyncApp app = Make();
  for (const char* good : {"application/json", "Application/JSON",
                           "application/json; charset=utf-8", "application/json ;x"})
    EXPECT_EQ(app.Handle(Request("POST", "/v1/systemone", {{"Content-Type", good}})).status, 200)
        << good;
  for (const char* bad :
       {"", "text/json", "application/json2", "application/x-www-form-urlencoded", "json"})
    EXPECT_EQ(app.Handle(Request("POST", "/v1/systemone", {{"Content-Type", bad}})).status, 400)
        << bad;
  EXPECT_EQ(app.Handle(Request("POST", "/v1/systemone")).status, 400);
  EXPECT_EQ(app.Handle(Request("POST", "/v1/systemone", {kJson, kJson})).status, 400);
}

TEST_F(AppTest, ChecksTheKeyBeforeAnythingElse) {
  keys_ = {"right"};
  SyncApp app = Make();
  const HttpResponse missing = app.Handle(Request("POST", "/v1/systemone"));
  EXPECT_EQ(missing.status, 403);
  const HttpResponse wrong =
      app.Handle(Request("GET", "/v1/nowhere", {{"Authorization", "Bearer wrong"}}));
  EXPECT_EQ(wrong.status, 401);
  EXPECT_EQ(Header(wrong, "WWW-Authenticate"), "Bearer");
  EXPECT_NE(Header(wrong, "X-Request-Id"), "(none)");
  EXPECT_EQ(app.Handle(Request("POST", "/v1/systemone", {kJson, {"Authorization", "Bearer right"}}))
                .status,
            200);
  EXPECT_EQ(app.Handle(Request("GET", "/health")).status, 200);
}

TEST_F(AppTest, ChecksTheKeyBeforeWhatTheServerFound) {
  keys_ = {"right"};
  SyncApp app = Make();
  const HttpRequest without = Request("POST", "/v1/systemone");
  const HttpRequest with =
      Request("POST", "/v1/systemone", {{"Authorization", "Bearer right"}, {"X-Request-Id", "r"}});
  EXPECT_EQ(app.HandleProblem({413, "too large"}, &without).status, 403);
  const HttpResponse large = app.HandleProblem({413, "too large"}, &with);
  EXPECT_EQ(large.status, 413);
  EXPECT_EQ(Header(large, "X-Request-Id"), "r");
  EXPECT_EQ(Json::Parse(large.body)->Find("detail")->Find("message")->string(), "too large");
}

TEST_F(AppTest, AnswersProblemsWithoutAHead) {
  SyncApp app = Make();
  const HttpResponse response = app.HandleProblem({503, "too many connections", 3}, nullptr);
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(Header(response, "Retry-After"), "3");
  EXPECT_EQ(Header(response, "X-Request-Id").size(), 16u);
  EXPECT_EQ(Header(app.HandleProblem({415, "encoding"}, nullptr), "Accept-Encoding"),
            "gzip, identity");
  EXPECT_EQ(app.HandleProblem({431, "header"}, nullptr).status, 431);
}

TEST_F(AppTest, ReportsHealthAndReadinessApart) {
  SyncApp app = Make();
  service_.health = {true, false, "1 of 2 groups is up"};
  EXPECT_EQ(app.Handle(Request("GET", "/health")).status, 200);
  const HttpResponse ready = app.Handle(Request("GET", "/ready"));
  EXPECT_EQ(ready.status, 503);
  EXPECT_NE(ready.body.find("1 of 2 groups is up"), std::string::npos);
  EXPECT_EQ(Header(ready, "Retry-After"), "1");
  service_.health = {false, false, ""};
  EXPECT_EQ(app.Handle(Request("GET", "/health")).status, 503);
}

TEST_F(AppTest, RefusesNewDecisionsWhileDraining) {
  SyncApp app = Make();
  app.StartDraining();
  const HttpResponse response = app.Handle(Request("POST", "/v1/systemone", {kJson}));
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(Header(response, "Retry-After"), "1");
  EXPECT_EQ(app.Handle(Request("GET", "/health")).status, 200);
  EXPECT_EQ(app.Handle(Request("GET", "/ready")).status, 503);
}

TEST_F(AppTest, AppliesTheOriginRulesToErrorsToo) {
  keys_ = {"right"};
  Result<Cors> cors = Cors::Make({.origins = {"https://a.example"}});
  ASSERT_TRUE(cors.ok());
  cors_ = *std::move(cors);
  SyncApp app = Make();
  const HttpHeaders::Field origin{"Origin", "https://a.example"};
  EXPECT_EQ(
      Header(app.Handle(Request("POST", "/v1/systemone", {origin})), "Access-Control-Allow-Origin"),
      "https://a.example");
  const HttpResponse preflight = app.Handle(
      Request("OPTIONS", "/v1/systemone", {origin, {"Access-Control-Request-Method", "POST"}}));
  EXPECT_EQ(preflight.status, 204);  // browsers send no key with it
  const HttpResponse other = app.Handle(
      Request("OPTIONS", "/v1/systemone",
              {{"Origin", "https://b.example"}, {"Access-Control-Request-Method", "POST"}}));
  EXPECT_EQ(other.status, 403);
  EXPECT_EQ(Header(other, "Access-Control-Allow-Origin"), "(none)");
}

TEST(ServerTiming, WritesMillisecondsWithThreePlaces) {
  std::string header;
  AppendServerTiming(header, "a", 0);
  AppendServerTiming(header, "b", 1'234'056);
  AppendServerTiming(header, "c", -7);
  AppendServerTiming(header, "d", INT64_MAX);
  EXPECT_EQ(header, "a;dur=0.000, b;dur=1234.056, c;dur=0.000, d;dur=9223372036854775.807");
}

TEST(RequestId, PrefersTheHeaderThenTheBodyThenChance) {
  const std::string body = R"({"request_id": "from-body"})";
  EXPECT_EQ(RequestIdOf(Request("POST", "/", {{"X-Request-Id", "from-header"}}, body)),
            "from-header");
  EXPECT_EQ(RequestIdOf(Request("POST", "/", {}, body)), "from-body");
  const std::string one = RequestIdOf(Request("POST", "/"));
  EXPECT_EQ(one.size(), 16u);
  EXPECT_NE(one, RequestIdOf(Request("POST", "/")));
}

TEST(RequestId, IgnoresIdsThatAreUnfitForAHeader) {
  for (const std::string& bad : {std::string(), std::string("a\nb"), std::string("\xc3\xa4"),
                                 std::string(257, 'a'), std::string("a\x7f"), std::string(" a")}) {
    EXPECT_EQ(RequestIdOf(Request("POST", "/", {{"X-Request-Id", bad}})).size(), 16u) << bad;
    std::string body = R"({"request_id": )";
    AppendJsonString(body, bad);
    EXPECT_EQ(RequestIdOf(Request("POST", "/", {}, body + "}")).size(), 16u) << bad;
  }
  EXPECT_EQ(RequestIdOf(Request("POST", "/", {}, R"({"request_id": 5})")).size(), 16u);
  EXPECT_EQ(RequestIdOf(Request("POST", "/", {}, R"(broken "request_id")")).size(), 16u);
}

// Through the real server: every answer, of either handler, is JSON with an id.
class AppOverHttp : public AppTest {};

TEST_F(AppOverHttp, EveryAnswerHasAnId) {
  keys_ = {"right"};
  SyncApp app = Make();
  Listener listener = ListenOnLoopback();
  HttpLimits limits;
  limits.max_request_bytes = 1000;
  OpenGate gate;
  auto server = HttpServer::Start(
      listener.socket.get(), limits, [&](HttpCall call) { app.App::Handle(std::move(call)); },
      [&](const HttpProblem& p, const HttpRequest* h) { return app.HandleProblem(p, h); }, &gate);
  ASSERT_TRUE(server.ok());
  const std::string key = "Authorization: Bearer right\r\n";
  const std::pair<std::string, int> cases[] = {
      {Post("/v1/systemone", "{}", key), 200},
      {Post("/v1/systemone", "{}", "Authorization: Bearer wrong\r\n"), 401},
      {Post("/v1/systemone", "{}"), 403},
      {Post("/v1%2Fsystemone", "{}"), 403},
      {Post("/nowhere", "{}"), 404},
      {Get("/v1/systemone", key), 405},
      {Post("/v1/systemone", std::string(2000, ' '), key), 413},
      {Post("/v1/systemone", std::string(2000, ' ')), 403},
      {Post("/v1/systemone", "x", key + "Content-Encoding: br\r\n"), 415},
      {Post("/v1/systemone", "x", key + "Content-Encoding: gzip\r\n"), 400},
      {"nonsense\r\n\r\n", 400},
      {Get("/" + std::string(9000, 'a')), 414},
      {Get("/", "X: " + std::string(9000, 'a') + "\r\n"), 431},
      {Get("/health"), 200},
  };
  for (const auto& [bytes, status] : cases) {
    TestClient client(listener.port);
    const ClientResponse response = client.Ask(bytes);
    EXPECT_EQ(response.status, status) << bytes.substr(0, 60);
    EXPECT_TRUE(Json::Parse(response.body).ok()) << response.body;
    EXPECT_FALSE(response.Header("X-Request-Id").empty());
    EXPECT_EQ(response.Header("X-Request-Id"), response.Header("x-typesafe-request-id"));
    EXPECT_EQ(response.Header("Content-Type"), "application/json");
  }
}

}  // namespace
}  // namespace sysone
