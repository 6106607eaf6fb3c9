// The keys by which hosts of an instance know each other (CURVE, elliptic curves over ZeroMQ). A folder holds them:
//
//   router.key   pair of the router's host        router.pub   its public part, for the hosts
//   host.key     pair of a host                   hosts.pub    public parts of the hosts that may join, one a line
//
// The router's host needs router.key and hosts.pub, another host host.key and router.pub. Hosts may share a pair or have their
// own; what counts is what stands in hosts.pub.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace sysone {

// Both in Z85, 40 characters.
struct CurveKeyPair {
  std::string public_key;
  std::string secret_key;
};

// What one end of a link has: its own pair, and the public keys of those that may be at the other end (for a host exactly one,
// the router's).
struct LinkKeys {
  CurveKeyPair own;
  std::vector<std::string> peers;
};

// Whose end of a link.
enum class LinkEnd : uint8_t { kRouter, kHost };

// A new one. kUnsupported when the ZeroMQ library was built without CURVE.
Result<CurveKeyPair> MakeCurveKeyPair();

// Makes the four files in `dir`, which is made if it is not there; nobody but this user may read the .key files.
// kInvalidArgument when one of them exists: keys are never overwritten.
Status WriteLinkKeys(const std::string& dir);

// kNotFound or kInvalidArgument, naming the file. Warns when others may read the secret one.
Result<LinkKeys> ReadLinkKeys(const std::string& dir, LinkEnd end);

}  // namespace sysone
