// Unicode normalisation form C, as the `tokenizers` library performs it (its tables are older than its regex engine's).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sysone {

// Buffers of one caller, kept between calls so that nothing is allocated once they are large enough.
struct NfcScratch {
  struct Item {
    char32_t value;
    uint8_t combining_class;
  };
  std::vector<Item> items;
  std::string text;
};

// `text` in NFC. Text that is normal already, as nearly all is, comes back as it stands; else the result lies in
// `scratch.text`. Takes time linear in the text, but for runs of combining marks, which are sorted.
std::string_view NormalizeNfc(std::string_view text, NfcScratch& scratch);

}  // namespace sysone
