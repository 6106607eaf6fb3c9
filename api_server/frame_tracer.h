// The Python program that finds where a chat template puts the contents of messages (frame_tracer.py).
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace sysone {

// Its text. Executed once, behind chat_template.cc's prelude.
const char* FrameTracerSource();

}  // namespace sysone
