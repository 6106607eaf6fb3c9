// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/comm/fake_nccl/fake_stream.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

struct CUstream_st {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work;  // the first one is being done
  bool over = false;
  std::thread thread;
};

namespace sysone {
namespace {

void DoWork(CUstream_st& stream) {
  std::unique_lock lock(stream.mutex);
  for (;;) {
    stream.changed.wait(lock, [&] { return stream.over || !stream.work.empty(); });
    if (stream.work.empty()) return;
    const auto work = stream.work.front();
    lock.unlock();
    work();
    lock.lock();
    stream.work.pop_front();
    stream.changed.notify_all();
  }
}

}  // namespace

FakeStream::FakeStream() : stream_(std::make_unique<CUstream_st>()) {
  stream_->thread = std::thread([stream = stream_.get()] { DoWork(*stream); });
}

FakeStream::~FakeStream() {
  {
    const std::lock_guard lock(stream_->mutex);
    stream_->over = true;
  }
  stream_->changed.notify_all();
  stream_->thread.join();
}

cudaStream_t FakeStream::handle() const { return stream_.get(); }

void FakeStream::Wait() {
  std::unique_lock lock(stream_->mutex);
  stream_->changed.wait(lock, [this] { return stream_->work.empty(); });
}

void RunOnStream(cudaStream_t stream, std::function<void()> work) {
  {
    const std::lock_guard lock(stream->mutex);
    stream->work.push_back(std::move(work));
  }
  stream->changed.notify_all();
}

}  // namespace sysone
