// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <simdjson.h>

#include <charconv>
#include <cmath>
#include <unordered_map>

namespace sysone {
namespace {

namespace od = simdjson::ondemand;

// Objects with more members than this find their duplicates through a hash map; smaller ones by looking along.
constexpr size_t kLinearMembers = 16;

bool IsJsonNumber(std::string_view text) {
  size_t i = 0;
  const auto digits = [&] {
    const size_t start = i;
    while (i < text.size() && text[i] >= '0' && text[i] <= '9') ++i;
    return i - start;
  };
  if (i < text.size() && text[i] == '-') ++i;
  if (i < text.size() && text[i] == '0') {
    ++i;
  } else if (digits() == 0) {
    return false;
  }
  if (i < text.size() && text[i] == '.') {
    ++i;
    if (digits() == 0) return false;
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (digits() == 0) return false;
  }
  return i == text.size();
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \n\r\t";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

class Builder {
 public:
  explicit Builder(int max_depth) : max_depth_(max_depth) {}

  // Value is od::value or od::document: they share their interface but no base class.
  template <class Value>
  Status Build(Value& source, int depth, Json& out) {
    od::json_type type;
    if (auto error = source.type().get(type)) return Fail(error);
    switch (type) {
      case od::json_type::object: return BuildObject(source, depth + 1, out);
      case od::json_type::array: return BuildArray(source, depth + 1, out);
      case od::json_type::string: {
        std::string_view text;
        if (auto error = source.get_string().get(text)) return Fail(error);
        out = Json::String(std::string(text));
        return {};
      }
      case od::json_type::number: return BuildNumber(source, out);
      case od::json_type::boolean: {
        bool value;
        if (auto error = source.get_bool().get(value)) return Fail(error);
        out = Json::Bool(value);
        return {};
      }
      case od::json_type::null:
        if (RawToken(source) != "null") return Fail(simdjson::N_ATOM_ERROR);
        if (!source.is_null()) return Fail(simdjson::N_ATOM_ERROR);
        out = Json();
        return {};
    }
    return Fail(simdjson::TAPE_ERROR);
  }

  static Status Fail(simdjson::error_code error) {
    return Error(Code::kMalformed, "not valid JSON: %s", simdjson::error_message(error));
  }

 private:
  static std::string_view RawToken(od::value& value) { return Trim(value.raw_json_token()); }
  static std::string_view RawToken(od::document& document) {
    std::string_view token;
    if (document.raw_json_token().get(token)) return {};
    return Trim(token);
  }

  template <class Value>
  Status BuildNumber(Value& source, Json& out) {
    const std::string text(RawToken(source));
    if (!IsJsonNumber(text)) return Fail(simdjson::NUMBER_ERROR);
    out = Json::Number(text);
    return {};
  }

  template <class Value>
  Status BuildArray(Value& source, int depth, Json& out) {
    if (depth > max_depth_) return TooDeep();
    od::array array;
    if (auto error = source.get_array().get(array)) return Fail(error);
    std::vector<Json> items;
    for (auto element : array) {
      od::value value;
      if (auto error = element.get(value)) return Fail(error);
      items.emplace_back();
      SYSONE_RETURN_IF_ERROR(Build(value, depth, items.back()));
    }
    out = Json::Array(std::move(items));
    return {};
  }

  template <class Value>
  Status BuildObject(Value& source, int depth, Json& out) {
    if (depth > max_depth_) return TooDeep();
    od::object object;
    if (auto error = source.get_object().get(object)) return Fail(error);
    std::vector<Json::Member> members;
    std::unordered_map<std::string, size_t> places;
    for (auto field_result : object) {
      od::field field;
      if (auto error = std::move(field_result).get(field)) return Fail(error);
      std::string_view key;
      if (auto error = field.unescaped_key().get(key)) return Fail(error);
      Json& slot = Place(members, places, std::string(key));
      SYSONE_RETURN_IF_ERROR(Build(field.value(), depth, slot));
    }
    out = Json::Object(std::move(members));
    return {};
  }

  static Json& Place(std::vector<Json::Member>& members, std::unordered_map<std::string, size_t>& places,
                     std::string key) {
    if (members.size() < kLinearMembers) {
      for (auto& [name, value] : members)
        if (name == key) return value;
    } else {
      if (places.empty())
        for (size_t i = 0; i < members.size(); ++i) places.emplace(members[i].first, i);
      const auto [at, inserted] = places.emplace(key, members.size());
      if (!inserted) return members[at->second].second;
    }
    members.emplace_back(std::move(key), Json());
    return members.back().second;
  }

  Status TooDeep() const {
    return Error(Code::kMalformed, "JSON is nested deeper than %d levels", max_depth_);
  }

  const int max_depth_;
};

// Parsers keep their buffers; one a thread makes a request's parse free of large allocations.
od::parser& ThreadParser() {
  thread_local od::parser parser;
  return parser;
}

// A buffer larger than this is given back after its parse instead of being kept by the thread.
constexpr size_t kKeptBytes = 1 << 20;

}  // namespace

Json Json::Bool(bool value) {
  Json json;
  json.type_ = Type::kBool;
  json.bool_ = value;
  return json;
}

Json Json::Number(std::string text) {
  SYSONE_CHECK(IsJsonNumber(text), "'%s' is no JSON number", text.c_str());
  Json json;
  json.type_ = Type::kNumber;
  json.text_ = std::move(text);
  return json;
}

Json Json::String(std::string value) {
  Json json;
  json.type_ = Type::kString;
  json.text_ = std::move(value);
  return json;
}

Json Json::Array(std::vector<Json> items) {
  Json json;
  json.type_ = Type::kArray;
  json.items_ = std::move(items);
  return json;
}

Json Json::Object(std::vector<Member> members) {
  Json json;
  json.type_ = Type::kObject;
  json.members_ = std::move(members);
  return json;
}

Result<Json> Json::Parse(std::string_view text, int max_depth) {
  // A document that is one number is taken as it stands: simdjson would insist on its value fitting a double.
  if (IsJsonNumber(Trim(text))) return Json::Number(std::string(Trim(text)));
  const simdjson::padded_string padded(text);
  od::parser& parser = ThreadParser();
  Json json;
  Status status;
  {
    od::document document;
    if (auto error = parser.iterate(padded).get(document)) {
      status = Builder::Fail(error);
    } else {
      bool scalar = false;
      if (auto error2 = document.is_scalar().get(scalar)) {
        status = Builder::Fail(error2);
      } else {
        status = Builder(max_depth).Build(document, 0, json);
      }
      const char* next = nullptr;
      if (status.ok() && document.current_location().get(next) != simdjson::OUT_OF_BOUNDS)
        status = Error(Code::kMalformed, "not valid JSON: something follows the end of the document");
    }
  }
  if (text.size() > kKeptBytes) parser = od::parser();
  if (!status.ok()) return status;
  return json;
}

bool Json::boolean() const {
  SYSONE_CHECK(is_bool(), "not a bool");
  return bool_;
}
const std::string& Json::number_text() const {
  SYSONE_CHECK(is_number(), "not a number");
  return text_;
}
const std::string& Json::string() const {
  SYSONE_CHECK(is_string(), "not a string");
  return text_;
}
const std::vector<Json>& Json::items() const {
  SYSONE_CHECK(is_array(), "not an array");
  return items_;
}
const std::vector<Json::Member>& Json::members() const {
  SYSONE_CHECK(is_object(), "not an object");
  return members_;
}

std::optional<double> Json::AsDouble() const {
  if (!is_number()) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
  if (error == std::errc::result_out_of_range) return std::strtod(text_.c_str(), nullptr);
  return value;
}

std::optional<int64_t> Json::AsInt64() const {
  if (!is_number()) return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
  if (error != std::errc() || end != text_.data() + text_.size()) return std::nullopt;
  return value;
}

const Json* Json::Find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const auto& [name, value] : members_)
    if (name == key) return &value;
  return nullptr;
}

