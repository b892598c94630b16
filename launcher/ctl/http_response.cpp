#include "launcher/ctl/http_response.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <utility>

namespace acc::ctl {

namespace http = boost::beast::http;

struct HttpResponse::Parser {
  http::response_parser<http::string_body> beast;
  std::string unread;  ///< bytes that the parser wants to see again with those that follow
};

HttpResponse::HttpResponse() : parser_{std::make_unique<Parser>()} {
  constexpr std::uint32_t kMostHeader = 64 * 1024;
  parser_->beast.eager(true);
  parser_->beast.header_limit(kMostHeader);
  parser_->beast.body_limit(boost::none);
}

HttpResponse::~HttpResponse() = default;

Result<void> HttpResponse::feed(std::string_view bytes) {
  auto& unread = parser_->unread;
  unread += bytes;
  while (!unread.empty() && !parser_->beast.is_done()) {
    boost::system::error_code error;
    const auto used =
        parser_->beast.put(boost::asio::const_buffer{unread.data(), unread.size()}, error);
    unread.erase(0, used);
    if (error == http::error::need_more) return {};
    if (error) return Error{Errc::malformed, "read the answer: " + error.message()};
    if (used == 0) return {};
  }
  return {};
}

bool HttpResponse::end() {
  boost::system::error_code error;
  if (parser_->beast.got_some()) parser_->beast.put_eof(error);
  return !error && parser_->beast.is_done();
}

bool HttpResponse::has_header() const { return parser_->beast.is_header_done(); }
bool HttpResponse::is_done() const { return parser_->beast.is_done(); }
unsigned HttpResponse::status() const { return parser_->beast.get().result_int(); }

std::string HttpResponse::header(std::string_view name) const {
  const auto value = parser_->beast.get()[boost::beast::string_view{name.data(), name.size()}];
  return {value.data(), value.size()};
}

std::string HttpResponse::take_body() { return std::exchange(parser_->beast.get().body(), {}); }

}  // namespace acc::ctl
