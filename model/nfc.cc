// SPDX-License-Identifier: Apache-2.0
#include "model/nfc.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "model/unicode.h"

namespace sysone {
namespace {

struct CombiningRange {
  char32_t first;
  char32_t last;
  uint8_t combining_class;
};
struct Composition {
  char32_t composed;
  char32_t first;
  char32_t second;
};
struct Singleton {
  char32_t from;
  char32_t to;
};
struct Expansion {
  char32_t from;
  char32_t to[3];  // padded with zeros
};
#include "model/unicode_nfc.inc"

// Hangul syllables compose by arithmetic (The Unicode Standard, section 3.12).
constexpr char32_t kSyllableBase = 0xAC00;
constexpr char32_t kLeadBase = 0x1100, kVowelBase = 0x1161, kTailBase = 0x11A7;
constexpr char32_t kLeads = 19, kVowels = 21, kTails = 28;
constexpr char32_t kSyllables = kLeads * kVowels * kTails;

// The row of a table sorted by its first member, or nullptr.
template <class Row, size_t kRows>
const Row* FindRow(const Row (&table)[kRows], char32_t Row::*key, char32_t value) {
  const Row* row = std::lower_bound(std::begin(table), std::end(table), value,
                                    [key](const Row& r, char32_t v) { return r.*key < v; });
  return row != std::end(table) && row->*key == value ? row : nullptr;
}

uint8_t CombiningClass(char32_t value) {
  const CombiningRange* row =
      std::lower_bound(std::begin(kCombiningRanges), std::end(kCombiningRanges), value,
                       [](const CombiningRange& r, char32_t v) { return r.last < v; });
  return row != std::end(kCombiningRanges) && row->first <= value ? row->combining_class : 0;
}

void Decompose(char32_t value, std::vector<NfcScratch::Item>& out) {
  if (value >= kSyllableBase && value < kSyllableBase + kSyllables) {
    const char32_t index = value - kSyllableBase;
    out.push_back({kLeadBase + index / (kVowels * kTails), 0});
    out.push_back({kVowelBase + index % (kVowels * kTails) / kTails, 0});
    if (index % kTails != 0) out.push_back({kTailBase + index % kTails, 0});
  } else if (const Composition* pair = FindRow(kCompositions, &Composition::composed, value)) {
    Decompose(pair->first, out);
    out.push_back({pair->second, CombiningClass(pair->second)});
  } else if (const Singleton* single = FindRow(kSingletons, &Singleton::from, value)) {
    out.push_back({single->to, CombiningClass(single->to)});
  } else if (const Expansion* expansion = FindRow(kExpansions, &Expansion::from, value)) {
    for (const char32_t part : expansion->to)
      if (part != 0) out.push_back({part, CombiningClass(part)});
  } else {
    out.push_back({value, CombiningClass(value)});
  }
}

// Sorts every run of combining marks by class, keeping the order of equals.
void Reorder(std::vector<NfcScratch::Item>& items) {
  for (auto at = items.begin(); at != items.end();) {
    if (at->combining_class == 0) {
      ++at;
      continue;
    }
    const auto end =
        std::find_if(at, items.end(), [](const auto& i) { return i.combining_class == 0; });
    if (end - at > 1)
      std::stable_sort(at, end, [](const auto& a, const auto& b) {
        return a.combining_class < b.combining_class;
      });
    at = end;
  }
}

// What `first` and `second` compose to, or 0.
char32_t Compose(char32_t first, char32_t second) {
  if (first >= kLeadBase && first < kLeadBase + kLeads && second >= kVowelBase &&
      second < kVowelBase + kVowels)
    return kSyllableBase + ((first - kLeadBase) * kVowels + (second - kVowelBase)) * kTails;
  if (first >= kSyllableBase && first < kSyllableBase + kSyllables &&
      (first - kSyllableBase) % kTails == 0 && second > kTailBase && second < kTailBase + kTails)
    return first + (second - kTailBase);

  static const std::vector<Composition> by_parts = [] {
    std::vector<Composition> sorted(std::begin(kCompositions), std::end(kCompositions));
    std::sort(sorted.begin(), sorted.end(), [](const Composition& a, const Composition& b) {
      return std::pair(a.first, a.second) < std::pair(b.first, b.second);
    });
    return sorted;
  }();
  const auto row =
      std::lower_bound(by_parts.begin(), by_parts.end(), std::pair(first, second),
                       [](const Composition& c, const std::pair<char32_t, char32_t>& parts) {
                         return std::pair(c.first, c.second) < parts;
                       });
  return row != by_parts.end() && row->first == first && row->second == second ? row->composed : 0;
}

// Joins each mark with its base where a composed character exists and no mark of the same or a higher class stands
// between; shortens `items` in place.
void ComposeAll(std::vector<NfcScratch::Item>& items) {
  size_t kept = 0;
  size_t starter = items.size();  // index of the last base; none yet
  int last_class = -1;  // of the last kept item after the base; -1 when the base itself is the last
  for (const NfcScratch::Item item : items) {
    if (starter < kept && last_class < static_cast<int>(item.combining_class)) {
      if (const char32_t composed = Compose(items[starter].value, item.value)) {
        items[starter].value = composed;
        continue;
      }
    }
    if (item.combining_class == 0) {
      starter = kept;
      last_class = -1;
    } else {
      last_class = item.combining_class;
    }
    items[kept++] = item;
  }
  items.resize(kept);
}

// First character at or after `at` that has kNfcCheck, and the start of the character before it (or itself when it is
// the first). {end, end} when there is none.
struct Suspect {
  const char* before;
  const char* at;
};
Suspect FindSuspect(const char* at, const char* end) {
  const CharClasses& classes = CharClasses::Get();
  const char* before = at;
  while (at < end) {
    for (uint64_t eight; end - at >= 8; at += 8, before = at - 1) {
      std::memcpy(&eight, at, 8);
      if (eight & 0x8080808080808080) break;  // ASCII is normal
    }
    if (at == end) break;
    if (static_cast<uint8_t>(*at) < 0x80) {
      before = at++;
      continue;
    }
    const CodePoint c = DecodeUtf8(at, end);
    if (classes.Of(c.value) & kNfcCheck) return {before, at};
    before = at;
    at += c.length;
  }
  return {end, end};
}

}  // namespace

std::string_view NormalizeNfc(std::string_view text, NfcScratch& scratch) {
  const char* const end = text.data() + text.size();
  Suspect suspect = FindSuspect(text.data(), end);
  if (suspect.at == end) return text;

  const CharClasses& classes = CharClasses::Get();
  scratch.text.clear();
  const char* copied = text.data();
  while (suspect.at < end) {
    // Only the characters from the base before the suspect to the next safe character can change.
    scratch.text.append(copied, suspect.before);
    scratch.items.clear();
    const char* at = suspect.before;
    while (at < end) {
      const CodePoint c = DecodeUtf8(at, end);
      if (at > suspect.at && !(classes.Of(c.value) & kNfcCheck)) break;
      Decompose(c.value, scratch.items);
      at += c.length;
    }
    Reorder(scratch.items);
    ComposeAll(scratch.items);
    for (const NfcScratch::Item& item : scratch.items) AppendUtf8(scratch.text, item.value);
    copied = at;
    suspect = FindSuspect(at, end);
  }
  scratch.text.append(copied, end);
  return scratch.text;
}

}  // namespace sysone
