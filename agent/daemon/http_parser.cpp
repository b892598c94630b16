#include "agent/daemon/http_parser.hpp"

#include "common/text.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>

#include <algorithm>

namespace acc::agent::daemon {

namespace http = boost::beast::http;
using boost::system::error_code;

struct RequestParser::Impl final : http::basic_parser<true> {
  using Text = boost::beast::string_view;
  using Length = boost::optional<std::uint64_t>;

  Impl() {
    header_limit(kMostHeaderBytes);
    body_limit(kMostBodyBytes);
    eager(true);
  }

  void on_request_impl(http::verb, Text method, Text target, int version, error_code&) override {
    request.method = std::string{method};
    request.target = std::string{target};
    request.is_http_1_0 = version == 10;
    is_known_version = version == 10 || version == 11;
  }
  void on_response_impl(int, Text, int, error_code&) override {}
  void on_field_impl(http::field, Text name, Text value, error_code&) override {
    if (has_header) return;  // of a trailer: nothing here has use for one
    request.headers.emplace_back(to_lower({name.data(), name.size()}), std::string{value});
  }
  void on_header_impl(error_code&) override { has_header = true; }
  void on_body_init_impl(const Length&, error_code&) override {}
  std::size_t on_body_impl(Text body, error_code&) override {
    request.body.append(body.data(), body.size());
    return body.size();
  }
  void on_chunk_header_impl(std::uint64_t, Text, error_code&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, Text body, error_code&) override {
    request.body.append(body.data(), body.size());
    return body.size();
  }
  void on_finish_impl(error_code&) override {}

  Step refuse(unsigned status, std::string what) {
    refused = {status, std::move(what)};
    return Step::refused;
  }
  Step failed(error_code error) {
    if (error == http::error::header_limit)
      return refuse(431, "the headers are longer than " + std::to_string(kMostHeaderBytes) +
                             " bytes: send fewer or shorter ones");
    if (error == http::error::body_limit)
      return refuse(413, "the body is longer than " + std::to_string(kMostBodyBytes) +
                             " bytes: put data into files, and name them");
    if (error == http::error::bad_version)
      return refuse(505, "this is no HTTP/1.1: other versions aren't spoken here");
    return refuse(400, "not an HTTP request: " + error.message());
  }
  /// All of the header is there: what follows from it.
  Step judge() {
    if (!is_known_version)
      return refuse(505, "this is no HTTP/1.1: other versions aren't spoken here");
    if (!daemon::parse_target(request.target, request))
      return refuse(400, "the target " + in_quotes(request.target) +
                             " is no path: it begins with '/', and escapes are %XX");
    if (const auto expected = request.header("expect")) {
      expects_continue = to_lower(*expected) == "100-continue";
      if (!expects_continue)
        return refuse(417, "the expectation " + in_quotes(*expected) + " can't be met");
    }
    if (request.header("transfer-encoding") && !chunked())
      return refuse(400, "of the transfer encodings only \"chunked\" is understood");
    request.keeps_alive = keep_alive();
    return Step::has_header;
  }

  HttpRequest request;
  HttpRefusal refused;
  std::size_t header_bytes = 0;
  bool has_header = false;
  bool is_header_told = false;
  bool is_known_version = true;
  bool expects_continue = false;
};

RequestParser::RequestParser() : impl_{std::make_unique<Impl>()} {}
RequestParser::~RequestParser() = default;

RequestParser::Step RequestParser::feed(std::string_view bytes, std::size_t& consumed) {
  auto& in = *impl_;
  consumed = 0;
  if (in.refused.status != 0) return Step::refused;
  // The header alone at first, so that the caller may still refuse what would follow.
  in.eager(in.is_header_told);
  while (!in.is_done() && consumed < bytes.size()) {
    if (in.is_header_done() && !in.is_header_told) break;
    error_code error;
    const auto rest = bytes.substr(consumed);
    const auto n = in.put(boost::asio::const_buffer{rest.data(), rest.size()}, error);
    consumed += n;
    if (!in.is_header_told) in.header_bytes += n;
    if (!in.is_header_told && in.header_bytes > kMostHeaderBytes)
      return in.failed(http::make_error_code(http::error::header_limit));
    if (error == http::error::need_more) {
      // A line that never ends: of a chunk's extension, or a trailer.
      if (n == 0 && rest.size() > kMostHeaderBytes)
        return in.failed(http::make_error_code(http::error::header_limit));
      if (n == 0) break;
      continue;
    }
    if (error) return in.failed(error);
    if (n == 0) break;
  }
  if (in.is_header_done() && !in.is_header_told) {
    in.is_header_told = true;
    return in.judge();
  }
  return in.is_done() ? Step::done : Step::needs_more;
}

HttpRequest& RequestParser::request() { return impl_->request; }
const HttpRefusal& RequestParser::refusal() const { return impl_->refused; }
bool RequestParser::expects_continue() const { return impl_->expects_continue; }
bool RequestParser::has_length() const {
  return impl_->chunked() || impl_->content_length().has_value();
}
std::size_t RequestParser::body_reserve() const {
  if (impl_->chunked()) return kMostBodyBytes;
  const auto length = impl_->content_length();
  return length ? static_cast<std::size_t>(std::min<std::uint64_t>(*length, kMostBodyBytes)) : 0;
}

}  // namespace acc::agent::daemon
