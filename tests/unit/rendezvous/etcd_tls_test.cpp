#include "rendezvous/etcd_tls.hpp"

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include <openssl/crypto.h>
#include <openssl/x509_vfy.h>

#include <string>

using namespace acc::rendezvous;

namespace {

/// What is looked for in the certificate of `host`: its address, else its name.
std::string expected_of(const std::string& host) {
  const auto tls = EtcdTls::open({});
  REQUIRE(tls.has_value());
  boost::asio::io_context io;
  boost::asio::ip::tcp::socket socket{io};
  EtcdTls::Stream stream{socket, (*tls)->context()};
  if (!EtcdTls::expect(stream, host)) return "nothing";
  X509_VERIFY_PARAM* const param = SSL_get0_param(stream.native_handle());
  char* const address = X509_VERIFY_PARAM_get1_ip_asc(param);
  const char* const name = X509_VERIFY_PARAM_get0_host(param, 0);
  const std::string found = address != nullptr ? address : name != nullptr ? name : "any";
  OPENSSL_free(address);
  return found;
}

}  // namespace

TEST_CASE("an etcd at a link-local address was taken with any certificate", "[rendezvous][etcd]") {
  CHECK(expected_of("fe80::1%eth0") == "FE80:0:0:0:0:0:0:1");
  CHECK(expected_of("fe80::1%3") == "FE80:0:0:0:0:0:0:1");
  CHECK(expected_of("fd77::2") == "FD77:0:0:0:0:0:0:2");
  CHECK(expected_of("10.77.0.1") == "10.77.0.1");
  CHECK(expected_of("etcd.example") == "etcd.example");
}

TEST_CASE("a host for which there can't be a certificate is refused", "[rendezvous][etcd]") {
  CHECK(expected_of(std::string(300, 'x')) == "nothing");
}
