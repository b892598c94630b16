#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <string>

/// Addresses of this host, as others would use them. Nothing is sent.
namespace acc::rendezvous {

/// The source address that this host would use towards `other`. Empty: there is no route to it.
[[nodiscard]] std::string own_address_towards(boost::asio::io_context& io,
                                              const boost::asio::ip::tcp::endpoint& other);
/// An address by which other hosts may reach this one: that of the default route, else the first of
/// an interface that is up, IPv4 before IPv6, never loopback or link-local. Empty: there is none.
[[nodiscard]] std::string routable_own_address(boost::asio::io_context& io);
/// False for a name.
[[nodiscard]] bool is_loopback_address(const std::string& text);

}  // namespace acc::rendezvous
