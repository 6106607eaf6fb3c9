// SPDX-License-Identifier: Apache-2.0
#include "api_server/request_pool.h"

#include <system_error>

#include "base/check.h"
#include "base/log.h"

namespace sysone {

RequestPool::~RequestPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool RequestPool::Submit(Job job) {
  const std::lock_guard lock(mutex_);
  const size_t free = threads_.size() - running_;
  if (queue_.size() >= free && threads_.size() < max_threads_) {
    try {
      threads_.emplace_back([this] { Work(); });
    } catch (const std::system_error& error) {
      SYSONE_WARNING("cannot start thread %zu for requests: %s", threads_.size() + 1, error.what());
      SYSONE_CHECK(!threads_.empty(), "no thread can be started");
    }
  }
  // A job that a waiting thread will take at once does not count as queued.
  if (queue_.size() >= threads_.size() - running_ + max_queued_) return false;
  queue_.push_back(std::move(job));
  wake_.notify_one();
  return true;
}

size_t RequestPool::running() const {
  const std::lock_guard lock(mutex_);
  return running_;
}

size_t RequestPool::queued() const {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

void RequestPool::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Job job = std::move(queue_.front());
    queue_.pop_front();
    ++running_;
    lock.unlock();
    job();
    lock.lock();
    --running_;
  }
}

}  // namespace sysone