std::string Json::Dump() const {
  std::string out;
  DumpTo(out);
  return out;
}

void Json::DumpTo(std::string& out) const {
  switch (type_) {
    case Type::kNull: out += "null"; return;
    case Type::kBool: out += bool_ ? "true" : "false"; return;
    case Type::kNumber: out += text_; return;
    case Type::kString: AppendJsonString(out, text_); return;
    case Type::kArray: {
      out += '[';
      for (size_t i = 0; i < items_.size(); ++i) {
        if (i > 0) out += ", ";
        items_[i].DumpTo(out);
      }
      out += ']';
      return;
    }
    case Type::kObject: {
      out += '{';
      for (size_t i = 0; i < members_.size(); ++i) {
        if (i > 0) out += ", ";
        AppendJsonString(out, members_[i].first);
        out += ": ";
        members_[i].second.DumpTo(out);
      }
      out += '}';
      return;
    }
  }
}

void AppendJsonString(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += "\\u00";
          out += kHex[static_cast<unsigned char>(c) >> 4];
          out += kHex[c & 15];
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

void AppendJsonDouble(std::string& out, double value) {
  SYSONE_CHECK(std::isfinite(value), "JSON has no NaN or Infinity");
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  SYSONE_CHECK(error == std::errc(), "a double needs at most 24 characters");
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

}  // namespace sysone
