// Writes small safetensors files for tests, right or deliberately wrong.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace sysone {

// A file from its header's JSON and its data.
inline std::string SafetensorsBytes(std::string_view header, std::string_view data) {
  const uint64_t length = header.size();
  std::string out(sizeof(length), '\0');
  std::memcpy(out.data(), &length, sizeof(length));
  return out.append(header).append(data);
}

// `"name":{"dtype":…,"shape":…,"data_offsets":[begin,end]}`
inline std::string SafetensorsEntry(const std::string& name, const std::string& dtype,
                                    const std::string& shape, uint64_t begin, uint64_t end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

}  // namespace sysone
