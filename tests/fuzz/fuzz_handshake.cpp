// Whatever comes at a listening channel before it has proved anything: no crash, no frame without
// the key, no frame that is longer than a first one may be. The first byte chooses what the rest
// is.
#include "rendezvous/channel.hpp"
#include "rendezvous/codec.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

using namespace acc;
using namespace acc::rendezvous;

struct World {
  boost::asio::io_context io{1};
  Secret secret{"file", {{"0a1b2c3d", SecretBytes{std::string(32, 's')}}}};
  std::shared_ptr<const TlsContext> listens = TlsContext::for_listening(secret);
  std::shared_ptr<const TlsContext> dials = TlsContext::for_dialling(secret, "job");

  void turn() {
    io.restart();
    io.poll();
  }
};

World& world() {
  static World it;
  return it;
}

/// The listening side, and the socket that speaks to it.
struct Side {
  UniqueFd other;
  std::shared_ptr<Channel> channel;
  std::vector<std::string> frames;

  explicit Side(bool is_tls) {
    int fds[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0)
      std::abort();
    other.reset(fds[1]);
    channel =
        std::make_shared<Channel>(world().io, UniqueFd{fds[0]}, is_tls ? world().listens : nullptr);
    channel->start({.on_frame = [this](std::string_view frame) { frames.emplace_back(frame); }});
    world().turn();
  }
  ~Side() {
    channel.reset();
    world().turn();
  }
  void say(std::string_view bytes) const {
    ::send(other.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    world().turn();
  }
  void say_in_pieces(std::string_view bytes, std::size_t piece) const {
    for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size())))
      say(bytes.substr(0, piece));
  }
};

void check_frames(const std::vector<std::string>& frames) {
  if (!frames.empty() && frames.front().size() > kMaxFirstFrame) std::abort();
  for (const auto& frame : frames) {
    if (frame.size() > kMaxFrame) std::abort();
    const auto decoded = decode(frame);
    if (!decoded && decoded.error().what.empty()) std::abort();
  }
}

void without_the_key(std::string_view bytes, std::size_t piece) {
  const Side side{true};
  side.say_in_pieces(bytes, piece);
  if (!side.frames.empty() || side.channel->is_open()) std::abort();
}

void plain(std::string_view bytes, std::size_t piece) {
  const Side side{false};
  side.say_in_pieces(bytes, piece);
  check_frames(side.frames);
}

// A dialler with the key; what it sends passes through `change` on its way.
template <class Change>
void with_the_key(const Side& side, std::string_view says, Change change) {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) std::abort();
  const UniqueFd client{fds[0]};
  const UniqueFd wire{fds[1]};
  Stream stream{client.get(), world().dials};
  bool is_through = false;
  for (int round = 0; round < 4; ++round) {
    std::size_t taken = 0;
    if (!is_through) is_through = stream.shake_hands() == Io::done;
    if (is_through && stream.write(says, taken) == Io::done) says.remove_prefix(taken);
    char buffer[32768];
    if (const auto n = ::recv(wire.get(), buffer, sizeof buffer, 0); n > 0) {
      std::string bytes{buffer, static_cast<std::size_t>(n)};
      change(bytes);
      side.say(bytes);
    }
    if (const auto n = ::recv(side.other.get(), buffer, sizeof buffer, 0); n > 0)
      ::send(wire.get(), buffer, static_cast<std::size_t>(n), MSG_NOSIGNAL);
    if (!is_through && stream.fault() != StreamFault::none) return;
  }
}

void after_the_handshake(std::string_view bytes) {
  const Side side{true};
  with_the_key(side, bytes, [](std::string&) {});
  check_frames(side.frames);
}

// One byte of the dialler's bytes is changed: then nothing may come through but what it said.
void with_a_flaw(std::string_view bytes) {
  if (bytes.size() < 3) return;
  const auto at =
      static_cast<unsigned char>(bytes[0]) * 256U + static_cast<unsigned char>(bytes[1]);
  const char flaw = bytes[2];
  const std::string says = encode({}, Heartbeat{.heartbeat = 1});
  const Side side{true};
  std::size_t seen = 0;
  with_the_key(side, says, [&](std::string& passing) {
    const std::size_t offset = at % 1024;
    if (offset >= seen && offset - seen < passing.size())
      passing[offset - seen] = static_cast<char>(passing[offset - seen] ^ flaw);
    seen += passing.size();
  });
  for (const auto& frame : side.frames)
    if (frame != says) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes{reinterpret_cast<const char*>(data) + 1, size - 1};
  const std::size_t piece = std::size_t{1} << (data[0] >> 2U & 15U);
  switch (data[0] & 3U) {
    case 0:
      without_the_key(bytes.substr(0, 64 * piece), piece);
      break;
    case 1:
      plain(bytes.substr(0, 64 * piece), piece);
      break;
    case 2:
      after_the_handshake(bytes);
      break;
    default:
      with_a_flaw(bytes);
      break;
  }
  return 0;
}
