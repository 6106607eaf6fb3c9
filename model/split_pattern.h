// How a piece of text is cut into words before byte pair encoding. The library does it with regular expressions; here
// each known expression is a hand-written matcher that makes the same choices, alternative by alternative.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "model/unicode.h"

namespace sysone {

enum class SplitPattern : uint8_t {
  kWhole,   // no cut
  kGpt2,    // the ByteLevel step's own expression; also SmolLM's second step
  kLlama3,  // Llama 3 and LFM2: numbers in groups of up to three digits
  kQwen2,   // Qwen2, Qwen2.5 and Qwen3: digits one at a time
  kQwen35,  // Qwen3.5: as Qwen2, and combining marks belong to the word
};

// The pattern whose regular expression is exactly `regex`; nullopt when we have no matcher for it.
std::optional<SplitPattern> SplitPatternFromRegex(std::string_view regex);

// Calls emit(std::string_view word) for each word of `piece`, in order; together they are the piece.
template <class Emit>
void SplitWords(SplitPattern pattern, std::string_view piece, Emit&& emit);

namespace internal {

// A character's CharClass bits, and where the next character starts.
struct ClassifiedChar {
  uint8_t bits;
  const char* next;
};

// Reads the character at `at` (at < end).
inline ClassifiedChar ReadChar(const CharClasses& classes, const char* at, const char* end) {
  const auto byte = static_cast<uint8_t>(*at);
  if (byte < 0x80) return {classes.OfAscii(byte), at + 1};
  const CodePoint c = DecodeUtf8(at, end);
  return {classes.Of(c.value), at + c.length};
}

// End of the longest run, from `at` on, of characters that have any (kAny) or none (!kAny) of the bits of kMask.
template <uint8_t kMask, bool kAny>
const char* SkipRun(const CharClasses& classes, const char* at, const char* end) {
  while (at < end) {
    const ClassifiedChar c = ReadChar(classes, at, end);
    if (((c.bits & kMask) != 0) != kAny) break;
    at = c.next;
  }
  return at;
}

// Length of 's 't 're 've 'm 'll 'd at `at`, where an apostrophe stands; 0 when there is none. In any case, the expression
// also takes the long s (U+017F), whose simple case folding is s.
template <bool kAnyCase>
size_t ContractionLength(const char* at, const char* end) {
  const auto letter = [at, end](std::ptrdiff_t i) -> char {
    if (end - at <= i) return 0;
    const char c = at[i];
    return kAnyCase && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return letter(2) == 'e' ? 3 : 0;
    case 'l':
      return letter(2) == 'l' ? 3 : 0;
    case '\xC5':
      return kAnyCase && letter(2) == '\xBF' ? 3 : 0;
    default:
      return 0;
  }
}

// Runs of white space, for the alternatives \s*[\r\n]+ (where kNewlines), \s+(?!\S) and \s+, in this order.
template <bool kNewlines>
const char* SpaceEnd(const CharClasses& classes, const char* at, const char* end) {
  const char* newline_end = nullptr;
  const char* last = at;  // start of the run's last character
  const char* run = at;
  while (run < end) {
    const ClassifiedChar c = ReadChar(classes, run, end);
    if (!(c.bits & kSpace)) break;
    last = run;
    if (kNewlines && (*run == '\n' || *run == '\r')) newline_end = c.next;
    run = c.next;
  }
  if (newline_end != nullptr) return newline_end;
  // Before a word the last space is left to it; a single space is taken all the same.
  return run == end || last == at ? run : last;
}

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
inline const char* Gpt2WordEnd(const CharClasses& classes, const char* at, const char* end) {
  if (*at == '\'')
    if (const size_t length = ContractionLength<false>(at, end)) return at + length;
  ClassifiedChar c = ReadChar(classes, at, end);
  if (*at == ' ' && c.next < end) {
    const ClassifiedChar after = ReadChar(classes, c.next, end);
    if (!(after.bits & kSpace)) c = after;
  }
  if (c.bits & kLetter) return SkipRun<kLetter, true>(classes, c.next, end);
  if (c.bits & kNumber) return SkipRun<kNumber, true>(classes, c.next, end);
  if (!(c.bits & kSpace)) return SkipRun<kSpace | kLetter | kNumber, false>(classes, c.next, end);
  return SpaceEnd<false>(classes, at, end);
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?W+|\p{N}{1,kMaxDigits}| ?[^\s\p{L}\p{N}W]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// where W is kWordBits: \p{L}, or [\p{L}\p{M}].
template <uint8_t kWordBits, int kMaxDigits>
const char* ModernWordEnd(const CharClasses& classes, const char* at, const char* end) {
  if (*at == '\'')
    if (const size_t length = ContractionLength<true>(at, end)) return at + length;
  const ClassifiedChar c = ReadChar(classes, at, end);
  if (c.bits & kWordBits) return SkipRun<kWordBits, true>(classes, c.next, end);
  if (c.bits & kNumber) {
    const char* number_end = c.next;
    for (int digits = 1; digits < kMaxDigits && number_end < end; ++digits) {
      const ClassifiedChar digit = ReadChar(classes, number_end, end);
      if (!(digit.bits & kNumber)) break;
      number_end = digit.next;
    }
    return number_end;
  }
  const char* symbols = c.bits & kSpace ? nullptr : c.next;  // after the first of [^\s\p{L}\p{N}W]+
  if (c.next < end && *at != '\r' && *at != '\n') {
    const ClassifiedChar after = ReadChar(classes, c.next, end);
    if (after.bits & kWordBits) return SkipRun<kWordBits, true>(classes, after.next, end);
    if (*at == ' ' && !(after.bits & (kSpace | kNumber))) symbols = after.next;
  }
  if (symbols == nullptr) return SpaceEnd<true>(classes, at, end);
  symbols = SkipRun<kSpace | kNumber | kWordBits, false>(classes, symbols, end);
  while (symbols < end && (*symbols == '\r' || *symbols == '\n')) ++symbols;
  return symbols;
}

// Cuts `piece` where word_end(at, end) says that the word at `at` ends, always after `at`.
template <class WordEnd, class Emit>
void EmitWords(std::string_view piece, WordEnd word_end, Emit& emit) {
  const char* at = piece.data();
  const char* const end = at + piece.size();
  while (at < end) {
    const char* const next = word_end(at, end);
    emit(std::string_view(at, static_cast<size_t>(next - at)));
    at = next;
  }
}

}  // namespace internal

// See the declaration above.
template <class Emit>
void SplitWords(SplitPattern pattern, std::string_view piece, Emit&& emit) {
  const CharClasses& classes = CharClasses::Get();
  const auto words = [&](auto word_end) {
    internal::EmitWords(
        piece, [&](const char* at, const char* end) { return word_end(classes, at, end); }, emit);
  };
  switch (pattern) {
    case SplitPattern::kWhole:
      return emit(piece);
    case SplitPattern::kGpt2:
      return words([](auto&&... args) { return internal::Gpt2WordEnd(args...); });
    case SplitPattern::kLlama3:
      return words([](auto&&... args) { return internal::ModernWordEnd<kLetter, 3>(args...); });
    case SplitPattern::kQwen2:
      return words([](auto&&... args) { return internal::ModernWordEnd<kLetter, 1>(args...); });
    case SplitPattern::kQwen35:
      return words(
          [](auto&&... args) { return internal::ModernWordEnd<kLetter | kMark, 1>(args...); });
  }
  SYSONE_CHECK(false, "no such split pattern: %d", static_cast<int>(pattern));
}

}  // namespace sysone
