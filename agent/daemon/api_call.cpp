#include "agent/daemon/api_call.hpp"

#include "agent/daemon/api_json.hpp"
#include "common/log.hpp"
#include "common/text.hpp"

#include <utility>

namespace acc::agent::daemon {

std::optional<std::string_view> ApiCall::query(std::string_view name) const {
  for (const auto& [key, value] : request.query) {
    if (key == name) return value;
  }
  return std::nullopt;
}

constexpr std::size_t kMostAsking = 32;

Asking::Asking(ApiContext& api, uid_t uid) : Asking{api.asking, uid, kMostAsking} {}

Asking::Asking(std::shared_ptr<std::map<uid_t, std::size_t>> count, uid_t uid, std::size_t most)
    : count_{std::move(count)}, uid_{uid} {
  auto& held = (*count_)[uid_];
  is_granted_ = held < most;
  if (is_granted_) ++held;
}

Asking::~Asking() {
  if (is_granted_ && --(*count_)[uid_] == 0) count_->erase(uid_);
}

HttpReply too_many_questions() {
  return refused(503, "this user asks too many jobs at once how they are: try again later");
}

HttpReply json_reply(unsigned status, std::string body) {
  HttpReply reply;
  reply.status = status;
  reply.body = std::move(body);
  return reply;
}

HttpReply refused(unsigned status, const std::string& what,
                  const std::vector<std::string>& complaints) {
  return json_reply(status, encode_error(status, what, complaints));
}

HttpReply refused_as(unsigned status, std::string_view code, const std::string& what) {
  return json_reply(status, encode_error(status, what, {}, code));
}

HttpReply refused(const std::vector<std::string>& complaints) {
  return refused(400, join(complaints, "; "), complaints);
}

HttpReply failed(const Error& error, unsigned bad_usage) {
  switch (error.code) {
    case Errc::not_found:
      return refused(404, error.what);
    case Errc::not_permitted:
      return refused(403, error.what);
    case Errc::bad_usage:
    case Errc::bad_config:
    case Errc::malformed:
      return refused(bad_usage, error.what);
    case Errc::exhausted:
      return refused(429, error.what);
    case Errc::unavailable:
    case Errc::timed_out:
      return refused(503, error.what);
    case Errc::system:
      break;
  }
  log::error("call_failed", {{"why", error.what}});
  return refused(500, error.what);
}

}  // namespace acc::agent::daemon
