#include "agent/daemon/http_message.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <array>

namespace acc::agent::daemon {

namespace {

struct StatusRow {
  unsigned status;
  std::string_view phrase;
  std::string_view code;
};

constexpr std::array kStatuses{
    StatusRow{200, "OK", ""},
    StatusRow{201, "Created", ""},
    StatusRow{202, "Accepted", ""},
    StatusRow{204, "No Content", ""},
    StatusRow{303, "See Other", ""},
    StatusRow{304, "Not Modified", ""},
    StatusRow{400, "Bad Request", "bad_request"},
    StatusRow{401, "Unauthorized", "unauthorized"},
    StatusRow{403, "Forbidden", "not_permitted"},
    StatusRow{404, "Not Found", "not_found"},
    StatusRow{405, "Method Not Allowed", "method_not_allowed"},
    StatusRow{408, "Request Timeout", "timed_out"},
    StatusRow{409, "Conflict", "conflict"},
    StatusRow{411, "Length Required", "length_required"},
    StatusRow{413, "Content Too Large", "too_large"},
    StatusRow{415, "Unsupported Media Type", "unsupported_media_type"},
    StatusRow{416, "Range Not Satisfiable", "out_of_range"},
    StatusRow{417, "Expectation Failed", "expectation_failed"},
    StatusRow{429, "Too Many Requests", "exhausted"},
    StatusRow{431, "Request Header Fields Too Large", "header_too_large"},
    StatusRow{500, "Internal Server Error", "internal"},
    StatusRow{502, "Bad Gateway", "node_unreachable"},
    StatusRow{503, "Service Unavailable", "unavailable"},
    StatusRow{504, "Gateway Timeout", "no_answer"},
    StatusRow{505, "HTTP Version Not Supported", "version_not_supported"},
};

const StatusRow& row_of(unsigned status) {
  const auto* found = std::ranges::find(kStatuses, status, &StatusRow::status);
  return found != kStatuses.end() ? *found : row_of(500);
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Nothing if an escape is cut off or stands for a control character.
std::optional<std::string> decoded(std::string_view text, bool plus_is_space) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = hex_digit(text[i + 1]);
      const int low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    } else if (c == '+' && plus_is_space) {
      c = ' ';
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return std::nullopt;
    out += c;
  }
  return out;
}

}  // namespace

std::optional<std::string_view> HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return std::nullopt;
}

std::string_view reason_phrase(unsigned status) { return row_of(status).phrase; }
std::string_view error_code_of(unsigned status) { return row_of(status).code; }

std::string reply_head(const HttpReply& reply, std::optional<std::size_t> body_size,
                       bool is_chunked, bool keeps_alive) {
  std::string head = "HTTP/1.1 " + std::to_string(reply.status) + ' ';
  head.append(reason_phrase(reply.status)).append("\r\n");
  const bool has_body = reply.status != 204 && reply.status != 304;
  if (has_body && !reply.content_type.empty())
    head += "Content-Type: " + reply.content_type + "\r\n";
  if (is_chunked) {
    head += "Transfer-Encoding: chunked\r\n";
  } else if (has_body && body_size) {
    head += "Content-Length: " + std::to_string(*body_size) + "\r\n";
  }
  for (const auto& [name, value] : reply.headers) head += name + ": " + value + "\r\n";
  // A browser must not take what a worker printed for a page.
  head += "X-Content-Type-Options: nosniff\r\n";
  const bool is_kept = std::ranges::any_of(
      reply.headers, [](const auto& header) { return header.first == "Cache-Control"; });
  if (!is_kept) head += "Cache-Control: no-store\r\n";
  if (!keeps_alive) head += "Connection: close\r\n";
  return head + "\r\n";
}

bool parse_target(std::string_view target, HttpRequest& into) {
  into.segments.clear();
  into.query.clear();
  // The absolute form, as a proxy sends it: the host doesn't matter here.
  if (const auto scheme = target.find("://"); !target.starts_with('/')) {
    if (scheme == std::string_view::npos) return false;
    const auto path = target.find('/', scheme + 3);
    target = path == std::string_view::npos ? std::string_view{"/"} : target.substr(path);
  }
  target = target.substr(0, target.find('#'));
  const auto mark = target.find('?');
  const auto path = target.substr(1, mark == std::string_view::npos ? mark : mark - 1);
  if (!path.empty()) {
    for (const auto& part : split(path, '/')) {
      auto segment = decoded(part, false);
      if (!segment) return false;
      into.segments.push_back(std::move(*segment));
    }
  }
  if (mark == std::string_view::npos || mark + 1 == target.size()) return true;
  for (const auto& part : split(target.substr(mark + 1), '&')) {
    if (part.empty()) continue;
    const auto equals = part.find('=');
    auto name = decoded(std::string_view{part}.substr(0, equals), true);
    auto value = equals == std::string::npos
                     ? std::optional<std::string>{""}
                     : decoded(std::string_view{part}.substr(equals + 1), true);
    if (!name || !value) return false;
    into.query.emplace_back(std::move(*name), std::move(*value));
  }
  return true;
}

}  // namespace acc::agent::daemon
