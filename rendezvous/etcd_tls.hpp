#pragma once

#include "common/error.hpp"
#include "rendezvous/etcd_access.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>

#include <memory>
#include <string>

/// TLS towards etcd: the server's certificate, and a client certificate if one is configured.
/// Agents among themselves use tls.hpp.
namespace acc::rendezvous {

class EtcdTls {
 public:
  using Stream = boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>;

  /// Reads the files of `access`; an Error names the one that can't be used.
  static Result<std::shared_ptr<EtcdTls>> open(const EtcdAccess& access);
  EtcdTls(boost::asio::ssl::context context, EtcdAccess access)
      : context_{std::move(context)}, access_{std::move(access)} {}

  [[nodiscard]] boost::asio::ssl::context& context() { return context_; }
  /// Accepts only a certificate for this name or address. False: it can't be looked for in one, and
  /// any would be accepted.
  [[nodiscard]] static bool expect(Stream& stream, const std::string& host);
  static constexpr std::string_view kHandshake = "TLS handshake";
  /// Message with the cure. @param attempt  kHandshake, "send" or "read"
  [[nodiscard]] Error explain(Stream& stream, const std::string& host, std::string_view attempt,
                              const boost::system::error_code& error) const;

 private:
  boost::asio::ssl::context context_;
  EtcdAccess access_;
};

}  // namespace acc::rendezvous
