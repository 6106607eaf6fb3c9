// SPDX-License-Identifier: Apache-2.0
#include "api_server/question_parser.h"

namespace sysone {
namespace {

constexpr size_t kMinLevels = 2;
constexpr size_t kMaxLevels = 10;

bool IsText(const Json& value) {
  return value.is_string() || value.is_object() || value.is_array();
}

class Parser {
 public:
  Parser(const RequestLimits& limits, IssueList& issues) : limits_(limits), issues_(issues) {}

  Question Parse(const Loc& loc, const std::string& id, const Json& value) {
    Question question;
    question.id = id;
    if (id.empty())
      issues_.Add(loc, "string_too_short", "has a question whose id is empty: give it a name");
    if (!value.is_object()) {
      issues_.Add(loc, "dict_type",
                  "must be an object with 'type', 'instructions' and 'criteria'; this is %s",
                  KindOf(value));
      return question;
    }
    if (!CheckType(loc, value, question)) return question;
    for (const auto& [key, unused] : value.members())
      if (key != "type" && key != "instructions" && key != "criteria")
        issues_.Add(
            Under(loc, key), "extra_forbidden",
            "is not a field of a question: remove it (a question has 'type', 'instructions' and "
            "'criteria')");
    if (const Json* instructions = Given(value, "instructions")) {
      if (IsText(*instructions)) {
        question.instructions = RenderText(*instructions);
      } else {
        issues_.Add(Under(loc, "instructions"), "string_type",
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

 private:
  bool CheckType(const Loc& question_loc, const Json& value, Question& question) {
    const Loc loc = Under(question_loc, "type");
    const Json* type = value.Find("type");
    if (type == nullptr) {
      issues_.Add(loc, "missing", "is required: 'choice', 'noul' or 'score'");
      return false;
    }
    if (type->is_string()) {
      for (const auto known : {QuestionType::kChoice, QuestionType::kNoul, QuestionType::kScore})
        if (type->string() == QuestionTypeName(known)) {
          question.type = known;
          return true;
        }
      issues_.Add(loc, "literal_error", "must be 'choice', 'noul' or 'score'; this is '%s'",
                  Shown(type->string()).c_str());
    } else {
      issues_.Add(loc, "literal_error", "must be 'choice', 'noul' or 'score'; this is %s",
                  KindOf(*type));
    }
    return false;
  }

  // A description or null, as text.
  std::string CheckDescription(const Loc& loc, const Json& value) {
    if (IsText(value)) return RenderText(value);
    if (!value.is_null())
      issues_.Add(loc, "string_type",
                  "must be a description (string, object or array) or null; this is %s",
                  KindOf(value));
    return {};
  }

  void CheckChoice(const Loc& loc, const Json* criteria, Question& question) {
    if (criteria == nullptr) {
      issues_.Add(loc, "missing",
                  "is required for a choice: an object from option name to description or null");
      return;
    }
    if (!criteria->is_object()) {
      issues_.Add(loc, "dict_type",
                  "must be an object from option name to description or null; this is %s",
                  KindOf(*criteria));
      return;
    }
    const size_t count = criteria->members().size();
    if (count == 0) issues_.Add(loc, "too_short", "must have at least one option");
    if (count > static_cast<size_t>(limits_.max_options)) {
      issues_.Add(loc, "too_long",
                  "has %zu options, more than the %d that a choice may have: merge or split them",
                  count, limits_.max_options);
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
      issues_.Add(loc, "dict_type",
                  "must be an object with 'true' and / or 'false', or null; this is %s",
                  KindOf(*criteria));
      return;
    }
    for (const auto& [key, value] : criteria->members()) {
      if (key == "true" || key == "false") {
        question.options[key == "true" ? 0 : 1].description =
            CheckDescription(Under(loc, key), value);
      } else {
        issues_.Add(Under(loc, key), "extra_forbidden",
                    "is not a criterion of a noul: only 'true' and 'false' are");
      }
    }
  }

  void CheckScore(const Loc& loc, const Json* criteria, Question& question) {
    if (criteria == nullptr) {
      issues_.Add(loc, "missing", "is required for a score: an array of levels, lowest first");
      return;
    }
    if (!criteria->is_array()) {
      issues_.Add(loc, "list_type", "must be an array of levels, lowest first; this is %s",
                  KindOf(*criteria));
      return;
    }
    const std::vector<Json>& levels = criteria->items();
    if (levels.size() < kMinLevels || levels.size() > kMaxLevels) {
      issues_.Add(loc, levels.size() < kMinLevels ? "too_short" : "too_long",
                  "has %zu levels; a score has %zu to %zu", levels.size(), kMinLevels, kMaxLevels);
      return;
    }
    for (size_t i = 0; i < levels.size(); ++i) {
      if (!IsText(levels[i]))
        issues_.Add(Under(loc, static_cast<int64_t>(i)), "string_type",
                    "must be a level (string, object or array); this is %s", KindOf(levels[i]));
      question.options.push_back({std::to_string(i), RenderText(levels[i]), "", levels[i]});
    }
  }

  const RequestLimits& limits_;
  IssueList& issues_;
};

}  // namespace

Question ParseQuestion(const Loc& loc, const std::string& id, const Json& value,
                       const RequestLimits& limits, IssueList& issues) {
  return Parser(limits, issues).Parse(loc, id, value);
}

}  // namespace sysone
