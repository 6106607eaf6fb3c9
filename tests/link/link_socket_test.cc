// Two ends over loopback TCP: frames go both ways, keys decide who may come in, and a lost connection is seen.
// SPDX-License-Identifier: Apache-2.0
#include "link/link_socket.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/clock.h"
#include "link/link_message.h"
#include "tests/link/listening_socket.h"

namespace sysone {
namespace {

std::vector<std::byte> Text(const std::string& text) {
  const auto* const data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

bool Eventually(LinkSocket& waiter, const std::function<bool()>& condition) {
  const int64_t until_us = MonotonicUs() + 20'000'000;
  while (!condition()) {
    if (MonotonicUs() > until_us) return false;
    waiter.Wait(-1, MonotonicUs() + 20'000);
  }
  return true;
}

struct TestKeys {
  LinkKeys router, host;
  TestKeys() : router{*MakeCurveKeyPair(), {}}, host{*MakeCurveKeyPair(), {}} {
    router.peers = {host.own.public_key};
    host.peers = {router.own.public_key};
  }
};

// One frame from the host to the router and one back; the listener's name of the connection.
std::string Talk(LinkListener& listener, LinkConnection& connection) {
  EXPECT_TRUE(connection.Send(Text("hello")));
  LinkListener::Peer peer;
  std::vector<std::byte> frame;
  EXPECT_TRUE(Eventually(listener, [&] { return listener.Receive(peer, frame); }))
      << connection.broken();
  EXPECT_EQ(frame, Text("hello"));
  EXPECT_TRUE(listener.Send(peer, Text("welcome")));
  EXPECT_TRUE(Eventually(connection, [&] { return connection.Receive(frame); }));
  EXPECT_EQ(frame, Text("welcome"));
  return peer;
}

// The connection breaks, and nothing that it sent comes through.
std::string Refused(LinkListener& listener, LinkConnection& connection) {
  connection.Send(Text("hello"));
  EXPECT_TRUE(Eventually(connection, [&] { return !connection.broken().empty(); }));
  LinkListener::Peer peer;
  std::vector<std::byte> frame;
  listener.Wait(-1, MonotonicUs() + 20'000);
  EXPECT_FALSE(listener.Receive(peer, frame));
  return connection.broken();
}

TEST(LinkSocket, FramesGoBothWaysWithKeysAndWithout) {
  const TestKeys keys;
  for (const bool with_keys : {true, false}) {
    const ListeningSocket port;
    const auto listener =
        *LinkListener::Create(port.fd(), with_keys ? std::optional(keys.router) : std::nullopt);
    const auto connection = *LinkConnection::Connect(
        port.address(), with_keys ? std::optional(keys.host) : std::nullopt);
    Talk(*listener, *connection);
    const std::vector<std::byte> large(kMaxLinkBytes, std::byte{7});
    EXPECT_TRUE(connection->Send(large));
    LinkListener::Peer peer;
    std::vector<std::byte> frame;
    EXPECT_TRUE(Eventually(*listener, [&] { return listener->Receive(peer, frame); }));
    EXPECT_EQ(frame, large);
  }
}

TEST(LinkSocket, SeveralHostsAreToldApart) {
  const TestKeys keys;
  const ListeningSocket port;
  const auto listener = *LinkListener::Create(port.fd(), keys.router);
  const auto one = *LinkConnection::Connect(port.address(), keys.host);
  const auto two = *LinkConnection::Connect(port.address(), keys.host);
  EXPECT_NE(Talk(*listener, *one), Talk(*listener, *two));
}

TEST(LinkSocket, AHostWithAnUnknownKeyIsRefusedAndToldWhy) {
  const TestKeys keys;
  const ListeningSocket port;
  const auto listener = *LinkListener::Create(port.fd(), keys.router);
  LinkKeys stranger = keys.host;
  stranger.own = *MakeCurveKeyPair();
  const auto connection = *LinkConnection::Connect(port.address(), stranger);
  EXPECT_EQ(Refused(*listener, *connection), "the router refused this host's key (400)");
  // And the right one still comes in.
  const auto right = *LinkConnection::Connect(port.address(), keys.host);
  Talk(*listener, *right);
}

TEST(LinkSocket, AHostThatExpectsAnotherRouterDoesNotTalkToThisOne) {
  const TestKeys keys;
  const ListeningSocket port;
  const auto listener = *LinkListener::Create(port.fd(), keys.router);
  LinkKeys elsewhere = keys.host;
  elsewhere.peers = {MakeCurveKeyPair()->public_key};
  const auto connection = *LinkConnection::Connect(port.address(), elsewhere);
  EXPECT_NE(Refused(*listener, *connection), "");
}

TEST(LinkSocket, NobodyGetsInWithoutAKeyWhereKeysAreAskedFor) {
  const TestKeys keys;
  const ListeningSocket port;
  const auto listener = *LinkListener::Create(port.fd(), keys.router);
  const auto connection = *LinkConnection::Connect(port.address(), std::nullopt);
  EXPECT_NE(Refused(*listener, *connection), "");
}

TEST(LinkSocket, AHostWithKeysDoesNotTalkToARouterWithoutAny) {
  const TestKeys keys;
  const ListeningSocket port;
  const auto listener = *LinkListener::Create(port.fd(), std::nullopt);
  const auto connection = *LinkConnection::Connect(port.address(), keys.host);
  EXPECT_NE(Refused(*listener, *connection), "");
}

TEST(LinkSocket, ALostConnectionIsSeenByBothEnds) {
  const TestKeys keys;
  const ListeningSocket port;
  auto listener = *LinkListener::Create(port.fd(), keys.router);
  auto first = *LinkConnection::Connect(port.address(), keys.host);
  const LinkListener::Peer peer = Talk(*listener, *first);
  first.reset();
  EXPECT_TRUE(Eventually(*listener, [&] { return !listener->Send(peer, Text("?")); }));

  auto second = *LinkConnection::Connect(port.address(), keys.host);
  Talk(*listener, *second);
  listener.reset();
  EXPECT_TRUE(Eventually(*second, [&] { return !second->broken().empty(); }));
  EXPECT_FALSE(second->Send(Text("?")));
  // The port is still the caller's: another listener takes it up.
  listener = *LinkListener::Create(port.fd(), keys.router);
  const auto third = *LinkConnection::Connect(port.address(), keys.host);
  Talk(*listener, *third);
}

TEST(LinkSocket, WhereNobodyListensAConnectionBreaksSoon) {
  std::string address;
  {
    const ListeningSocket port;
    address = port.address();
  }
  const auto connection = *LinkConnection::Connect(address, std::nullopt);
  EXPECT_TRUE(Eventually(*connection, [&] { return !connection->broken().empty(); }));
  EXPECT_EQ(connection->broken(), "cannot connect");
}

TEST(LinkSocket, AnAddressThatIsNoneIsRefused) {
  for (const char* address : {"", "127.0.0.1:1", "tcp://", "tcp://127.0.0.1"})
    EXPECT_EQ(LinkConnection::Connect(address, std::nullopt).status().code(),
              Code::kInvalidArgument)
        << address;
}

}  // namespace
}  // namespace sysone
