// Any bytes of another daemon give a reply or none, the same whether they come at once or in
// pieces, and never more body than bytes. As text they are also names of nodes, users and targets.
#include "agent/daemon/http_reply_parser.hpp"
#include "agent/daemon/peer_rules.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

using namespace acc::agent::daemon;

namespace {

struct Read {
  std::string body;
  unsigned status = 0;
  bool is_whole = false;
  bool is_broken = false;
};

Read read_all(std::string_view bytes, std::size_t piece, bool is_to_head) {
  ReplyParser parser{is_to_head};
  Read all;
  std::string held;
  for (;;) {
    std::size_t consumed = 0;
    const auto step = parser.feed(held, consumed, all.body);
    if (consumed > held.size()) std::abort();
    held.erase(0, consumed);
    all.is_broken = step == ReplyParser::Step::broken;
    if (step == ReplyParser::Step::has_head) continue;
    if (step != ReplyParser::Step::needs_more || bytes.empty()) break;
    held += bytes.substr(0, piece);
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
  all.status = parser.status();
  all.is_whole = parser.end();
  if (all.is_broken && all.is_whole) std::abort();
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  for (const bool is_to_head : {false, true}) {
    const auto at_once = read_all(bytes, std::max<std::size_t>(size, 1), is_to_head);
    const auto in_pieces = read_all(bytes, 3, is_to_head);
    if (at_once.body.size() > size || in_pieces.body.size() > size) std::abort();
    // Where it breaks off may differ: a line is judged when it is whole, or as far as it is there.
    if (at_once.is_whole != in_pieces.is_whole) std::abort();
    if (at_once.is_whole &&
        (at_once.body != in_pieces.body || at_once.status != in_pieces.status))
      std::abort();
  }
  if (const auto address = parse_node_address(bytes)) {
    if (address->host.empty() || address->host.find_first_of("/\r\n ") != std::string::npos)
      std::abort();
  }
  if (user_name_complaint(bytes).empty() &&
      (bytes.empty() || bytes.find_first_of("\r\n:/") != std::string_view::npos))
    std::abort();
  HttpRequest request;
  request.target = std::string{bytes};
  if (parse_target(bytes, request)) {
    const auto target = split_node_target(request);
    if (target && !target->rest.starts_with('/')) std::abort();
  }
  return 0;
}
