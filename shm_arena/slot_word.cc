// Names of the slot states.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/slot_word.h"

namespace sysone {

const char* SlotStateName(SlotState state) {
  switch (state) {
    case SlotState::kFree:
      return "free";
    case SlotState::kClaimed:
      return "claimed";
    case SlotState::kReady:
      return "ready";
    case SlotState::kRunning:
      return "running";
    case SlotState::kDone:
      return "done";
    case SlotState::kFailed:
      return "failed";
    case SlotState::kReturned:
      return "returned";
    case SlotState::kAbandoned:
      return "abandoned";
  }
  return "unknown";
}

}  // namespace sysone
