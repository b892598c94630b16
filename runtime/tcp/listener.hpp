#pragma once

#include "common/kept_fd.hpp"
#include "runtime/net/sockets.hpp"

#include <poll.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace acc::runtime::tcp {

/// What a connection is for.
enum class Purpose : std::uint32_t { rail = 1, control, message, failure };

/// The first bytes of every connection: which rank of which group it comes from.
struct Hello {
  static constexpr std::uint32_t kMagic = 0xacc57c01;
  std::uint32_t magic = kMagic;
  Purpose purpose = Purpose::rail;
  std::int32_t from = 0;
  std::int32_t to = 0;
  char token[32] = {};

  Hello() = default;
  Hello(Purpose why, int from_rank, int to_rank, std::string_view group_token);
};

/// A connection of another rank of the group.
struct Incoming {
  KeptFd fd;
  int from = 0;
  Purpose purpose = Purpose::rail;
};

/// Accepts the connections of the group's other ranks. Each must send a Hello with the group's
/// token first. All connections are read side by side, without blocking, so a silent one delays
/// none of the others; their number and their time are limited.
class Listener {
 public:
  /// Limit of connections without a Hello. Beyond it the oldest is closed: a rank sends its Hello
  /// as soon as it is connected.
  static constexpr std::size_t kMostUnidentified = 128;

  Listener() = default;
  /// @param size  ranks of the group
  Listener(UniqueFd listening, std::string token, int size);

  [[nodiscard]] SocketAddress address() const { return local_address(listening_.get()); }
  /// Adds the descriptors that `next` has to be called for.
  void add_waits(std::vector<pollfd>& waits) const;
  /// The next connection with a valid Hello; nothing: none yet. Never blocks.
  /// @return an error if this process can't accept connections (no descriptor is left).
  [[nodiscard]] Result<std::optional<Incoming>> next();

 private:
  struct Unidentified {
    KeptFd fd;
    std::chrono::steady_clock::time_point until;
    std::size_t received = 0;  ///< bytes of `hello`
    Hello hello;
  };
  enum class Read { more, done, refused };

  [[nodiscard]] Result<void> accept_all();
  void read_all();
  [[nodiscard]] Read read(Unidentified& one) const;

  KeptFd listening_;
  std::string token_;
  int size_ = 0;
  std::deque<Unidentified> unidentified_;  ///< oldest first
  std::deque<Incoming> identified_;
};

}  // namespace acc::runtime::tcp
