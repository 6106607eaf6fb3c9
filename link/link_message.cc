// SPDX-License-Identifier: Apache-2.0
#include "link/link_message.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace sysone {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are little-endian, as they lie");

constexpr uint32_t kMagic = 0x4b4e4c53;  // "SLNK"

struct Envelope {
  uint32_t magic;
  uint16_t version;
  uint16_t kind;  // place of the body in LinkBody, + 1
  uint64_t session;
  uint32_t body_bytes;  // behind the envelope
  uint32_t zero;
};
static_assert(sizeof(Envelope) == 24);

// Text of a fixed place: printable ASCII, then zeros, at least one.
template <size_t N>
struct Text {
  char chars[N];
};

struct WireHello {
  uint32_t vocabulary;
  uint32_t group;
  Text<16> program_version;
  Text<64> model_fingerprint;
  Text<16> dtype;
  Text<64> host;
};
struct WireWelcome {
  uint32_t group;
  uint32_t zero;
};
struct WireRefusal {
  Text<256> reason;
  uint32_t full;
  uint32_t zero;
};
struct WireStatus {
  uint32_t state;
  uint32_t max_model_len;
  float tokens_per_second;
  float tokens_a_pass;
  uint32_t kv_blocks_in_use;
  uint32_t kv_blocks_held;
  uint32_t kv_blocks;
  uint32_t zero;
  uint64_t kv_block_bytes;
  uint64_t total_tokens;
  uint64_t total_batches;
  uint64_t total_busy_us;
};
struct WireNothing {};
struct WireJob {
  uint64_t id;
  int64_t remaining_us;
  int32_t priority;
  uint32_t zero;
};
struct WireCancel {
  uint64_t id;
};
struct WireResult {
  uint64_t id;
  int64_t queue_us;
  int64_t pass_us;
  int32_t code;
  uint32_t zero;
};
static_assert(sizeof(WireHello) == 168 && sizeof(WireWelcome) == 8 && sizeof(WireRefusal) == 264 &&
              sizeof(WireStatus) == 64 && sizeof(WireJob) == 24 && sizeof(WireResult) == 32);

// ---- writing ----

