// Every message arrives as it was sent, and whatever else arrives is an error that says what is wrong.
// SPDX-License-Identifier: Apache-2.0
#include "link/link_message.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

namespace sysone {
namespace {

std::vector<std::byte> Frame(const LinkBody& body, uint64_t session = 7) {
  std::vector<std::byte> frame{std::byte{1}};
  WriteLinkMessage({session, body}, frame);
  return frame;
}

struct ReadBack {
  Status status;
  LinkMessage message;
  bool ok() const { return status.ok(); }
};

ReadBack Read(std::span<const std::byte> frame) {
  ReadBack read;
  read.status = ReadLinkMessage(frame, read.message);
  return read;
}

template <class Body>
Body Through(const Body& body) {
  // Kept: spans of the result point there.
  static std::vector<std::byte> frame;
  frame = Frame(body);
  const auto read_back = Read(frame);
  EXPECT_TRUE(read_back.ok()) << read_back.status.message();
  const LinkMessage& message = read_back.message;
  EXPECT_EQ(message.session, 7u);
  const auto* const got = std::get_if<Body>(&message.body);
  EXPECT_NE(got, nullptr);
  return got == nullptr ? Body() : *got;
}

const std::vector<std::byte> kBytes{std::byte{1}, std::byte{2}, std::byte{255}};

std::vector<LinkBody> OneOfEach() {
  return {LinkHello{32000, "0.1.0", "feed", "int8", "host-b", 3},
          LinkWelcome{5},
          LinkRefusal{"another model", true},
          LinkStatus{LinkGroupState::kReady, 8192, 900.5f, 64, 3, 9, 100, 4096, 1, 2, 3},
          LinkAlive{},
          LinkJob{17, 59'000'000, -3, kBytes},
          LinkCancel{18},
          LinkResult{17, Code::kOk, 120, 4000, kBytes},
          LinkBye{}};
}

TEST(LinkMessage, ArrivesAsItWasSent) {
  const auto hello = Through(LinkHello{32000, "0.1.0", "feed", "int8", "host-b", 3});
  EXPECT_EQ(hello.vocabulary, 32000u);
  EXPECT_EQ(hello.program_version, "0.1.0");
  EXPECT_EQ(hello.model_fingerprint, "feed");
  EXPECT_EQ(hello.dtype, "int8");
  EXPECT_EQ(hello.host, "host-b");
  EXPECT_EQ(hello.group, 3u);
  EXPECT_EQ(Through(LinkWelcome{5}).group, 5u);
  EXPECT_EQ(Through(LinkRefusal{"another model", true}).reason, "another model");
  EXPECT_TRUE(Through(LinkRefusal{"another model", true}).full);
  const auto status =
      Through(LinkStatus{LinkGroupState::kReady, 8192, 900.5f, 64, 3, 9, 100, 4096, 1, 2, 3});
  EXPECT_EQ(status.state, LinkGroupState::kReady);
  EXPECT_EQ(status.max_model_len, 8192u);
  EXPECT_EQ(status.tokens_per_second, 900.5f);
  EXPECT_EQ(status.tokens_a_pass, 64);
  EXPECT_EQ(status.kv_blocks_in_use, 3u);
  EXPECT_EQ(status.kv_blocks_held, 9u);
  EXPECT_EQ(status.kv_blocks, 100u);
  EXPECT_EQ(status.kv_block_bytes, 4096u);
  EXPECT_EQ(status.total_tokens, 1u);
  EXPECT_EQ(status.total_batches, 2u);
  EXPECT_EQ(status.total_busy_us, 3u);
  const auto job = Through(LinkJob{17, 59'000'000, -3, kBytes});
  EXPECT_EQ(job.id, 17u);
  EXPECT_EQ(job.remaining_us, 59'000'000);
  EXPECT_EQ(job.priority, -3);
  EXPECT_EQ(std::vector(job.bytes.begin(), job.bytes.end()), kBytes);
  EXPECT_EQ(Through(LinkCancel{18}).id, 18u);
  const auto result = Through(LinkResult{17, Code::kOk, 120, 4000, kBytes});
  EXPECT_EQ(result.id, 17u);
  EXPECT_EQ(result.code, Code::kOk);
  EXPECT_EQ(result.queue_us, 120);
  EXPECT_EQ(result.pass_us, 4000);
  EXPECT_EQ(std::vector(result.bytes.begin(), result.bytes.end()), kBytes);
  EXPECT_EQ(Through(LinkResult{17, Code::kTooLarge, 0, 0, {}}).code, Code::kTooLarge);
  Through(LinkAlive{});
  Through(LinkBye{});
}

TEST(LinkMessage, LongOrStrangeTextIsCutAndMadePrintable) {
  const auto refusal = Through(LinkRefusal{"tab\t" + std::string(300, 'x'), false});
  EXPECT_EQ(refusal.reason, "tab?" + std::string(251, 'x'));
}

TEST(LinkMessage, ATruncatedOrPaddedFrameIsAnError) {
  for (const LinkBody& body : OneOfEach()) {
    const std::vector<std::byte> whole = Frame(body);
    for (size_t length = 0; length < whole.size(); ++length)
      EXPECT_FALSE(Read(std::span(whole).first(length)).ok())
          << "kind " << body.index() << ", " << length << " of " << whole.size();
    std::vector<std::byte> longer = whole;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(Read(longer).ok()) << "kind " << body.index();
  }
  EXPECT_FALSE(Read(std::vector<std::byte>(kMaxLinkBytes + 1)).ok());
}

TEST(LinkMessage, AnotherVersionIsNamed) {
  std::vector<std::byte> frame = Frame(LinkAlive{});
  frame[4] = std::byte{9};
  const Status status = Read(frame).status;
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_NE(status.message().find("version 9"), std::string::npos) << status.message();
}

TEST(LinkMessage, FieldsThatCannotBeAreErrors) {
  LinkStatus status{LinkGroupState::kReady, 8192, 900.5f, 64, 3, 9, 100, 4096, 1, 2, 3};
  ASSERT_TRUE(Read(Frame(status)).ok());
  const auto bad = [](LinkBody body) { return !Read(Frame(body)).ok(); };
  const auto with = [&status](auto change) {
    LinkStatus changed = status;
    change(changed);
    return changed;
  };
  EXPECT_TRUE(bad(with([](LinkStatus& s) { s.tokens_per_second = NAN; })));
  EXPECT_TRUE(bad(with([](LinkStatus& s) { s.tokens_per_second = -1; })));
  EXPECT_TRUE(bad(with([](LinkStatus& s) { s.tokens_a_pass = INFINITY; })));
  EXPECT_TRUE(bad(with([](LinkStatus& s) { s.tokens_a_pass = 0; })));
  EXPECT_TRUE(bad(with([](LinkStatus& s) { s.kv_blocks_held = 101; })));
  EXPECT_TRUE(bad(with([](LinkStatus& s) { s.state = static_cast<LinkGroupState>(3); })));
  EXPECT_TRUE(bad(LinkHello{0, "0.1.0", "feed", "int8", "b", 0}));
  EXPECT_TRUE(bad(LinkHello{1, "0.1.0", "", "int8", "b", 0}));
  EXPECT_TRUE(bad(LinkJob{1, 0, 0, kBytes}));
  EXPECT_TRUE(bad(LinkResult{1, static_cast<Code>(16), 0, 0, {}}));
  EXPECT_TRUE(bad(LinkResult{1, static_cast<Code>(-1), 0, 0, {}}));
  EXPECT_TRUE(bad(LinkResult{1, Code::kInternal, 0, 0, kBytes}));
  EXPECT_TRUE(bad(LinkResult{1, Code::kOk, -1, 0, kBytes}));
  std::vector<std::byte> unknown = Frame(LinkAlive{});
  for (const int kind : {0, 10, 255}) {
    unknown[6] = static_cast<std::byte>(kind);
    EXPECT_FALSE(Read(unknown).ok()) << kind;
  }
}

// Whatever the bytes are, reading returns; run under the sanitizers it also shows that nothing outside the frame is touched.
TEST(LinkMessage, ADamagedFrameIsReadOrRefusedButNeverMore) {
  std::mt19937 random(20);
  size_t read = 0, refused = 0;
  for (const LinkBody& body : OneOfEach()) {
    const std::vector<std::byte> whole = Frame(body);
    for (int round = 0; round < 2000; ++round) {
      std::vector<std::byte> damaged = whole;
      for (size_t n = 1 + random() % 3; n > 0; --n)
        damaged[random() % damaged.size()] = static_cast<std::byte>(random());
      damaged.resize(random() % 4 == 0 ? random() % (damaged.size() + 1) : damaged.size());
      const auto read_back = Read(damaged);
      ++(read_back.ok() ? read : refused);
      if (!read_back.ok()) continue;
      const LinkBody& got = read_back.message.body;
      if (const auto* job = std::get_if<LinkJob>(&got)) {
        EXPECT_GE(job->bytes.data(), damaged.data());
        EXPECT_LE(job->bytes.data() + job->bytes.size(), damaged.data() + damaged.size());
        EXPECT_GT(job->remaining_us, 0);
      }
      if (const auto* now = std::get_if<LinkStatus>(&got)) {
        EXPECT_TRUE(std::isfinite(now->tokens_per_second) && now->tokens_per_second >= 0);
        EXPECT_LE(now->kv_blocks_in_use, now->kv_blocks);
      }
    }
  }
  EXPECT_GT(read, 100u);
  EXPECT_GT(refused, 1000u);
}

}  // namespace
}  // namespace sysone
