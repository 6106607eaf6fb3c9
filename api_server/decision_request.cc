// SPDX-License-Identifier: Apache-2.0
#include "api_server/decision_request.h"

#include <algorithm>
#include <utility>

#include "api_server/template_kwargs.h"
#include "base/check.h"
#include "base/log.h"

namespace sysone {
namespace {

using Loc = std::vector<ValidationIssue::LocPart>;

constexpr size_t kMinLevels = 2;
constexpr size_t kMaxLevels = 10;
constexpr size_t kMaxSaltCharacters = 128;
constexpr size_t kMaxRequestIdBytes = 256;

const char* KindOf(const Json& value) {
  switch (value.type()) {
    case Json::Type::kNull:
      return "null";
    case Json::Type::kBool:
      return "a boolean";
    case Json::Type::kNumber:
      return "a number";
    case Json::Type::kString:
      return "a string";
    case Json::Type::kArray:
      return "an array";
    case Json::Type::kObject:
      return "an object";
  }
  SYSONE_CHECK(false, "no such JSON type");
}

bool IsText(const Json& value) {
  return value.is_string() || value.is_object() || value.is_array();
}

bool IsEmptyContainer(const Json& value) {
  return (value.is_array() && value.items().empty()) ||
         (value.is_object() && value.members().empty());
}

// Present and not null.
const Json* Given(const Json& object, std::string_view key) {
  const Json* value = object.Find(key);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

Loc Under(Loc loc, ValidationIssue::LocPart part) {
  loc.push_back(std::move(part));
  return loc;
}

bool IsUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) {
      return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
    };
    const uint32_t lead = byte(i);
    const size_t length = lead < 0x80   ? 1
                          : lead < 0xC2 ? 0
                          : lead < 0xE0 ? 2
                          : lead < 0xF0 ? 3
                          : lead < 0xF5 ? 4
                                        : 0;
    if (length == 0) return false;
    uint32_t code = length == 1 ? lead : lead & (0x7Fu >> length);
    for (size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xC0) != 0x80) return false;
      code = code << 6 | (byte(i + k) & 0x3F);
    }
    const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
    if (overlong || (code >= 0xD800 && code < 0xE000) || code > 0x10FFFF) return false;
    i += length;
  }
  return true;
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
      Add(root, "dict_type", "must be a JSON object with 'state' and 'questions'; this is %s",
          KindOf(body));
      return TakeProblem();
    }
    if (const Json* state = body.Find("state")) {
      request.state = *state;
    } else {
      Add(Under(root, "state"), "missing",
          "is required: send the text or JSON value that the questions are about");
    }
    if (const Json* questions = body.Find("questions")) {
      CheckQuestions(Under(root, "questions"), *questions, request);
    } else {
      Add(Under(root, "questions"), "missing",
          "is required: an object from question id to question");
    }
    CheckOtherFields(root, body, request);
    if (!issues_.empty()) return TakeProblem();
    return request;
  }

 private:
  [[gnu::format(printf, 4, 5)]] void Add(const Loc& loc, const char* type, const char* format,
                                         ...) {
    if (issues_.size() >= kMaxListedIssues) return;
    va_list args;
    va_start(args, format);
    issues_.push_back({loc, PathOf(loc) + " " + VFormat(format, args), type});
    va_end(args);
  }

  RequestProblem TakeProblem() {
    return {Status(Code::kInvalidArgument, issues_.front().msg), std::move(issues_)};
  }

  void CheckQuestions(const Loc& loc, const Json& questions, DecisionRequest& request) {
    if (!questions.is_object()) {
      Add(loc, "dict_type", "must be an object from question id to question; this is %s",
          KindOf(questions));
      return;
    }
    const size_t count = questions.members().size();
    if (count == 0) Add(loc, "too_short", "must have at least one question");
    if (count > static_cast<size_t>(limits_.max_questions)) {
      Add(loc, "too_long",
          "has %zu questions, more than the %d that one request may ask: split the request", count,
          limits_.max_questions);
      return;
    }
    request.questions.reserve(count);
    for (const auto& [id, value] : questions.members())
      request.questions.push_back(CheckQuestion(Under(loc, id), id, value));
  }

  Question CheckQuestion(const Loc& loc, const std::string& id, const Json& value) {
    Question question;
    question.id = id;
    if (id.empty())
      Add(loc, "string_too_short", "has a question whose id is empty: give it a name");
    if (!value.is_object()) {
      Add(loc, "dict_type",
          "must be an object with 'type', 'instructions' and 'criteria'; this is %s",
          KindOf(value));
      return question;
    }
    if (!CheckType(loc, value, question)) return question;
    for (const auto& [key, unused] : value.members())
      if (key != "type" && key != "instructions" && key != "criteria")
        Add(Under(loc, key), "extra_forbidden",
            "is not a field of a question: remove it (a question has 'type', 'instructions' and "
            "'criteria')");
    if (const Json* instructions = Given(value, "instructions")) {
      if (IsText(*instructions)) {
        question.instructions = RenderText(*instructions);
      } else {
        Add(Under(loc, "instructions"), "string_type",
            "must be a string, object, array or null; this is %s", KindOf(*instructions));
      }
    }
    const Loc criteria_loc = Under(loc, "criteria");
    const Json* criteria = value.Find("criteria");
    switch (question.type) {
      case QuestionType::kChoice:
        CheckChoice(criteria_loc, criteria, question);
        break;
      case QuestionType::kNoul:
        CheckNoul(criteria_loc, criteria, question);
        break;
      case QuestionType::kScore:
        CheckScore(criteria_loc, criteria, question);
        break;
    }
    return question;
  }

  bool CheckType(const Loc& question_loc, const Json& value, Question& question) {
    const Loc loc = Under(question_loc, "type");
    const Json* type = value.Find("type");
    if (type == nullptr) {
      Add(loc, "missing", "is required: 'choice', 'noul' or 'score'");
      return false;
    }
    if (type->is_string()) {
      for (const auto known : {QuestionType::kChoice, QuestionType::kNoul, QuestionType::kScore})
        if (type->string() == QuestionTypeName(known)) {
          question.type = known;
          return true;
        }
      Add(loc, "literal_error", "must be 'choice', 'noul' or 'score'; this is '%s'",
          Shown(type->string()).c_str());
    } else {
      Add(loc, "literal_error", "must be 'choice', 'noul' or 'score'; this is %s", KindOf(*type));
    }
    return false;
  }

  // A description or null, as text.
  std::string CheckDescription(const Loc& loc, const Json& value) {
    if (IsText(value)) return RenderText(value);
    if (!value.is_null())
      Add(loc, "string_type", "must be a description (string, object or array) or null; this is %s",
          KindOf(value));
    return {};
  }

  void CheckChoice(const Loc& loc, const Json* criteria, Question& question) {
    if (criteria == nullptr) {
      Add(loc, "missing",
          "is required for a choice: an object from option name to description or null");
      return;
    }
    if (!criteria->is_object()) {
      Add(loc, "dict_type", "must be an object from option name to description or null; this is %s",
          KindOf(*criteria));
      return;
    }
    const size_t count = criteria->members().size();
    if (count == 0) Add(loc, "too_short", "must have at least one option");
    if (count > static_cast<size_t>(limits_.max_options)) {
      Add(loc, "too_long",
          "has %zu options, more than the %d that a choice may have: merge or split them", count,
          limits_.max_options);
      return;
    }
    question.options.reserve(count);
    for (const auto& [name, value] : criteria->members())
      question.options.push_back({name, name, CheckDescription(Under(loc, name), value), Json()});
  }

  void CheckNoul(const Loc& loc, const Json* criteria, Question& question) {
    question.options = {{"yes", "", "", Json()}, {"no", "", "", Json()}};
    if (criteria == nullptr || criteria->is_null()) return;
    if (!criteria->is_object()) {
      Add(loc, "dict_type", "must be an object with 'true' and / or 'false', or null; this is %s",
          KindOf(*criteria));
      return;
    }
    for (const auto& [key, value] : criteria->members()) {
      if (key == "true" || key == "false") {
        question.options[key == "true" ? 0 : 1].description =
            CheckDescription(Under(loc, key), value);
      } else {
        Add(Under(loc, key), "extra_forbidden",
            "is not a criterion of a noul: only 'true' and 'false' are");
      }
    }
  }

  void CheckScore(const Loc& loc, const Json* criteria, Question& question) {
    if (criteria == nullptr) {
      Add(loc, "missing", "is required for a score: an array of levels, lowest first");
      return;
    }
    if (!criteria->is_array()) {
      Add(loc, "list_type", "must be an array of levels, lowest first; this is %s",
          KindOf(*criteria));
      return;
    }
    const std::vector<Json>& levels = criteria->items();
    if (levels.size() < kMinLevels || levels.size() > kMaxLevels) {
      Add(loc, levels.size() < kMinLevels ? "too_short" : "too_long",
          "has %zu levels; a score has %zu to %zu", levels.size(), kMinLevels, kMaxLevels);
      return;
    }
    for (size_t i = 0; i < levels.size(); ++i) {
      if (!IsText(levels[i]))
        Add(Under(loc, static_cast<int64_t>(i)), "string_type",
            "must be a level (string, object or array); this is %s", KindOf(levels[i]));
      question.options.push_back({std::to_string(i), RenderText(levels[i]), "", levels[i]});
    }
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
        Add(Under(root, "priority"), "int_type", "must be a whole number that fits 64 bits");
      request.priority = number.value_or(0);
    }
    CheckRequestId(root, body, request);
    if (const Json* diagnostics = Given(body, "diagnostics")) {
      if (diagnostics->is_bool()) {
        request.diagnostics = diagnostics->boolean();
      } else {
        Add(Under(root, "diagnostics"), "bool_type", "must be true or false; this is %s",
            KindOf(*diagnostics));
      }
    }
  }

  // A string, or null or absent: "".
  std::string CheckString(const Loc& root, const Json& body, const std::string& key) {
    const Json* value = Given(body, key);
    if (value == nullptr) return {};
    if (value->is_string()) return value->string();
    Add(Under(root, key), "string_type", "must be a string; this is %s", KindOf(*value));
    return {};
  }

  void CheckKwargs(const Loc& root, const Json& body, DecisionRequest& request) {
    const Json* kwargs = Given(body, "chat_template_kwargs");
    if (kwargs == nullptr) return;
    const Loc loc = Under(root, "chat_template_kwargs");
    if (!kwargs->is_object()) {
      Add(loc, "dict_type", "must be an object; this is %s", KindOf(*kwargs));
      return;
    }
    for (const auto& [key, value] : kwargs->members())
      if (const char* problem = TemplateKwargProblem(key, value))
        Add(Under(loc, key), "value_error", "%s", problem);
    request.chat_template_kwargs = *kwargs;
  }

  void CheckMedia(const Loc& root, const Json& body) {
    for (const char* key : {"images", "audio", "videos"}) {
      const Json* value = Given(body, key);
      if (value == nullptr || (value->is_array() && value->items().empty())) continue;
      if (value->is_array()) {
        Add(Under(root, key), "value_error",
            "cannot be read by this model: remove them, or describe them in 'state'");
      } else {
        Add(Under(root, key), "list_type", "must be a list of URLs; this is %s", KindOf(*value));
      }
    }
    const Json* assets = Given(body, "assets");
    if (assets != nullptr && !IsEmptyContainer(*assets))
      Add(Under(root, "assets"), "value_error",
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
      Add(Under(root, "cache_salt"), "value_error",
          "must have 1 to %zu characters; leave it out for none", kMaxSaltCharacters);
    if (salt.find_first_of(std::string_view("@/\\\0", 4)) != std::string::npos)
      Add(Under(root, "cache_salt"), "value_error",
          "must not contain '@', '/', '\\' or a zero character");
  }

  void CheckRequestId(const Loc& root, const Json& body, DecisionRequest& request) {
    request.request_id = CheckString(root, body, "request_id");
    const std::string& id = request.request_id;
    // It comes back in a header: what could end or break one is refused.
    const bool printable =
        std::all_of(id.begin(), id.end(), [](char c) { return c >= 0x20 && c < 0x7F; });
    if (!printable || id.size() > kMaxRequestIdBytes)
      Add(Under(root, "request_id"), "value_error",
          "must be at most %zu printable ASCII characters", kMaxRequestIdBytes);
  }

  const RequestLimits& limits_;
  std::vector<ValidationIssue> issues_;
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
