#include "rendezvous/codec.hpp"

#include "rendezvous/message_fields.hpp"
#include "rendezvous/wire.hpp"

#include <algorithm>
#include <optional>

namespace acc::rendezvous {
namespace {

/// Bit 0: a peer that doesn't know the type must not continue. Other bits are for later versions.
constexpr std::uint8_t kMandatory = 1;

struct Header {
  std::uint32_t length = 0;
  std::uint16_t type = 0;
  std::uint8_t flags = 0;
  std::uint8_t version_major = 0;
  Epoch epoch;
};

struct Kind {
  std::uint16_t type;
  std::string_view name;
  std::uint8_t flags = kMandatory;
};

// A number is never reused for another message. 1-31 are sent by agents, 32-63 by the coordinator,
// 64- belong to the store.
constexpr Kind kind_of(const Join*) { return {1, "join"}; }
constexpr Kind kind_of(const Ready*) { return {2, "ready"}; }
constexpr Kind kind_of(const Heartbeat*) { return {3, "heartbeat"}; }
constexpr Kind kind_of(const WorkerFailed*) { return {4, "worker_failed"}; }
constexpr Kind kind_of(const Completed*) { return {5, "completed"}; }
constexpr Kind kind_of(const Stopped*) { return {6, "stopped"}; }
constexpr Kind kind_of(const SignalRequest*) { return {7, "signal_request"}; }
constexpr Kind kind_of(const Leave*) { return {8, "leave"}; }
constexpr Kind kind_of(const TableRequest*) { return {9, "table_request"}; }
/// Skipped by a coordinator that doesn't know it: the job goes on as it was.
constexpr Kind kind_of(const RestartRequest*) { return {10, "restart_request", 0}; }
constexpr Kind kind_of(const LeaderMoved*) { return {16, "leader_moved"}; }
constexpr Kind kind_of(const Welcome*) { return {32, "welcome"}; }
constexpr Kind kind_of(const Refused*) { return {33, "refused"}; }
constexpr Kind kind_of(const Assigned*) { return {34, "assigned"}; }
constexpr Kind kind_of(const Start*) { return {35, "start"}; }
constexpr Kind kind_of(const HeartbeatAck*) { return {36, "heartbeat_ack"}; }
constexpr Kind kind_of(const Stop*) { return {37, "stop"}; }
constexpr Kind kind_of(const Signal*) { return {38, "signal"}; }
constexpr Kind kind_of(const Close*) { return {39, "close"}; }
constexpr Kind kind_of(const Notice*) { return {40, "notice", 0}; }
constexpr Kind kind_of(const Table*) { return {41, "table"}; }
constexpr Kind kind_of(const Probe*) { return {42, "probe"}; }
/// Skipped by an agent that doesn't wait for it.
constexpr Kind kind_of(const RestartReply*) { return {43, "restart_reply", 0}; }
constexpr Kind kind_of(const KvRequest*) { return {64, "kv_request"}; }
constexpr Kind kind_of(const KvReply*) { return {65, "kv_reply"}; }
constexpr Kind kind_of(const KvRestore*) { return {66, "kv_restore"}; }

template <class M>
constexpr Kind kKind = kind_of(static_cast<const M*>(nullptr));

Error malformed(std::string what) { return {Errc::malformed, std::move(what)}; }

Header read_header(std::string_view frame) {
  const char* at = frame.data();
  Header header;
  header.length = load<std::uint32_t>(at);
  header.type = load<std::uint16_t>(at + 4);
  header.flags = load<std::uint8_t>(at + 6);
  header.version_major = load<std::uint8_t>(at + 7);
  header.epoch.term = {load<std::uint32_t>(at + 8), load<std::uint32_t>(at + 12)};
  header.epoch.round = Round{load<std::uint64_t>(at + 16)};
  return header;
}

void write_header(const Header& header, char* at) {
  store(header.length, at);
  store(header.type, at + 4);
  store(header.flags, at + 6);
  store(header.version_major, at + 7);
  store(header.epoch.term.number, at + 8);
  store(header.epoch.term.candidate, at + 12);
  store(header.epoch.round.value(), at + 16);
}

std::string version_text(unsigned major) { return "protocol version " + std::to_string(major); }

Error complaint(std::string_view name, const FieldReader& body) {
  return malformed(std::string{name} + ": " + body.problem());
}

/// From another major version: enough to name both versions to both users.
Result<Frame> decode_foreign(const Header& header, std::string_view body) {
  FieldReader read{body, kHeaderSize};
  if (header.type == kKind<Join>.type) {
    Join join;
    if (!read(join.version_major, join.version_minor)) return complaint("join", read);
    if (join.version_major % 256 != header.version_major)
      return malformed("join: " + version_text(header.version_major) + " in the header, " +
                       std::to_string(join.version_major) + " in the message");
    return Frame{header.epoch, std::move(join)};
  }
  if (header.type == kKind<Refused>.type) {
    Refused refused;
    if (!read(refused.refusal, refused.what)) return complaint("refused", read);
    return Frame{header.epoch, std::move(refused)};
  }
  return malformed("message type " + std::to_string(header.type) + " of " +
                   version_text(header.version_major) + ", this is version " +
                   std::to_string(kVersionMajor));
}

template <class M>
Result<Frame> decode_as(const Header& header, std::string_view body) {
  Frame frame{header.epoch, M{}};
  FieldReader read{body, kHeaderSize};
  fields(read, std::get<M>(frame.message));
  if (!read.ok()) return complaint(kKind<M>.name, read);
  return frame;
}

using Decoder = Result<Frame> (*)(const Header&, std::string_view);

template <class... M>
constexpr Decoder find_decoder(std::uint16_t type, const std::variant<M...>*) {
  Decoder found = nullptr;
  ((kKind<M>.type == type ? void(found = &decode_as<M>) : void()), ...);
  return found;
}
Decoder decoder_of(std::uint16_t type) {
  return find_decoder(type, static_cast<const Message*>(nullptr));
}

std::optional<Error> wrong_size(std::string_view frame) {
  if (frame.size() < kHeaderSize)
    return malformed("frame of " + std::to_string(frame.size()) + " bytes, a header has " +
                     std::to_string(kHeaderSize));
  if (frame.size() > kMaxFrame)
    return malformed("frame of " + std::to_string(frame.size()) + " bytes, at most " +
                     std::to_string(kMaxFrame));
  if (const auto length = frame_length(frame); length != frame.size())
    return malformed("frame of " + std::to_string(frame.size()) + " bytes that says " +
                     std::to_string(length));
  return std::nullopt;
}

}  // namespace

std::uint32_t frame_length(std::string_view bytes) { return load<std::uint32_t>(bytes.data()); }

void encode(const Epoch& epoch, const Message& message, std::string& out) {
  const auto begin = out.size();
  out.resize(begin + kHeaderSize);
  Header header{.version_major = kVersionMajor, .epoch = epoch};
  std::visit(
      [&]<class M>(const M& m) {
        header.type = kKind<M>.type;
        header.flags = kKind<M>.flags;
        if constexpr (std::same_as<M, Join>)
          header.version_major = static_cast<std::uint8_t>(m.version_major);
        FieldWriter write{out};
        fields(write, m);
      },
      message);
  header.length = static_cast<std::uint32_t>(out.size() - begin);
  write_header(header, out.data() + begin);
}

std::string encode(const Epoch& epoch, const Message& message) {
  std::string out;
  out.reserve(256);  // enough for most messages
  encode(epoch, message, out);
  return out;
}

Result<Frame> decode(std::string_view frame) {
  if (auto wrong = wrong_size(frame)) return *std::move(wrong);
  const auto header = read_header(frame);
  const auto body = frame.substr(kHeaderSize);
  // The header has room for the low byte only; the Join's two numbers are authoritative.
  const bool is_foreign_join = header.type == kKind<Join>.type && body.size() >= 2 &&
                               load<std::uint16_t>(body.data()) != kVersionMajor;
  if (header.version_major != kVersionMajor || is_foreign_join) return decode_foreign(header, body);
  if (const auto decode_body = decoder_of(header.type)) return decode_body(header, body);
  return malformed("unknown message type " + std::to_string(header.type));
}

bool may_be_skipped(std::string_view frame) {
  const auto header = read_header(frame);
  return header.version_major == kVersionMajor && (header.flags & kMandatory) == 0 &&
         decoder_of(header.type) == nullptr;
}

std::string_view name_of(const Message& message) {
  return std::visit([]<class M>(const M&) { return kKind<M>.name; }, message);
}

}  // namespace acc::rendezvous
