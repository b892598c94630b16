#pragma once

#include <boost/asio/ip/address.hpp>

namespace acc::agent::daemon {

/// Whether a connection to it stays on this host: loopback, or an address that one of its
/// interfaces has now.
[[nodiscard]] bool is_own_address(const boost::asio::ip::address& address);

}  // namespace acc::agent::daemon
