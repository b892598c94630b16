#pragma once

#include <sys/socket.h>

#include <acc/types.hpp>
#include <cerrno>
#include <cstddef>
#include <cstdint>

/// How the ranks of a fake communicator speak with the thread of rank 0 that plays the network.
namespace acc::fake {

enum class Kind : std::uint32_t {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  send,
  recv,
};

struct Hello {
  std::int32_t rank = 0;
  std::int32_t size = 0;
};
/// A request is a count of these, each followed by `bytes` of payload; the answer is the payloads
/// that the rank receives, in the same order, and a byte when all is done.
struct Item {
  Kind kind = Kind::all_reduce;
  std::int32_t type = 0;
  std::int32_t op = 0;
  std::int32_t peer = -1;  ///< or the root
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
};

inline std::size_t received_bytes(const Item& item, int rank, int size) {
  const auto one = item.count * runtime::size_of(static_cast<runtime::DType>(item.type));
  switch (item.kind) {
    case Kind::all_gather:
      return one * static_cast<std::size_t>(size);
    case Kind::reduce:
      return rank == item.peer ? one : 0;
    case Kind::send:
      return 0;
    default:
      return one;
  }
}
inline std::size_t sent_bytes(const Item& item, int rank, int size) {
  const auto one = item.count * runtime::size_of(static_cast<runtime::DType>(item.type));
  switch (item.kind) {
    case Kind::reduce_scatter:
      return one * static_cast<std::size_t>(size);
    case Kind::broadcast:
      return rank == item.peer ? one : 0;
    case Kind::recv:
      return 0;
    default:
      return one;
  }
}

/// All of it, or false: the other side is gone.
inline bool write_all(int fd, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const auto sent = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}
inline bool read_all(int fd, void* data, std::size_t bytes) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const auto got = ::recv(fd, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace acc::fake
