// SPDX-License-Identifier: Apache-2.0
#include "api_server/decision_request.h"

#include <algorithm>

#include "api_server/issue_list.h"
#include "api_server/question_parser.h"
#include "api_server/template_kwargs.h"
#include "api_server/utf8.h"
#include "base/check.h"

namespace sysone {
namespace {

constexpr size_t kMaxSaltCharacters = 128;
constexpr size_t kMaxRequestIdBytes = 256;

bool IsEmptyContainer(const Json& value) {
  return (value.is_array() && value.items().empty()) ||
         (value.is_object() && value.members().empty());
}

// Whether a body that does not parse was meant as a request. The public contract wants a
// validation error for an object that breaks off or has a slip in it; what is no JSON at all is
// another kind of mistake.
bool LooksLikeObject(std::string_view body) {
  const size_t first = body.find_first_not_of(" \n\r\t");
  return first != std::string_view::npos && body[first] == '{' && IsUtf8(body);
}

class Checker {
 public:
  explicit Checker(const RequestLimits& limits) : limits_(limits) {}

  OrProblem<DecisionRequest> Check(const Json& body) {
    DecisionRequest request;
    const Loc root = {"body"};
    if (!body.is_object()) {
      issues_.Add(root, "dict_type",
                  "must be a JSON object with 'state' and 'questions'; this is %s", KindOf(body));
      return issues_.Take();
    }
    if (const Json* state = body.Find("state")) {
      request.state = *state;
    } else {
      issues_.Add(Under(root, "state"), "missing",
                  "is required: send the text or JSON value that the questions are about");
    }
    if (const Json* questions = body.Find("questions")) {
      CheckQuestions(Under(root, "questions"), *questions, request);
    } else {
      issues_.Add(Under(root, "questions"), "missing",
                  "is required: an object from question id to question");
    }
    CheckOtherFields(root, body, request);
    if (!issues_.empty()) return issues_.Take();
    return request;
  }

 private:
  void CheckQuestions(const Loc& loc, const Json& questions, DecisionRequest& request) {
    if (!questions.is_object()) {
      issues_.Add(loc, "dict_type", "must be an object from question id to question; this is %s",
                  KindOf(questions));
      return;
    }
    const size_t count = questions.members().size();
    if (count == 0) issues_.Add(loc, "too_short", "must have at least one question");
    if (count > static_cast<size_t>(limits_.max_questions)) {
      issues_.Add(loc, "too_long",
                  "has %zu questions, more than the %d that one request may ask: split the request",
                  count, limits_.max_questions);
      return;
    }
    request.questions.reserve(count);
    for (const auto& [id, value] : questions.members())
      request.questions.push_back(ParseQuestion(Under(loc, id), id, value, limits_, issues_));
  }

  void CheckOtherFields(const Loc& root, const Json& body, DecisionRequest& request) {
    request.model = CheckString(root, body, "model");
    request.instructions = CheckString(root, body, "instructions");
    CheckKwargs(root, body, request);
    CheckMedia(root, body);
    CheckSalt(root, body, request);
    if (const Json* priority = Given(body, "priority")) {
      const std::optional<int64_t> number = priority->AsInt64();
      if (!number)
        issues_.Add(Under(root, "priority"), "int_type",
                    "must be a whole number that fits 64 bits");
      request.priority = number.value_or(0);
    }
    CheckRequestId(root, body, request);
    if (const Json* diagnostics = Given(body, "diagnostics")) {
      if (diagnostics->is_bool()) {
        request.diagnostics = diagnostics->boolean();
      } else {
        issues_.Add(Under(root, "diagnostics"), "bool_type", "must be true or false; this is %s",
                    KindOf(*diagnostics));
      }
    }
  }

  // A string, or null or absent: "".
  std::string CheckString(const Loc& root, const Json& body, const std::string& key) {
    const Json* value = Given(body, key);
    if (value == nullptr) return {};
    if (value->is_string()) return value->string();
    issues_.Add(Under(root, key), "string_type", "must be a string; this is %s", KindOf(*value));
    return {};
  }

