// The pure parts of the HTTP layer: however bytes are cut, the same requests come out.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "api_server/chunked_body.h"
#include "api_server/http_head.h"
#include "api_server/http_types.h"
#include "api_server/request_pool.h"
#include "api_server/request_reader.h"

namespace sysone {
namespace {

using State = RequestReader::State;

TEST(HttpHeaders, AreFoundInAnyCase) {
  HttpHeaders headers;
  headers.Add("X-One", "1");
  headers.Add("x-one", "2");
  EXPECT_EQ(*headers.Find("X-ONE"), "1");
  EXPECT_EQ(headers.Count("x-One"), 2u);
  EXPECT_EQ(headers.Find("X-Two"), nullptr);
  EXPECT_EQ(headers.Find("X-On"), nullptr);
  headers.Set("X-oNE", "3");
  EXPECT_EQ(headers.fields(), (std::vector<HttpHeaders::Field>{{"X-oNE", "3"}}));
}

// The bodies of all requests in `stream`, fed in pieces of `step` bytes, each with the target in front.
std::vector<std::string> ReadAll(std::string_view stream, size_t step) {
  const HttpLimits limits;
  RequestReader reader(limits);
  std::vector<std::string> requests;
  for (size_t at = 0; at < stream.size(); at += step) {
    State state = reader.Feed(stream.substr(at, step));
    while (state == State::kComplete) {
      requests.push_back(reader.head().target + " " + reader.body());
      state = reader.Next();
    }
    if (state == State::kFailed) return {reader.problem().message};
  }
  EXPECT_EQ(reader.state(), State::kIdle);
  return requests;
}

TEST(RequestReader, ReadsTheSameRequestsHoweverTheBytesAreCut) {
  const std::string stream =
      "\r\nPOST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12345"
      "GET /b?q HTTP/1.1\r\nHost:x\r\n\r\n"
      "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\n6\r\n00A"
      "\r\n7890123456\r\n0\r\nT: v\r\n\r\n"
      "GET http://x/d HTTP/1.1\r\nHost: x\r\n\r\n"
      "GET http://x?e HTTP/1.1\r\nHost: x\r\n\r\n"
      "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::vector<std::string> expected = {"/a 12345", "/b?q ", "/c 67890123456",
                                             "/d ",      "/?e ",  "* "};
  for (size_t step = 1; step <= stream.size(); ++step)
    ASSERT_EQ(ReadAll(stream, step), expected) << step;
}

TEST(RequestReader, SaysWhichStateItIsIn) {
  const HttpLimits limits;
  RequestReader reader(limits);
  EXPECT_EQ(reader.state(), State::kIdle);
  EXPECT_EQ(reader.Feed("P"), State::kHead);
  EXPECT_EQ(reader.Feed("OST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"), State::kBody);
  EXPECT_EQ(reader.Feed("a"), State::kBody);
  EXPECT_EQ(reader.Feed("b"), State::kComplete);
  EXPECT_EQ(reader.Next(), State::kIdle);
}

TEST(RequestReader, TakesNoMemoryForAnnouncements) {
  HttpLimits limits;
  limits.max_request_bytes = 1u << 30;
  RequestReader reader(limits);
  EXPECT_EQ(reader.Feed("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"),
            State::kBody);
  EXPECT_LT(reader.buffered_bytes(), 1u << 20);
}

TEST(RequestReader, HoldsNoMemoryWhileIdle) {
  const HttpLimits limits;
  RequestReader reader(limits);
  ASSERT_EQ(reader.Feed("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n" +
                        std::string(50000, 'x')),
            State::kComplete);
  EXPECT_EQ(reader.Next(), State::kIdle);
  EXPECT_LT(reader.buffered_bytes(), 100u);
}

TEST(HttpHead, ReadsConnectionAndExpectation) {
  const HttpLimits limits;
  const auto head = [&](std::string_view version, std::string_view fields) {
    HttpHead parsed;
    const auto problem = ParseHttpHead(
        "GET / " + std::string(version) + "\r\nHost: x\r\n" + std::string(fields) + "\r\n", limits,
        parsed);
    EXPECT_FALSE(problem.has_value()) << problem->message;
    return parsed;
  };
  EXPECT_TRUE(head("HTTP/1.1", "").keep_alive);
  EXPECT_FALSE(head("HTTP/1.1", "Connection: keep-alive, CLOSE\r\n").keep_alive);
  EXPECT_FALSE(head("HTTP/1.1", "Connection: a\r\nConnection: close\r\n").keep_alive);
  EXPECT_TRUE(head("HTTP/1.1", "Connection: closed\r\n").keep_alive);
  EXPECT_FALSE(head("HTTP/1.0", "").keep_alive);
  EXPECT_TRUE(head("HTTP/1.0", "Connection: Keep-Alive\r\n").keep_alive);
  EXPECT_TRUE(head("HTTP/1.1", "Expect: 100-Continue\r\n").expects_continue);
  EXPECT_FALSE(head("HTTP/1.0", "Expect: 100-continue\r\n").expects_continue);
  EXPECT_EQ(head("HTTP/1.1", "Content-Length: 18446744073709551615\r\n").content_length,
            UINT64_MAX);
  EXPECT_EQ(head("HTTP/1.1", "Content-Length: 18446744073709551616\r\n").content_length,
            UINT64_MAX);
  EXPECT_EQ(head("HTTP/1.1", "Content-Length: 007\r\n").content_length, 7u);
  EXPECT_EQ(*head("HTTP/1.1", "X: \t a b \t\r\n").headers.Find("x"), "a b");
}

TEST(ChunkedBody, StopsAtItsBound) {
  for (const size_t bound : {4u, 5u}) {
    ChunkedBody chunks(bound);
    std::string body;
    size_t used = 0;
    const auto state = chunks.Feed("2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n", body, used);
    EXPECT_EQ(state, bound == 5 ? ChunkedBody::State::kDone : ChunkedBody::State::kTooLarge);
    EXPECT_EQ(body, bound == 5 ? "abcde" : "ab");
  }
}

TEST(RequestPool, StartsThreadsOnlyWhenTheyAreNeeded) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  {
    RequestPool pool(8, 100);
    for (int i = 0; i < 50; ++i) {
      std::promise<void> done;
      ASSERT_TRUE(pool.Submit([&] {
        const std::lock_guard lock(mutex);
        threads.insert(std::this_thread::get_id());
        done.set_value();
      }));
      done.get_future().wait();
    }
  }
  EXPECT_GE(threads.size(), 1u);
  EXPECT_LE(threads.size(), 3u);  // the last job may still be finishing when the next one comes
}

}  // namespace
}  // namespace sysone
