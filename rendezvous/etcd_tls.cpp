#include "rendezvous/etcd_tls.hpp"

#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/impl/src.hpp>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

namespace acc::rendezvous {

namespace ssl = boost::asio::ssl;
using boost::system::error_code;

namespace {

Error bad_tls_file(std::string_view flag, const std::string& file, const error_code& why) {
  return {Errc::bad_config, "etcd: " + std::string{flag} + " '" + file + "': " + why.message()};
}

// Without a callback OpenSSL asks at the terminal, or reads standard input, and waits for ever.
// There is no pass phrase to give: the key must have none.
Result<void> use_key(ssl::context& context, const std::string& file) {
  const auto is_asked = std::make_shared<bool>(false);
  context.set_password_callback([is_asked](std::size_t, ssl::context::password_purpose) {
    *is_asked = true;
    return std::string{};
  });
  error_code error;
  context.use_private_key_file(file, ssl::context::pem, error);
  if (!error) return {};
  if (!*is_asked) return bad_tls_file("--etcd_key", file, error);
  return Error{Errc::bad_config,
               "etcd: --etcd_key '" + file +
                   "': it is encrypted, and a launcher can't ask for its pass phrase: write it "
                   "without one, readable by you alone ('umask 077; openssl pkey -in " +
                   file + " -out NEW'), and give that"};
}

/// True for an alert by which the server rejects our certificate.
bool is_about_our_certificate(int reason) {
  switch (reason) {
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
      return true;
    default:
      return false;
  }
}

bool is_no_tls(int reason) {
  return reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST ||
         reason == SSL_R_PACKET_LENGTH_TOO_LONG;
}

}  // namespace

Result<std::shared_ptr<EtcdTls>> EtcdTls::open(const EtcdAccess& access) {
  ssl::context context{ssl::context::tls_client};
  error_code error;
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  context.set_verify_mode(ssl::verify_peer);
  if (access.ca_file.empty()) {
    context.set_default_verify_paths(error);
  } else {
    context.load_verify_file(access.ca_file, error);
    if (error) return bad_tls_file("--etcd_cacert", access.ca_file, error);
  }
  if (!access.cert_file.empty()) {
    context.use_certificate_chain_file(access.cert_file, error);
    if (error) return bad_tls_file("--etcd_cert", access.cert_file, error);
    if (const auto used = use_key(context, access.key_file); !used) return used.error();
  }
  return std::make_shared<EtcdTls>(std::move(context), access);
}

bool EtcdTls::expect(Stream& stream, const std::string& host) {
  X509_VERIFY_PARAM* const param = SSL_get0_param(stream.native_handle());
  error_code is_name;
  const auto address = boost::asio::ip::make_address(host, is_name);
  if (is_name)
    return X509_VERIFY_PARAM_set1_host(param, host.c_str(), host.size()) == 1 &&
           SSL_set_tlsext_host_name(stream.native_handle(), host.c_str()) == 1;
  // No certificate has the zone of a link-local address: it is this host's name of an interface.
  if (address.is_v6()) {
    const auto bytes = address.to_v6().to_bytes();
    return X509_VERIFY_PARAM_set1_ip(param, bytes.data(), bytes.size()) == 1;
  }
  const auto bytes = address.to_v4().to_bytes();
  return X509_VERIFY_PARAM_set1_ip(param, bytes.data(), bytes.size()) == 1;
}

Error EtcdTls::explain(Stream& stream, const std::string& host, std::string_view attempt,
                       const error_code& error) const {
  const std::string begin = std::string{attempt} + ": ";
  const bool is_tls = error.category() == boost::asio::error::get_ssl_category();
  const int reason = is_tls ? ERR_GET_REASON(static_cast<unsigned long>(error.value())) : 0;
  const char* const words =
      is_tls ? ERR_reason_error_string(static_cast<unsigned long>(error.value())) : nullptr;
  const std::string said = words != nullptr ? words : error.message();
  if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
    const long result = SSL_get_verify_result(stream.native_handle());
    const std::string why = X509_verify_cert_error_string(result);
    if (result == X509_V_ERR_HOSTNAME_MISMATCH || result == X509_V_ERR_IP_ADDRESS_MISMATCH)
      return {Errc::bad_config, begin + "its certificate is not for '" + host + "' (" + why +
                                    "): give --rdzv_endpoint a name that stands in it"};
    const std::string by =
        access_.ca_file.empty() ? "the system's CAs" : "--etcd_cacert '" + access_.ca_file + '\'';
    return {Errc::bad_config, begin + "its certificate was refused, by " + by + ": " + why +
                                  ": give the CA that signed it with --etcd_cacert FILE"};
  }
  if (is_about_our_certificate(reason)) {
    if (access_.cert_file.empty())
      return {Errc::bad_config, begin + "it asks for a client certificate (" + said +
                                    "): give --etcd_cert and --etcd_key"};
    return {Errc::bad_config,
            begin + "it refused --etcd_cert '" + access_.cert_file + "' (" + said + ')'};
  }
  const bool is_end = error == ssl::error::stream_truncated || error == boost::asio::error::eof ||
                      error == boost::asio::error::connection_reset;
  const bool is_handshake = attempt == kHandshake;
  // TLS 1.3: the server checks our certificate after the handshake has ended on our side, and its
  // alert may be lost.
  if (is_end && !is_handshake)
    return {Errc::bad_config,
            begin + "it closed the connection after the TLS handshake (" + said + "): " +
                (access_.cert_file.empty()
                     ? std::string{"if it asks for a client certificate, give --etcd_cert and "
                                   "--etcd_key"}
                     : "it may have refused --etcd_cert '" + access_.cert_file + '\'')};
  if (is_no_tls(reason) || (is_end && is_handshake))
    return {Errc::bad_config, begin + "no TLS is spoken there (" + said +
                                  "): if that etcd serves plain http, write http:// in "
                                  "--rdzv_endpoint"};
  return {Errc::unavailable, begin + said};
}

}  // namespace acc::rendezvous
