#pragma once

#include "common/error.hpp"
#include "rendezvous/messages.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace acc::rendezvous {

/// Splits a stream of bytes into frames. Frames that lie whole in the input are not copied, and
/// between two frames no memory is held: ten thousand idle connections cost nothing here.
///
///   splitter.feed(bytes);
///   for (;;) {
///     auto frame = splitter.next();
///     if (!frame) …close…              // *frame.error().what* names the peer's fault
///     if (!*frame) break;              // feed more
///     …decode(**frame)…
///   }
class FrameSplitter {
 public:
  /// @param max_frame  bytes, including the header
  explicit FrameSplitter(std::size_t max_frame = kMaxFirstFrame) : max_frame_{max_frame} {}

  /// From the next frame on, also within bytes already fed.
  void set_max_frame(std::size_t max_frame) { max_frame_ = max_frame; }

  /// @param bytes  must stay valid until next() needs more; feed no more before that
  void feed(std::string_view bytes);

  /// The next whole frame; nothing: more bytes are needed. The view is valid until the next call of
  /// either function. Skippable messages of later versions are skipped. After an error (malformed)
  /// the next frame can't be found: each call returns the error again.
  [[nodiscard]] Result<std::optional<std::string_view>> next();

  /// Bytes of an unfinished frame; if not 0, its sender owes the rest.
  [[nodiscard]] std::size_t pending() const { return is_delivered_ ? 0 : pending_.size(); }

 private:
  Result<std::optional<std::string_view>> next_of_any_type();
  Result<std::optional<std::string_view>> next_in_input();
  Result<std::optional<std::string_view>> complete_pending();
  [[nodiscard]] Result<std::size_t> checked_length(std::string_view begin) const;

  std::size_t max_frame_;
  std::string_view input_;     ///< the caller's bytes not examined yet
  std::string pending_;        ///< start of a frame, or the last one that next() returned
  bool is_delivered_ = false;  ///< pending_ was given to the caller
  bool had_frame_ = false;     ///< the peer has sent a valid frame
};

}  // namespace acc::rendezvous