template <size_t N>
Text<N> Put(const std::string& text) {
  Text<N> out{};
  const size_t length = std::min(text.size(), N - 1);
  for (size_t i = 0; i < length; ++i)
    out.chars[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
  return out;
}

WireHello ToWire(const LinkHello& hello) {
  return {hello.vocabulary,
          hello.group,
          Put<16>(hello.program_version),
          Put<64>(hello.model_fingerprint),
          Put<16>(hello.dtype),
          Put<64>(hello.host)};
}
WireWelcome ToWire(const LinkWelcome& welcome) { return {welcome.group, 0}; }
WireRefusal ToWire(const LinkRefusal& refusal) {
  return {Put<256>(refusal.reason), refusal.full ? 1u : 0u, 0};
}
WireStatus ToWire(const LinkStatus& status) {
  return {static_cast<uint32_t>(status.state),
          status.max_model_len,
          status.tokens_per_second,
          status.tokens_a_pass,
          status.kv_blocks_in_use,
          status.kv_blocks_held,
          status.kv_blocks,
          0,
          status.kv_block_bytes,
          status.total_tokens,
          status.total_batches,
          status.total_busy_us};
}
WireNothing ToWire(const LinkAlive&) { return {}; }
WireJob ToWire(const LinkJob& job) { return {job.id, job.remaining_us, job.priority, 0}; }
WireCancel ToWire(const LinkCancel& cancel) { return {cancel.id}; }
WireResult ToWire(const LinkResult& result) {
  return {result.id, result.queue_us, result.pass_us, static_cast<int32_t>(result.code), 0};
}
WireNothing ToWire(const LinkBye&) { return {}; }

std::span<const std::byte> TailOf(const LinkJob& job) { return job.bytes; }
std::span<const std::byte> TailOf(const LinkResult& result) { return result.bytes; }
template <class Body>
std::span<const std::byte> TailOf(const Body&) {
  return {};
}

// An empty struct has a size, but no place in the frame.
template <class Wire>
constexpr size_t kWireBytes = std::is_empty_v<Wire> ? 0 : sizeof(Wire);

// ---- reading ----

Status Bad(const char* what) { return Error(Code::kCorrupt, "link message: %s", what); }

// Empty when it is no text of ours.
template <size_t N>
std::string Get(const Text<N>& text) {
  const char* const end = std::find(text.chars, text.chars + N, '\0');
  const bool fits = end != text.chars + N;
  const bool printable = std::all_of(text.chars, end, [](char c) { return c >= ' ' && c <= '~'; });
  const bool padded = std::all_of(end, text.chars + N, [](char c) { return c == '\0'; });
  return fits && printable && padded ? std::string(text.chars, end) : std::string();
}

// Each fills the body from its fixed part and what stands behind that; what is checked is written here.

Status FromWire(const WireHello& wire, std::span<const std::byte>, LinkHello& hello) {
  hello = {wire.vocabulary,
           Get(wire.program_version),
           Get(wire.model_fingerprint),
           Get(wire.dtype),
           Get(wire.host),
           wire.group};
  if (hello.vocabulary == 0 || hello.vocabulary > INT32_MAX) return Bad("vocabulary of a Hello");
  if (hello.program_version.empty() || hello.model_fingerprint.empty() || hello.dtype.empty() ||
      hello.host.empty())
    return Bad("a text of a Hello");
  return {};
}

Status FromWire(const WireWelcome& wire, std::span<const std::byte>, LinkWelcome& welcome) {
  welcome = {wire.group};
  return wire.zero == 0 ? Status() : Bad("padding of a Welcome");
}

Status FromWire(const WireRefusal& wire, std::span<const std::byte>, LinkRefusal& refusal) {
  refusal = {Get(wire.reason), wire.full != 0};
  return refusal.reason.empty() ? Bad("reason of a Refusal") : Status();
}

Status FromWire(const WireStatus& wire, std::span<const std::byte>, LinkStatus& status) {
  if (wire.state > static_cast<uint32_t>(LinkGroupState::kDraining)) return Bad("state");
  for (const float figure : {wire.tokens_per_second, wire.tokens_a_pass})
    if (!std::isfinite(figure) || figure < 0) return Bad("a rate");
  if (wire.kv_blocks_in_use > wire.kv_blocks || wire.kv_blocks_held > wire.kv_blocks)
    return Bad("more key-value blocks in use than there are");
  // Placement divides by the second one where the first is known.
  if (wire.tokens_per_second > 0 && !(wire.tokens_a_pass > 0)) return Bad("tokens of a pass");
  if (wire.zero != 0) return Bad("padding of a Status");
  status = {static_cast<LinkGroupState>(wire.state),
            wire.max_model_len,
            wire.tokens_per_second,
            wire.tokens_a_pass,
            wire.kv_blocks_in_use,
            wire.kv_blocks_held,
            wire.kv_blocks,
            wire.kv_block_bytes,
            wire.total_tokens,
            wire.total_batches,
            wire.total_busy_us};
  return {};
}

Status FromWire(const WireNothing&, std::span<const std::byte>, LinkAlive&) { return {}; }

Status FromWire(const WireJob& wire, std::span<const std::byte> tail, LinkJob& job) {
  if (wire.remaining_us <= 0) return Bad("remaining time of a Job");
  if (wire.zero != 0) return Bad("padding of a Job");
  job = {wire.id, wire.remaining_us, wire.priority, tail};
  return {};
}

Status FromWire(const WireCancel& wire, std::span<const std::byte>, LinkCancel& cancel) {
  cancel = {wire.id};
  return {};
}

Status FromWire(const WireResult& wire, std::span<const std::byte> tail, LinkResult& result) {
  if (wire.code < 0 || wire.code > static_cast<int32_t>(Code::kOutOfMemory))
    return Bad("code of a Result");
  if (wire.queue_us < 0 || wire.pass_us < 0) return Bad("a time of a Result");
  if (wire.zero != 0) return Bad("padding of a Result");
  if (wire.code != 0 && !tail.empty()) return Bad("a failed Result with results");
  result = {wire.id, static_cast<Code>(wire.code), wire.queue_us, wire.pass_us, tail};
  return {};
}

Status FromWire(const WireNothing&, std::span<const std::byte>, LinkBye&) { return {}; }

template <class Body>
constexpr bool kHasTail = std::is_same_v<Body, LinkJob> || std::is_same_v<Body, LinkResult>;

template <class Body>
Status ReadBody(std::span<const std::byte> bytes, LinkBody& out) {
  using Wire = decltype(ToWire(std::declval<const Body&>()));
  constexpr size_t kFixed = kWireBytes<Wire>;
  if (bytes.size() < kFixed || (!kHasTail<Body> && bytes.size() != kFixed))
    return Bad("length of its kind");
  Wire wire{};
  if constexpr (kFixed > 0) std::memcpy(&wire, bytes.data(), kFixed);
  return FromWire(wire, bytes.subspan(kFixed), out.emplace<Body>());
}

// Tries the kinds in the order of LinkBody.
template <size_t I = 0>
Status ReadKind(size_t kind, std::span<const std::byte> bytes, LinkBody& out) {
  if constexpr (I == std::variant_size_v<LinkBody>) {
    return Bad("unknown kind");
  } else {
    if (kind == I + 1) return ReadBody<std::variant_alternative_t<I, LinkBody>>(bytes, out);
    return ReadKind<I + 1>(kind, bytes, out);
  }
}

}  // namespace

void WriteLinkMessage(const LinkMessage& message, std::vector<std::byte>& frame) {
  std::visit(
      [&](const auto& body) {
        const auto wire = ToWire(body);
        constexpr size_t kFixed = kWireBytes<decltype(ToWire(body))>;
        const std::span<const std::byte> tail = TailOf(body);
        const Envelope envelope{kMagic,
                                kLinkVersion,
                                static_cast<uint16_t>(message.body.index() + 1),
                                message.session,
                                static_cast<uint32_t>(kFixed + tail.size()),
                                0};
        frame.resize(sizeof envelope + kFixed + tail.size());
        std::memcpy(frame.data(), &envelope, sizeof envelope);
        if constexpr (kFixed > 0) std::memcpy(frame.data() + sizeof envelope, &wire, kFixed);
        if (!tail.empty())
          std::memcpy(frame.data() + sizeof envelope + kFixed, tail.data(), tail.size());
      },
      message.body);
}

Status ReadLinkMessage(std::span<const std::byte> frame, LinkMessage& message) {
  Envelope envelope;
  if (frame.size() < sizeof envelope || frame.size() > kMaxLinkBytes) return Bad("length");
  std::memcpy(&envelope, frame.data(), sizeof envelope);
  if (envelope.magic != kMagic) return Bad("magic; the other end is no sysone");
  if (envelope.version != kLinkVersion)
    return Error(Code::kUnsupported, "the other end speaks version %u of the link, this one %u",
                 envelope.version, kLinkVersion);
  if (envelope.zero != 0) return Bad("padding");
  if (envelope.body_bytes != frame.size() - sizeof envelope) return Bad("body bytes");
  message.session = envelope.session;
  return ReadKind(envelope.kind, frame.subspan(sizeof envelope), message.body);
}

}  // namespace sysone
