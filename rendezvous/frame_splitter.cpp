#include "rendezvous/frame_splitter.hpp"

#include "rendezvous/codec.hpp"

#include <algorithm>
#include <array>
#include <cassert>

namespace acc::rendezvous {
namespace {

constexpr std::size_t kLengthSize = 4;

/// Likely protocol of an unknown peer; empty: unknown.
std::string guess_stranger(std::string_view begin) {
  constexpr std::array<std::string_view, 9> kHttp{"GET ", "HEAD", "POST", "PUT ", "DELE",
                                                  "OPTI", "CONN", "PATC", "PRI "};
  begin = begin.substr(0, kLengthSize);
  if (std::ranges::find(kHttp, begin) != kHttp.end()) return ": an HTTP request?";
  if (begin == "HTTP") return ": an HTTP server?";
  if (begin == "SSH-") return ": an SSH connection?";
  // A record of type handshake or alert, version 3.x: only one side has a secret.
  if (begin.starts_with("\x16\x03")) return ": TLS, while this side uses no secret?";
  if (begin.starts_with("\x15\x03")) return ": a TLS alert, while this side uses no secret?";
  const auto is_text = [](char c) { return c >= ' ' && c <= '~'; };
  if (begin.size() == kLengthSize && std::ranges::all_of(begin, is_text))
    return ": text that begins with '" + std::string{begin} + "'";
  return "";
}

}  // namespace

void FrameSplitter::feed(std::string_view bytes) {
  assert(input_.empty() && "next() must say that it needs more before it gets more");
  input_ = bytes;
}

Result<std::optional<std::string_view>> FrameSplitter::next() {
  for (;;) {
    auto frame = next_of_any_type();
    if (!frame || !*frame || !may_be_skipped(**frame)) return frame;
  }
}

Result<std::optional<std::string_view>> FrameSplitter::next_of_any_type() {
  if (is_delivered_) {
    pending_ = {};
    pending_.shrink_to_fit();
    is_delivered_ = false;
  }
  return pending_.empty() ? next_in_input() : complete_pending();
}

Result<std::optional<std::string_view>> FrameSplitter::next_in_input() {
  std::size_t length = 0;
  if (input_.size() >= kLengthSize) {
    auto checked = checked_length(input_);
    if (!checked) return std::move(checked).error();
    length = *checked;
  }
  if (length == 0 || input_.size() < length) {
    pending_.assign(input_);
    input_ = {};
    return std::nullopt;
  }
  const auto frame = input_.substr(0, length);
  input_.remove_prefix(length);
  had_frame_ = true;
  return frame;
}

/// Grows with the bytes that arrive, not with the announced length.
Result<std::optional<std::string_view>> FrameSplitter::complete_pending() {
  const auto move_up_to = [&](std::size_t size) {
    const auto count = std::min(size - std::min(size, pending_.size()), input_.size());
    pending_.append(input_.substr(0, count));
    input_.remove_prefix(count);
    return pending_.size() >= size;
  };
  if (!move_up_to(kLengthSize)) return std::nullopt;
  auto length = checked_length(pending_);
  if (!length) return std::move(length).error();
  if (!move_up_to(*length)) return std::nullopt;
  is_delivered_ = true;
  had_frame_ = true;
  return pending_;
}

Result<std::size_t> FrameSplitter::checked_length(std::string_view begin) const {
  const std::size_t length = frame_length(begin);
  if (length >= kHeaderSize && length <= max_frame_) return length;
  if (!had_frame_)
    if (const auto guess = guess_stranger(begin); !guess.empty())
      return Error{Errc::malformed, "not our protocol" + guess};
  return Error{Errc::malformed, std::string{had_frame_ ? "" : "not our protocol: "} +
                                    "a frame of " + std::to_string(length) + " bytes, between " +
                                    std::to_string(kHeaderSize) + " and " +
                                    std::to_string(max_frame_) + " are allowed"};
}

}  // namespace acc::rendezvous
