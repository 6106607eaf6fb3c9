// Made-up requests of many kinds, for comparing one way of computing decisions with another: topics and languages of states,
// types of questions, numbers of options. The same seed gives the same requests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sysone {

inline constexpr int kVariedQuestions = 5;  // of each request

// JSON bodies as POST /v1/systemone takes them.
std::vector<std::string> VariedRequests(int count, uint32_t seed);

}  // namespace sysone
