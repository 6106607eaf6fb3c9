// Whether bytes are UTF-8.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace sysone {

// Well-formed as Unicode defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
bool IsUtf8(std::string_view text);

}  // namespace sysone
