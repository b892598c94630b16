#include "runtime/tcp/listener.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

namespace acc::runtime::tcp {

using namespace std::chrono_literals;

namespace {

/// Time limit of a Hello.
constexpr auto kHelloTime = 2s;

}  // namespace

Hello::Hello(Purpose why, int from_rank, int to_rank, std::string_view group_token)
    : purpose{why}, from{from_rank}, to{to_rank} {
  group_token.copy(token, sizeof token);
}

Listener::Listener(UniqueFd listening, std::string token, int size)
    : listening_{std::move(listening)}, token_{std::move(token)}, size_{size} {}

void Listener::add_waits(std::vector<pollfd>& waits) const {
  waits.push_back({listening_.get(), POLLIN, 0});
  for (const auto& one : unidentified_) waits.push_back({one.fd.get(), POLLIN, 0});
}

Result<std::optional<Incoming>> Listener::next() {
  read_all();
  const auto accepted = accept_all();
  if (identified_.empty()) {
    if (!accepted) return accepted.error();
    return std::optional<Incoming>{};
  }
  std::optional<Incoming> next{std::move(identified_.front())};
  identified_.pop_front();
  return next;
}

// Each is read as soon as it is accepted, so only those that stay silent count against the limit.
// Others may connect faster than connections are taken: the caller looks at its deadline in
// between.
Result<void> Listener::accept_all() {
  constexpr int kMostAtOnce = 64;
  if (!listening_.is_ours()) return {};  // the program has closed it: nobody can connect
  for (int i = 0; i < kMostAtOnce; ++i) {
    auto fd = accept_from(listening_.get());
    if (!fd && fd.error().code == Errc::not_found) return {};
    if (!fd) {
      if (unidentified_.empty()) return fd.error();
      unidentified_.pop_front();  // frees a descriptor
      continue;
    }
    unidentified_.push_back(
        {KeptFd{*std::move(fd)}, std::chrono::steady_clock::now() + kHelloTime, 0, {}});
    read_all();
    if (unidentified_.size() > kMostUnidentified) unidentified_.pop_front();
  }
  return {};
}

void Listener::read_all() {
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(unidentified_, [&](Unidentified& one) {
    const auto found = read(one);
    if (found == Read::done)
      identified_.push_back({std::move(one.fd), one.hello.from, one.hello.purpose});
    return found != Read::more || now >= one.until;
  });
}

Listener::Read Listener::read(Unidentified& one) const {
  if (!one.fd.is_ours()) return Read::refused;  // the program has closed it
  auto* const bytes = reinterpret_cast<std::byte*>(&one.hello);
  const auto n =
      ::recv(one.fd.get(), bytes + one.received, sizeof one.hello - one.received, MSG_DONTWAIT);
  if (n == 0) return Read::refused;
  if (n < 0) {
    const bool is_early = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    return is_early ? Read::more : Read::refused;
  }
  one.received += static_cast<std::size_t>(n);
  if (one.received < sizeof one.hello) return Read::more;
  const Hello expected{one.hello.purpose, one.hello.from, one.hello.to, token_};
  const bool is_ours = one.hello.magic == Hello::kMagic && one.hello.from >= 0 &&
                       one.hello.from < size_ &&
                       std::memcmp(one.hello.token, expected.token, sizeof expected.token) == 0;
  return is_ours ? Read::done : Read::refused;
}

}  // namespace acc::runtime::tcp
