// A backend that passes every call on to another one and adds up how long each kind of operation took.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "tests/bench/forwarding_backend.h"

namespace sysone {

class TimedBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::Clear;
  using ForwardingBackend::ForwardingBackend;

  // Milliseconds by operation since the last Clear.
  const std::map<std::string, double>& times() const { return times_; }
  void Clear() { times_.clear(); }

 private:
  void Around(const char* operation, const std::function<void()>& call) override {
    const auto begin = std::chrono::steady_clock::now();
    call();
    times_[operation] +=
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }

  std::map<std::string, double> times_;
};

}  // namespace sysone
