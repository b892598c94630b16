#include "agent/daemon/http_reply_parser.hpp"

#include "common/text.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>

#include <cstdint>

namespace acc::agent::daemon {

namespace http = boost::beast::http;
using boost::system::error_code;

namespace {
constexpr std::size_t kMostReplyHeader = 16 * 1024;
}

struct ReplyParser::Impl final : http::basic_parser<false> {
  using Text = boost::beast::string_view;
  using Length = boost::optional<std::uint64_t>;

  explicit Impl(bool is_to_head) {
    header_limit(kMostReplyHeader);
    body_limit(boost::none);
    skip(is_to_head);
  }
  void on_request_impl(http::verb, Text, Text, int, error_code&) override {}
  void on_response_impl(int code, Text, int, error_code&) override {
    status = static_cast<unsigned>(code);
  }
  void on_field_impl(http::field, Text name, Text value, error_code&) override {
    if (is_header_done()) return;  // of a trailer
    headers.emplace_back(to_lower({name.data(), name.size()}), std::string{value});
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const Length&, error_code&) override {}
  std::size_t on_body_impl(Text piece, error_code&) override {
    body->append(piece.data(), piece.size());
    return piece.size();
  }
  void on_chunk_header_impl(std::uint64_t, Text, error_code&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, Text piece, error_code&) override {
    body->append(piece.data(), piece.size());
    return piece.size();
  }
  void on_finish_impl(error_code&) override {}

  std::string* body = nullptr;  ///< during feed()
  unsigned status = 0;
  std::vector<std::pair<std::string, std::string>> headers;
  std::size_t header_bytes = 0;
  bool is_head_told = false;
  bool is_broken = false;
};

ReplyParser::ReplyParser(bool is_to_head) : impl_{std::make_unique<Impl>(is_to_head)} {}
ReplyParser::~ReplyParser() = default;

ReplyParser::Step ReplyParser::feed(std::string_view bytes, std::size_t& consumed,
                                    std::string& body) {
  auto& in = *impl_;
  consumed = 0;
  in.body = &body;
  in.eager(in.is_head_told);
  while (!in.is_broken && !in.is_done() && consumed < bytes.size()) {
    if (in.is_header_done() && !in.is_head_told) break;
    error_code error;
    const auto rest = bytes.substr(consumed);
    const auto n = in.put(boost::asio::const_buffer{rest.data(), rest.size()}, error);
    consumed += n;
    if (!in.is_head_told) in.header_bytes += n;
    if (!in.is_head_told && in.header_bytes > kMostReplyHeader) in.is_broken = true;
    // A line that never ends: of a chunk's extension, or a trailer.
    if (error == http::error::need_more && n == 0 && rest.size() > kMostReplyHeader)
      in.is_broken = true;
    if (error && error != http::error::need_more) in.is_broken = true;
    if (n == 0) break;
  }
  in.body = nullptr;
  if (in.is_broken) return Step::broken;
  if (in.is_header_done() && !in.is_head_told) {
    in.is_head_told = true;
    return Step::has_head;
  }
  return in.is_done() ? Step::done : Step::needs_more;
}

bool ReplyParser::end() {
  auto& in = *impl_;
  if (in.is_broken) return false;
  if (in.is_done()) return true;
  error_code error;
  std::string none;
  in.body = &none;
  if (in.is_header_done()) in.put_eof(error);
  in.body = nullptr;
  return in.is_done() && !error;
}

bool ReplyParser::keeps_alive() const {
  return !impl_->is_broken && impl_->is_done() && impl_->keep_alive();
}

unsigned ReplyParser::status() const { return impl_->status; }

std::optional<std::string_view> ReplyParser::header(std::string_view name) const {
  for (const auto& [key, value] : impl_->headers) {
    if (key == name) return value;
  }
  return std::nullopt;
}

}  // namespace acc::agent::daemon
