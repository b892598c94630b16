#pragma once

#include "common/error.hpp"

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
/// Debian and its derivatives map a host's own name to 127.0.1.1 on that host, and to its real
/// address elsewhere: nodes that dial the name from other hosts would find no listener there.
/// @param host  as configured. @param address  what it is on this host
[[nodiscard]] bool is_name_on_loopback(const std::string& host, const std::string& address);
/// Why listening failed: the address isn't one of this host. An IPv6 address isn't where the kernel
/// has no IPv6.
[[nodiscard]] bool is_no_own_address(const Error& failed);

}  // namespace acc::rendezvous