  void CheckKwargs(const Loc& root, const Json& body, DecisionRequest& request) {
    const Json* kwargs = Given(body, "chat_template_kwargs");
    if (kwargs == nullptr) return;
    const Loc loc = Under(root, "chat_template_kwargs");
    if (!kwargs->is_object()) {
      issues_.Add(loc, "dict_type", "must be an object; this is %s", KindOf(*kwargs));
      return;
    }
    for (const auto& [key, value] : kwargs->members())
      if (const char* problem = TemplateKwargProblem(key, value))
        issues_.Add(Under(loc, key), "value_error", "%s", problem);
    request.chat_template_kwargs = *kwargs;
  }

  void CheckMedia(const Loc& root, const Json& body) {
    for (const char* key : {"images", "audio", "videos"}) {
      const Json* value = Given(body, key);
      if (value == nullptr || (value->is_array() && value->items().empty())) continue;
      if (value->is_array()) {
        issues_.Add(Under(root, key), "value_error",
                    "cannot be read by this model: remove them, or describe them in 'state'");
      } else {
        issues_.Add(Under(root, key), "list_type", "must be a list of URLs; this is %s",
                    KindOf(*value));
      }
    }
    const Json* assets = Given(body, "assets");
    if (assets != nullptr && !IsEmptyContainer(*assets))
      issues_.Add(Under(root, "assets"), "value_error",
                  "are not supported: remove them, or describe them in 'state'");
  }

  void CheckSalt(const Loc& root, const Json& body, DecisionRequest& request) {
    if (Given(body, "cache_salt") == nullptr) return;
    request.cache_salt = CheckString(root, body, "cache_salt");
    if (!body.Find("cache_salt")->is_string()) return;
    const std::string& salt = request.cache_salt;
    const auto characters = std::count_if(salt.begin(), salt.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // not a continuation byte of UTF-8
    });
    if (characters < 1 || characters > static_cast<ptrdiff_t>(kMaxSaltCharacters))
      issues_.Add(Under(root, "cache_salt"), "value_error",
                  "must have 1 to %zu characters; leave it out for none", kMaxSaltCharacters);
    if (salt.find_first_of(std::string_view("@/\\\0", 4)) != std::string::npos)
      issues_.Add(Under(root, "cache_salt"), "value_error",
                  "must not contain '@', '/', '\\' or a zero character");
  }

  void CheckRequestId(const Loc& root, const Json& body, DecisionRequest& request) {
    request.request_id = CheckString(root, body, "request_id");
    const std::string& id = request.request_id;
    // It comes back in a header: what could end or break one is refused.
    const bool printable =
        std::all_of(id.begin(), id.end(), [](char c) { return c >= 0x20 && c < 0x7F; });
    if (!printable || id.size() > kMaxRequestIdBytes)
      issues_.Add(Under(root, "request_id"), "value_error",
                  "must be at most %zu printable ASCII characters", kMaxRequestIdBytes);
  }

  const RequestLimits& limits_;
  IssueList issues_;
};

}  // namespace

const char* QuestionTypeName(QuestionType type) {
  switch (type) {
    case QuestionType::kChoice:
      return "choice";
    case QuestionType::kNoul:
      return "noul";
    case QuestionType::kScore:
      return "score";
  }
  SYSONE_CHECK(false, "no such question type");
}

std::string RenderText(const Json& value) {
  if (value.is_string()) return value.string();
  return value.is_null() ? std::string() : value.Dump();
}

OrProblem<DecisionRequest> ParseDecisionRequest(std::string_view body,
                                                const RequestLimits& limits) {
  const Result<Json> json = Json::Parse(body, limits.max_depth);
  if (!json.ok()) {
    const std::string message = "body is " + json.status().message();
    const Code code = LooksLikeObject(body) ? Code::kInvalidArgument : Code::kMalformed;
    return RequestProblem{Status(code, message), {{{"body"}, message, "json_invalid"}}};
  }
  return Checker(limits).Check(*json);
}

}  // namespace sysone
