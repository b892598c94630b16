// Any bytes on the workers' socket give requests or an error, whether they come at once or one by
// one, and what was understood is written and read back as the same. The agent's answers likewise.
#include "common/worker_socket.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

using namespace acc::worker_socket;

namespace {

template <class Reader, class Message>
std::string read_all(std::string_view bytes, std::size_t piece, std::vector<Message>& found) {
  Reader reader;
  while (!bytes.empty()) {
    reader.feed(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    for (;;) {
      auto next = reader.next();
      if (!next) return next.error().what.empty() ? "?" : next.error().what;
      if (!*next) break;
      found.push_back(std::move(**next));
    }
  }
  return {};
}

template <class Reader, class Message>
void check(std::string_view bytes) {
  std::vector<Message> at_once;
  std::vector<Message> in_pieces;
  const auto error = read_all<Reader>(bytes, std::max<std::size_t>(bytes.size(), 1), at_once);
  if (error == "?") std::abort();  // an error without words helps nobody
  if (read_all<Reader>(bytes, 3, in_pieces) != error || at_once != in_pieces) std::abort();
  std::string again;
  for (auto& one : at_once) {
    // Words for people are made printable, and so change once.
    if constexpr (requires { one.text; }) one.text.clear();
    if constexpr (requires { one.word; }) {
      if (one.word == Answer::Word::error) one.value.clear();
    }
    again += to_text(one);
  }
  std::vector<Message> read_back;
  if (!read_all<Reader>(again, 1000, read_back).empty() || read_back != at_once) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  check<RequestReader, Request>(bytes);
  check<AnswerReader, Answer>(bytes);
  if (const auto table = parse_table(bytes); table && parse_table(to_text(*table)).has_error())
    std::abort();
  if (const auto lost = parse_lost(bytes); lost && parse_lost(to_text(*lost)).has_error())
    std::abort();
  return 0;
}
