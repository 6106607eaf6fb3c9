// SPDX-License-Identifier: Apache-2.0
#include "api_server/errors.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace sysone {
namespace {

Json Body(const HttpResponse& response) {
  Result<Json> json = Json::Parse(response.body);
  EXPECT_TRUE(json.ok()) << response.body;
  return json.ok() ? *json : Json();
}

TEST(Errors, EveryCodeHasItsStatus) {
  EXPECT_EQ(HttpStatusOf(Code::kMalformed), 400);
  EXPECT_EQ(HttpStatusOf(Code::kUnauthorized), 401);
  EXPECT_EQ(HttpStatusOf(Code::kForbidden), 403);
  EXPECT_EQ(HttpStatusOf(Code::kNotFound), 404);
  EXPECT_EQ(HttpStatusOf(Code::kTooLarge), 413);
  EXPECT_EQ(HttpStatusOf(Code::kInvalidArgument), 422);
  EXPECT_EQ(HttpStatusOf(Code::kRateLimited), 429);
  EXPECT_EQ(HttpStatusOf(Code::kInternal), 500);
  EXPECT_EQ(HttpStatusOf(Code::kUnimplemented), 501);
  EXPECT_EQ(HttpStatusOf(Code::kUnavailable), 503);
  EXPECT_EQ(HttpStatusOf(Code::kDeadlineExceeded), 504);
  for (const Code ours : {Code::kOk, Code::kUnsupported, Code::kCorrupt, Code::kOutOfMemory})
    EXPECT_EQ(HttpStatusOf(ours), 500);
}

TEST(Errors, ABodyCarriesBothForms) {
  const HttpResponse response =
      ErrorResponse({Code::kNotFound, "model \"x\" is not served", "model"});
  EXPECT_EQ(response.status, 404);
  EXPECT_EQ(response.content_type, "application/json");
  EXPECT_EQ(
      response.body,
      R"({"detail": {"error_type": "not_found", "message": "model \"x\" is not served"}, )"
      R"("error": {"message": "model \"x\" is not served", "type": "NotFoundError", "param": "model", "code": 404}})");
}

TEST(Errors, AMissingAndAWrongKeyHaveTheSameType) {
  for (const Code code : {Code::kUnauthorized, Code::kForbidden})
    EXPECT_EQ(Body(ErrorResponse({code, "x"})).Find("detail")->Find("error_type")->string(),
              "authentication_error");
}

TEST(Errors, BrokenRulesAreListedWithTheirPlaces) {
  ApiError error{Code::kInvalidArgument, ""};
  error.issues = {
      {{"body", "questions", "team", "criteria", int64_t{3}}, "must be a level", "string_type"},
      {{"body", "state"}, "is required", "missing"}};
  const HttpResponse response = ErrorResponse(error);
  EXPECT_EQ(response.status, 422);
  EXPECT_EQ(
      response.body,
      R"({"detail": [{"loc": ["body", "questions", "team", "criteria", 3], "msg": "must be a level", )"
      R"("type": "string_type"}, {"loc": ["body", "state"], "msg": "is required", "type": "missing"}], )"
      R"("error": {"message": "must be a level", "type": "UnprocessableEntityError", )"
      R"("param": "questions.team.criteria.3", "code": 422}})");
}

TEST(Errors, AtMostTenBrokenRulesAreListed) {
  ApiError error{Code::kInvalidArgument, "many"};
  error.issues.assign(15, {{"body"}, "bad", "value_error"});
  EXPECT_EQ(Body(ErrorResponse(error)).Find("detail")->items().size(), 10u);
}

TEST(Errors, A422WithoutPlacesStillHasAList) {
  const Json detail = *Body(ErrorResponse({Code::kInvalidArgument, "no"})).Find("detail");
  ASSERT_EQ(detail.items().size(), 1u);
  EXPECT_EQ(detail.items()[0].Find("loc")->Dump(), R"(["body"])");
  EXPECT_EQ(detail.items()[0].Find("msg")->string(), "no");
}

TEST(Errors, BusyServersSayWhenToComeAgain) {
  for (const Code code : {Code::kUnavailable, Code::kRateLimited})
    EXPECT_EQ(*ErrorResponse({code, "busy"}).headers.Find("Retry-After"), "1");
  EXPECT_EQ(
      *ErrorResponse(ErrorFrom(Status(Code::kUnavailable, "busy"), 7)).headers.Find("Retry-After"),
      "7");
  EXPECT_EQ(ErrorResponse({Code::kNotFound, "no"}).headers.Find("Retry-After"), nullptr);
}

TEST(Errors, AStatusWithoutACodeIsTakenAsItIs) {
  ApiError error{Code::kInvalidArgument, "use POST"};
  error.http_status = 405;
  const HttpResponse response = ErrorResponse(error);
  EXPECT_EQ(response.status, 405);
  EXPECT_EQ(Body(response).Find("detail")->Find("error_type")->string(), "method_not_allowed");
  EXPECT_EQ(Body(response).Find("error")->Find("code")->number_text(), "405");
}

TEST(Errors, NothingOfTheInsideReachesAClient) {
  for (const Code code : {Code::kInternal, Code::kCorrupt, Code::kOutOfMemory}) {
    const HttpResponse response = ErrorResponse(ErrorFrom(Status(code, "/secret/path")));
    EXPECT_EQ(response.status, 500);
    EXPECT_EQ(response.body.find("secret"), std::string::npos);
  }
  EXPECT_NE(ErrorResponse(ErrorFrom(Status(Code::kTooLarge, "9 tokens"))).body.find("9 tokens"),
            std::string::npos);
}

TEST(Errors, AProblemOfTheDecisionLayerKeepsItsIssues) {
  const HttpResponse response =
      ErrorResponse(ErrorFrom(OneIssue({{"body", "state"}, "state is required", "missing"})));
  EXPECT_EQ(response.status, 422);
  EXPECT_EQ(Body(response).Find("error")->Find("param")->string(), "state");
  RequestProblem malformed{Status(Code::kMalformed, "not JSON"),
                           {{{"body"}, "not JSON", "json_invalid"}}};
  const HttpResponse bad = ErrorResponse(ErrorFrom(std::move(malformed)));
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(Body(bad).Find("detail")->Find("message")->string(), "not JSON");
  EXPECT_TRUE(Body(bad).Find("error")->Find("param")->is_null());
}

}  // namespace
}  // namespace sysone
