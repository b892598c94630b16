#pragma once

#include "common/error.hpp"
#include "rendezvous/messages.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

/// Messages as bytes: a header of fixed size, then the fields (docs/protocol.md).
namespace acc::rendezvous {

/// Bytes: length of the whole frame (4), type (2), flags (1), major version (1), term (4 + 4),
/// round (8).
inline constexpr std::size_t kHeaderSize = 24;

/// Appends one frame to `out`. A text longer than kMaxText is cut; other limits (kMaxKey,
/// kMaxValue, lists) are the caller's duty: a peer refuses a frame that exceeds them.
void encode(const Epoch& epoch, const Message& message, std::string& out);
[[nodiscard]] std::string encode(const Epoch& epoch, const Message& message);

/// Reads one whole frame. Total: any bytes give a frame or an Error (malformed) that names the
/// fault: "join: text of 70000 bytes, at most 4096 (byte 28)".
/// From another major version only Join and Refused can be read, and only their stable fields:
/// Join's version numbers, Refused's `refusal` and `what`; the rest keeps its default.
[[nodiscard]] Result<Frame> decode(std::string_view frame);

/// True for a message of a later minor version that its sender marks as dispensable. decode()
/// refuses it; FrameSplitter skips it.
/// @param frame  at least a header
[[nodiscard]] bool may_be_skipped(std::string_view frame);

/// The first four bytes.
/// @param bytes  at least four
[[nodiscard]] std::uint32_t frame_length(std::string_view bytes);

/// "worker_failed", for logs.
[[nodiscard]] std::string_view name_of(const Message& message);

}  // namespace acc::rendezvous
