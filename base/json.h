// JSON as a small ordered tree that keeps what a decision needs kept: the order of keys and the text of numbers
// (1.0 stays 1.0, 1e400 stays 1e400). simdjson does the parsing in json.cc; nothing else includes it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace sysone {

class Json {
 public:
  enum class Type : uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };
  using Member = std::pair<std::string, Json>;

  Json() = default;  // null
  static Json Bool(bool value);
  static Json Number(std::string text);  // `text` must be a JSON number
  static Json String(std::string value);
  static Json Array(std::vector<Json> items);
  static Json Object(std::vector<Member> members);

  // Parses one document. Refuses, with kMalformed and the byte offset where known: anything but one JSON value
  // (NaN and Infinity included), invalid UTF-8, lone surrogate escapes, nesting deeper than `max_depth`.
  // Of duplicate keys the last value wins and keeps the first one's place, as in Python.
  static Result<Json> Parse(std::string_view text, int max_depth = 128);

  Type type() const { return type_; }
  bool is_null() const { return type_ == Type::kNull; }
  bool is_bool() const { return type_ == Type::kBool; }
  bool is_number() const { return type_ == Type::kNumber; }
  bool is_string() const { return type_ == Type::kString; }
  bool is_array() const { return type_ == Type::kArray; }
  bool is_object() const { return type_ == Type::kObject; }

  // Accessors of one type each; calling one on another type aborts.
  bool boolean() const;
  const std::string& number_text() const;
  const std::string& string() const;
  const std::vector<Json>& items() const;
  const std::vector<Member>& members() const;

  // The number's value; nullopt when this is no number, or (AsInt64) no integer in range.
  std::optional<double> AsDouble() const;
  std::optional<int64_t> AsInt64() const;

  // Member of an object by name; nullptr when absent or when this is no object.
  const Json* Find(std::string_view key) const;

  // Python's json.dumps(value, ensure_ascii=False): ", " and ": " separators, key order kept, number text as sent.
  std::string Dump() const;
  void DumpTo(std::string& out) const;

 private:
  Type type_ = Type::kNull;
  bool bool_ = false;
  std::string text_;  // string value or number text
  std::vector<Json> items_;
  std::vector<Member> members_;
};

// Appends `text` as a JSON string with quotes, escaping as Python's json.dumps(ensure_ascii=False).
void AppendJsonString(std::string& out, std::string_view text);

// Appends the shortest text that reads back as `value`; `value` must be finite. Integers get ".0", as in Python.
void AppendJsonDouble(std::string& out, double value);

}  // namespace sysone
