// A second pair of eyes on a step: the thread that waits for a device's results sees neither that they will never come nor that
// the devices have reported an error. A thread of its own looks every now and then.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace sysone {

class StepWatch {
 public:
  struct Options {
    int64_t stuck_after_us = 60'000'000;
    int64_t look_every_us = 20'000;
    // What is wrong with the devices, "" for nothing. Called by the watch's thread while a step is in work.
    std::function<std::string()> fault;
    // Told what is wrong with which step, once: ends the process. Called by the watch's thread.
    std::function<void(const std::string& cause)> end;
  };

  explicit StepWatch(Options options);
  ~StepWatch();
  StepWatch(const StepWatch&) = delete;
  StepWatch& operator=(const StepWatch&) = delete;

  // As of Collective. Cheap: nobody is woken.
  void Begin(uint64_t number, const char* what, int64_t amount);
  void End();

  // "step 17, a pass (64)", the last one that was begun. Any thread.
  std::string Step() const;

 private:
  struct Work {
    bool in_work = false;
    uint64_t number = 0;
    const char* what = "nothing yet";
    int64_t amount = 0;
    int64_t since_us = 0;  // MonotonicUs
  };

  void Watch();
  // What is wrong, "" for nothing.
  std::string Look(const Work& work) const;

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable over_changed_;
  bool over_ = false;  // guarded by mutex_, as the work is
  Work work_;
  std::thread thread_;
};

}  // namespace sysone
