#include "common/text.hpp"
#include "rendezvous/etcd_json.hpp"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>

namespace acc::rendezvous {

namespace {

// gRPC status codes, as the gateway passes them on.
enum Grpc : int {
  kDeadlineExceeded = 4,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kUnavailable = 14,
  kUnauthenticated = 16,
};

constexpr std::string_view kNotEtcd =
    "that isn't the JSON gateway of etcd 3.4 or later: correct the address, or start etcd with "
    "--enable-grpc-gateway";

EtcdRefusal needs_login(const std::string& said) {
  return {.code = Errc::not_permitted,
          .what = said +
                  ": it asks for a user: give --etcd_user_file FILE or the variable ACC_ETCD_USER, "
                  "with NAME:PASSWORD",
          .needs_login = true};
}

EtcdRefusal refusal_of(int code, const std::string& message) {
  const std::string said = "etcd says \"" + printable(message) + '"';
  switch (code) {
    case kUnavailable:
    case kDeadlineExceeded:
      return {Errc::unavailable,
              said + ": have its members lost each other? look with 'etcdctl endpoint status'",
              true};
    case kResourceExhausted:
      return {Errc::exhausted,
              said +
                  ": if its space is used up: 'etcdctl compact', 'etcdctl defrag', 'etcdctl "
                  "alarm disarm'"};
    case kUnauthenticated:
      return needs_login(said);
    case kPermissionDenied:
      return {Errc::not_permitted,
              said +
                  ": its role must read and write below --etcd_prefix: 'etcdctl role "
                  "grant-permission ROLE readwrite --prefix=true PREFIX/'"};
    default:
      break;
  }
  const auto says = [&](std::string_view words) {
    return message.find(words) != std::string::npos;
  };
  if (says("user name is empty") || says("invalid auth token") || says("revision of auth store"))
    return needs_login(said);
  if (says("authentication is not enabled"))
    return {.code = Errc::not_permitted, .what = said, .has_no_users = true};
  if (says("authentication failed"))
    return {Errc::not_permitted,
            said +
                ": correct the name and the password there; 'etcdctl --user NAME user list' "
                "tells the same"};
  if (says("too large"))
    return {Errc::exhausted, said + ": start etcd with a larger --max-request-bytes"};
  return {Errc::system, said};
}

struct Status {
  int code = 0;
  std::string message;
};

/// The status in an answer. That of a stream, as keep-alive is one, is nested, and its code has
/// another name.
std::optional<Status> status_of(const nlohmann::json& answer) {
  if (!answer.is_object()) return std::nullopt;
  const auto nested = answer.find("error");
  const bool is_of_stream = nested != answer.end() && nested->is_object();
  const auto& status = is_of_stream ? *nested : answer;
  const auto message = status.find("message");
  const auto code =
      status.find(is_of_stream && status.contains("grpc_code") ? "grpc_code" : "code");
  const bool is_whole = message != status.end() && message->is_string() && code != status.end() &&
                        code->is_number_integer();
  if (!is_whole) return std::nullopt;
  return Status{code->get<int>(), message->get<std::string>()};
}

}  // namespace

EtcdRefusal parse_etcd_refusal(unsigned status, std::string_view body) {
  // Plain-text answer of Go's server where it expected TLS.
  if (body.find("HTTP request to an HTTPS server") != std::string_view::npos)
    return {Errc::bad_config, "that etcd speaks TLS: write https:// in --rdzv_endpoint", true};
  if (const auto said = status_of(nlohmann::json::parse(body, nullptr, false)))
    return refusal_of(said->code, said->message);
  std::string what = "HTTP status " + std::to_string(status);
  if (!body.empty()) what += ", \"" + printable(trim(body), 80) + '"';
  return {Errc::unavailable, what + ": " + std::string{kNotEtcd}, true};
}

}  // namespace acc::rendezvous
