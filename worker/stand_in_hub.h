// The process that stands in for all groups of other hosts: one port at which hosts join, one place for each group.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/serve_options.h"
#include "base/status.h"
#include "link/link_message.h"
#include "link/link_socket.h"
#include "worker/stand_in.h"

namespace sysone {

// What a host must have in common with this one.
struct HostIdentity {
  std::string program_version;
  std::string model_fingerprint;
  std::string dtype;
  uint32_t vocabulary = 0;
};

// Why a host with this Hello cannot join, naming what differs; empty: it fits. Pure.
std::string WhyNot(const HostIdentity& own, const LinkHello& hello);

// Gives frames to the stand-in whose session they belong to, and places to hosts that join. One thread; the link outlives it.
class StandInHub {
 public:
  StandInHub(LinkListener& link, HostIdentity own, std::vector<std::unique_ptr<StandIn>> stand_ins);

  // Takes all frames that are there.
  void Receive(int64_t now_us);
  // Of all places; returns when one is due next.
  int64_t Turn(int64_t now_us);
  void Drain();
  bool done() const;
  std::vector<std::unique_ptr<StandIn>>& stand_ins() { return stand_ins_; }

 private:
  void Greet(const LinkListener::Peer& peer, std::span<const std::byte> frame, int64_t now_us);
  StandIn* FreePlace(const std::string& host);
  void Refuse(const LinkListener::Peer& peer, const std::string& reason, bool full);

  LinkListener& link_;
  const HostIdentity own_;
  std::vector<std::unique_ptr<StandIn>> stand_ins_;
  std::string last_refusal_;  // one line in the log for a host that tries again and again
  bool draining_ = false;
  std::vector<std::byte> frame_;  // reused
};

// The whole process, until it is told to stop. Returns why it could not start; afterwards only ok.
Status RunStandIns(const ServeOptions& options);

}  // namespace sysone
