#include "common/text.hpp"
#include "rendezvous/etcd_json.hpp"

#include <nlohmann/json.hpp>

namespace acc::rendezvous {

namespace {

// gRPC's codes, as the gateway passes them on.
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
                  "alarm disarm'",
              false};
    case kPermissionDenied:
    case kUnauthenticated:
      return {Errc::not_permitted,
              said +
                  ": it asks for a user, which can't be given here; use an etcd without users "
                  "behind a firewall, or rdzv_backend c10d",
              false};
    default:
      break;
  }
  if (message.find("user name is empty") != std::string::npos)
    return refusal_of(kUnauthenticated, message);
  if (message.find("too large") != std::string::npos)
    return {Errc::exhausted, said + ": start etcd with a larger --max-request-bytes", false};
  return {Errc::system, said, false};
}

}  // namespace

EtcdRefusal parse_etcd_refusal(unsigned status, std::string_view body) {
  // What Go's server says in plain text when it expected TLS.
  if (body.find("HTTP request to an HTTPS server") != std::string_view::npos)
    return {Errc::bad_config,
            "that etcd speaks TLS, which isn't supported here: give it a plain listener on a "
            "trusted network (--listen-client-urls http://…)",
            true};
  const auto json = nlohmann::json::parse(body, nullptr, false);
  if (json.is_object()) {
    const auto message = json.find("message");
    const auto code = json.find("code");
    if (message != json.end() && message->is_string() && code != json.end() &&
        code->is_number_integer())
      return refusal_of(code->get<int>(), message->get<std::string>());
  }
  std::string what = "HTTP status " + std::to_string(status);
  if (!body.empty()) what += ", \"" + printable(trim(body), 80) + '"';
  return {Errc::unavailable, what + ": " + std::string{kNotEtcd}, true};
}

}  // namespace acc::rendezvous
