// What accepting is compared with: the API server that wakes first takes the connection, however many it has. Linked into an API
// server in place of shm_arena/accept_turn.cc.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/accept_turn.h"

namespace sysone {

bool AcceptTurn::MayAccept(int64_t) { return true; }

// Nobody waits for a turn, so nobody reads the sequence.
uint32_t AcceptTurn::sequence() const { return 0; }

void AcceptTurn::WaitForChange(uint32_t, int64_t) {}

void AcceptTurn::Opened() {
  processes_.entry(me_).open_connections.fetch_add(1, std::memory_order_relaxed);
}

void AcceptTurn::Closed() {
  processes_.entry(me_).open_connections.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace sysone
