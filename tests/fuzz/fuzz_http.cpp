// Any bytes on the daemon's socket give requests or a refusal with words, the same whether they
// come at once or in pieces; what a request carries finds a route or none, and its body, query and
// Last-Event-ID are read without a crash.
#include "agent/daemon/access_token.hpp"
#include "agent/daemon/api_body.hpp"
#include "agent/daemon/api_json.hpp"
#include "agent/daemon/api_routes.hpp"
#include "agent/daemon/http_parser.hpp"
#include "agent/daemon/loopback_rules.hpp"
#include "agent/daemon/sse.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

using namespace acc::agent::daemon;

namespace {

struct Read {
  std::vector<HttpRequest> requests;
  unsigned refused = 0;
};

Read read_all(std::string_view bytes, std::size_t piece) {
  Read all;
  std::string held;
  for (;;) {
    RequestParser parser;
    for (;;) {
      std::size_t consumed = 0;
      const auto step = parser.feed(held, consumed);
      if (consumed > held.size()) std::abort();
      held.erase(0, consumed);
      if (step == RequestParser::Step::has_header) continue;
      if (step == RequestParser::Step::refused) {
        all.refused = parser.refusal().status;
        if (parser.refusal().what.empty() || error_code_of(all.refused).empty()) std::abort();
        return all;
      }
      if (step == RequestParser::Step::done) break;
      if (held.size() > kMostHeaderBytes + piece || bytes.empty()) return all;
      held += bytes.substr(0, piece);
      bytes.remove_prefix(std::min(piece, bytes.size()));
    }
    if (parser.request().body.size() > kMostBodyBytes) std::abort();
    all.requests.push_back(std::move(parser.request()));
  }
}

void use(const HttpRequest& request) {
  const auto found = match(request.method, request.segments);
  if (found.route != nullptr && !found.allowed.empty()) std::abort();
  const auto job = decode_submission(request.body);
  if (job.is_right() && (job.value.words.empty() || job.value.working_directory[0] != '/'))
    std::abort();
  (void)decode_stop(request.body);
  (void)decode_signal(request.body);
  (void)decode_drain(request.body);
  JobRecord record;
  record.submission = SharedSubmission{job.value};
  if (encode_job(record, {request.body, request.body}).empty()) std::abort();
  if (const auto last = request.header("last-event-id")) {
    const auto offsets = parse_log_offsets(*last);
    if (offsets && parse_log_offsets(to_text(*offsets)) != offsets) std::abort();
  }
  for (const bool is_partial : {false, true}) {
    if (whole_part(request.body, is_partial) > request.body.size()) std::abort();
  }
  if (json_string(request.body).find_first_of("\r\n") != std::string::npos) std::abort();
}

/// The port for browsers: no bytes are a token that wasn't signed.
void use_as_browser(const HttpRequest& request) {
  static const AccessTokens tokens{std::string(64, 'k')};
  const auto wish = decode_token_wish(request.body);
  if (wish.is_right() && wish.value.expires_s == 0) std::abort();
  if (foreign_page(request).status == 0 && !request.header("host")) std::abort();
  const auto given = credentials_of(request, "acc-9180");
  for (const auto text : {given.bearer, given.cookie, ticket_of(request).value_or("")}) {
    for (const auto kind : {TokenKind::bearer, TokenKind::ticket, TokenKind::cookie}) {
      if (tokens.check(text, kind, 0).claims) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  const auto at_once = read_all(bytes, std::max<std::size_t>(size, 1));
  const auto in_pieces = read_all(bytes, 3);
  // A wrong line is refused where it is seen, which may be before or after its end is there.
  const bool is_refused = at_once.refused != 0 || in_pieces.refused != 0;
  if (!is_refused && at_once.requests.size() != in_pieces.requests.size()) std::abort();
  const auto both = std::min(at_once.requests.size(), in_pieces.requests.size());
  for (std::size_t i = 0; i < both; ++i) {
    const auto& one = at_once.requests[i];
    const auto& other = in_pieces.requests[i];
    if (one.body != other.body || one.headers != other.headers || one.target != other.target)
      std::abort();
    use(one);
    use_as_browser(one);
  }
  return 0;
}
