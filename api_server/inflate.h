// Request bodies that come compressed: gzip with a bound on what comes out.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

namespace sysone {

// Inflates one or more gzip members into `out`. kTooLarge as soon as more than `max_bytes` come
// out; kMalformed when the data is no gzip, is damaged, ends early or has something behind it.
// `out` is unspecified on failure.
Status Gunzip(std::string_view compressed, size_t max_bytes, std::string& out);

}  // namespace sysone
