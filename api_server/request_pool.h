// The threads that handle requests: started when needed, up to a bound, with a bounded queue in
// front.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace sysone {

class RequestPool {
 public:
  using Job = std::function<void()>;  // must not throw

  RequestPool(size_t max_threads, size_t max_queued)
      : max_threads_(max_threads), max_queued_(max_queued) {}
  // Runs what is queued, then joins.
  ~RequestPool();

  // Any thread. False when every thread is busy and the queue is full.
  bool Submit(Job job);

  size_t running() const;
  size_t queued() const;

 private:
  void Work();

  const size_t max_threads_;
  const size_t max_queued_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> queue_;
  std::vector<std::thread> threads_;
  size_t running_ = 0;  // jobs taken off the queue and not finished
  bool stopping_ = false;
};

}  // namespace sysone
