// What two hosts of an instance say to each other. On the router's host a stand-in (worker/stand_in.h) holds the place of a
// worker group that runs elsewhere; on the other host an intake (api_server/intake.h) is the stand-in's far end:
//
//   intake ── Hello ──────────────▶ stand-in     who I am; compared, and refused by name
//          ◀─ Welcome | Refusal ───
//          ── Status, often ──────▶              the group's line of the load board; also: I am alive
//          ◀─ Alive, often ────────
//          ◀─ Job, Cancel ─────────
//          ── Result ─────────────▶
//          ◀─ Bye | Bye ──────────▶              nothing more comes from here
//
// One message is one frame, little-endian:
//
//   0      4        6      8         16           20         24
//   | magic | version | kind | session | body bytes | 0        | fixed part of the kind | bytes of a job or a result |
//
// A session is what one Welcome opens. What belongs to another session than the receiver's is dropped, so a message that was
// long under way changes nothing. Reading checks every field: a damaged or hostile message is an error, never more.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"

namespace sysone {

// Changes with every change of what is said, or of the job's bytes. Magic, version and a Refusal keep their places for ever, so
// that versions can tell each other why they do not fit.
inline constexpr uint16_t kLinkVersion = 1;
// Longest frame that is read: a job of the arena's largest block, and room for the fixed parts.
inline constexpr size_t kMaxLinkBytes = (size_t{4} << 20) + 4096;

struct LinkHello {
  uint32_t vocabulary = 0;
  std::string program_version;    // up to 15 characters, as all of these; longer ones are cut
  std::string model_fingerprint;  // up to 63
  std::string dtype;              // --dtype; up to 15
  std::string host;               // for the log; up to 63
  uint32_t group = 0;             // its number there, for the log
};
struct LinkWelcome {
  uint32_t group = 0;  // its number here
};
struct LinkRefusal {
  std::string reason;  // up to 255 characters
  bool full = false;   // nothing is wrong, but no place is free now
};

// Whether the group takes jobs.
enum class LinkGroupState : uint32_t { kAway = 0, kReady = 1, kDraining = 2 };

// A line of the host's load board (shm_arena/load_board.h has the meaning of each figure).
struct LinkStatus {
  LinkGroupState state = LinkGroupState::kAway;
  uint32_t max_model_len = 0;
  float tokens_per_second = 0;  // finite, not negative
  float tokens_a_pass = 0;      // the same
  uint32_t kv_blocks_in_use = 0;
  uint32_t kv_blocks_held = 0;
  uint32_t kv_blocks = 0;
  uint64_t kv_block_bytes = 0;
  uint64_t total_tokens = 0;
  uint64_t total_batches = 0;
  uint64_t total_busy_us = 0;
};
struct LinkAlive {};
struct LinkJob {
  uint64_t id = 0;           // of this session
  int64_t remaining_us = 0;  // until its deadline, when it was sent; > 0
  int32_t priority = 0;
  std::span<const std::byte> bytes;  // JobView::job_bytes; not looked at here
};
struct LinkCancel {
  uint64_t id = 0;
};
struct LinkResult {
  uint64_t id = 0;
  Code code = Code::kOk;  // kOk: `bytes` hold the results
  int64_t queue_us = 0;   // as in a job's header
  int64_t pass_us = 0;
  std::span<const std::byte> bytes;  // JobView::result_bytes; not looked at here
};
struct LinkBye {};

using LinkBody = std::variant<LinkHello, LinkWelcome, LinkRefusal, LinkStatus, LinkAlive, LinkJob,
                              LinkCancel, LinkResult, LinkBye>;

struct LinkMessage {
  uint64_t session = 0;  // 0: of none yet (Hello, Refusal)
  LinkBody body;
};

// `frame` is replaced.
void WriteLinkMessage(const LinkMessage& message, std::vector<std::byte>& frame);

// Spans of `message` then point into `frame`. kCorrupt, naming the field; kUnsupported for another version. `message` is valid
// only when ok.
Status ReadLinkMessage(std::span<const std::byte> frame, LinkMessage& message);

}  // namespace sysone
