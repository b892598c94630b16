// Any bytes of a peer give frames or an error in words; what is read as a message stands for just
// these bytes; and it doesn't matter in which pieces they come. The first byte of an input says how
// long the pieces are, the rest is what the peer sends.
#include "rendezvous/codec.hpp"
#include "rendezvous/frame_splitter.hpp"
#include "rendezvous/wire.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

using namespace acc::rendezvous;

namespace {

void must(bool claim) {
  if (!claim) std::abort();
}

void check_frame(std::string_view frame) {
  const auto result = decode(frame);
  if (!result) return must(!result.error().what.empty());
  must(!name_of(result->message).empty());
  const auto again = encode(result->epoch, result->message);
  const auto* join = std::get_if<Join>(&result->message);
  const bool is_foreign =
      frame[7] != kVersionMajor || (join != nullptr && join->version_major != kVersionMajor);
  if (!is_foreign) {
    // All but what a later version may have added.
    must(again.size() <= frame.size());
    must(frame.substr(kHeaderSize).starts_with(std::string_view{again}.substr(kHeaderSize)));
  }
  const auto second = decode(again);
  must(second.has_value() && second->epoch == result->epoch);
  if (!is_foreign) must(encode(second->epoch, second->message) == again);
}

/// Length and bytes of each frame, then the error if there is one.
std::string split(std::string_view stream, std::size_t piece, bool is_check) {
  FrameSplitter splitter;
  std::string seen;
  for (; !stream.empty(); stream.remove_prefix(std::min(piece, stream.size()))) {
    splitter.feed(stream.substr(0, piece));
    for (;;) {
      const auto frame = splitter.next();
      if (!frame) return seen + frame.error().what;
      if (!*frame) break;
      must((**frame).size() == frame_length(**frame));
      if (is_check) check_frame(**frame);
      seen += std::to_string((**frame).size()) + ':';
      seen += **frame;
    }
    must(splitter.pending() <= kMaxFirstFrame);
  }
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view stream{reinterpret_cast<const char*>(data) + 1, size - 1};
  const std::size_t piece = 1 + data[0];
  must(split(stream, stream.size(), true) == split(stream, piece, false));
  check_frame(stream);
  // With the right length in front, or the search would never get beyond it.
  if (stream.size() >= kHeaderSize) {
    std::string frame{stream};
    store(static_cast<std::uint32_t>(frame.size()), frame.data());
    check_frame(frame);
  }
  return 0;
}
