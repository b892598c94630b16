#include "agent/daemon/status_page.hpp"

#include "agent/daemon/api_call.hpp"
#include "agent/daemon/page_files.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <string>
#include <string_view>

namespace acc::agent::daemon {

namespace {

/// Nothing but the page's own files and the API; with trusted types the browser refuses to make
/// markup from text, even if a script tried to.
constexpr std::string_view kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

const PageFile* page_file_of(const HttpRequest& request) {
  if (request.segments.size() > 1) return nullptr;
  const std::string_view name =
      request.segments.empty() ? std::string_view{} : std::string_view{request.segments.front()};
  const auto files = page_files();
  const auto found = std::ranges::find(files, name, &PageFile::name);
  return found == files.end() ? nullptr : &*found;
}

/// If-None-Match: a list of tags, each perhaps weak, or "*".
bool has_tag(std::string_view list, std::string_view etag) {
  for (const auto& item : split(list, ',')) {
    std::string_view tag = trim(item);
    if (tag.starts_with("W/")) tag.remove_prefix(2);
    if (tag == etag || tag == "*") return true;
  }
  return false;
}

}  // namespace

std::optional<HttpReply> page_reply(const HttpRequest& request) {
  const auto* file = page_file_of(request);
  if (file == nullptr) return std::nullopt;
  HttpReply reply;
  if (request.method != "GET" && request.method != "HEAD") {
    reply = refused(405, "the status page is only read: GET or HEAD");
    reply.headers.emplace_back("Allow", "GET, HEAD");
    return reply;
  }
  const auto known = request.header("if-none-match");
  const bool is_known = known && has_tag(*known, file->etag);
  reply.status = is_known ? 304 : 200;
  reply.content_type = file->content_type;
  if (!is_known) reply.body = file->bytes;
  // Asked for again each time, and sent again only after an update of the daemon.
  reply.headers.emplace_back("Cache-Control", "no-cache");
  reply.headers.emplace_back("ETag", std::string{file->etag});
  reply.headers.emplace_back("Content-Security-Policy", std::string{kPagePolicy});
  reply.headers.emplace_back("Cross-Origin-Opener-Policy", "same-origin");
  return reply;
}

}  // namespace acc::agent::daemon
