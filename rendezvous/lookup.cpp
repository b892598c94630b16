#include "rendezvous/lookup.hpp"

#include <boost/asio/post.hpp>

namespace acc::rendezvous {

namespace asio = boost::asio;

void Lookup::start(const HostPort& of, OnDone done) {
  boost::system::error_code not_numeric;
  const auto address = asio::ip::make_address(of.host, not_numeric);
  if (!not_numeric) {
    asio::post(io_, [weak = weak_from_this(), done = std::move(done),
                     endpoint = asio::ip::tcp::endpoint{address, of.port}] {
      if (const auto self = weak.lock()) done({endpoint}, {});
    });
    return;
  }
  resolver_.async_resolve(of.host, std::to_string(of.port),
                          asio::ip::resolver_base::numeric_service,
                          [weak = weak_from_this(), done = std::move(done)](
                              boost::system::error_code failed, const auto& results) {
                            const auto self = weak.lock();
                            if (!self || failed == asio::error::operation_aborted) return;
                            Endpoints found;
                            for (const auto& entry : results) found.push_back(entry.endpoint());
                            done(std::move(found), failed ? failed.message() : std::string{});
                          });
}

}  // namespace acc::rendezvous
