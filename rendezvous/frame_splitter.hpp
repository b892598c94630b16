#pragma once

#include "common/error.hpp"
#include "rendezvous/messages.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace acc::rendezvous {

/// Cuts a stream of bytes into frames. Frames that lie whole in what was fed are not copied, and
/// between two frames no memory is held: ten thousand idle connections cost nothing here.
///
///   splitter.feed(bytes);
///   for (;;) {
///     auto frame = splitter.next();
///     if (!frame) …close…              // *frame.error().what* says what the peer did
///     if (!*frame) break;              // feed more
///     …decode(**frame)…
///   }
class FrameSplitter {
 public:
  /// @param max_frame  bytes with the header
  explicit FrameSplitter(std::size_t max_frame = kMaxFirstFrame) : max_frame_{max_frame} {}

  /// From the next frame on, also within what was fed already.
  void set_max_frame(std::size_t max_frame) { max_frame_ = max_frame; }

  /// @param bytes  must stay until next() has said that it needs more, and is not fed again before
  void feed(std::string_view bytes);

  /// The next whole frame; nothing: more bytes are needed. The view is good until the next call of
  /// either function. Messages of later versions that may be skipped are passed over. After an
  /// error (malformed) there is no way to find the next frame: each call gives the error again.
  [[nodiscard]] Result<std::optional<std::string_view>> next();

  /// Bytes of an unfinished frame; not 0: its sender owes the rest.
  [[nodiscard]] std::size_t pending() const { return is_delivered_ ? 0 : pending_.size(); }

 private:
  Result<std::optional<std::string_view>> next_of_any_type();
  Result<std::optional<std::string_view>> next_in_input();
  Result<std::optional<std::string_view>> complete_pending();
  [[nodiscard]] Result<std::size_t> checked_length(std::string_view begin) const;

  std::size_t max_frame_;
  std::string_view input_;     ///< the caller's bytes that were not looked at yet
  std::string pending_;        ///< the begin of a frame, or the last one that next() gave
  bool is_delivered_ = false;  ///< pending_ was given to the caller
  bool had_frame_ = false;     ///< the peer has spoken our language
};

}  // namespace acc::rendezvous
