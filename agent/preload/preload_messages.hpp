#pragma once

#include "common/ids.hpp"

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// The language between agent and preloader: one packet a message, fields with a zero byte between
/// them, the first of which names it. Descriptors come with some (preloader.py has the other half).
namespace acc::agent::preload {

/// In bytes. A longer packet isn't sent: its receiver reads no more of one.
inline constexpr std::size_t kLongestMessage = std::size_t{1} << 18U;

// ---- from the preloader ----

struct Started {};
struct Importing {
  std::string module;
};
struct Ready {
  double seconds = 0;  ///< that the imports took
  std::uint64_t resident_bytes = 0;
  std::string modules;  ///< "torch,numpy"; empty: --preload auto found none
};
/// No worker may be forked from it.
struct Unsafe {
  std::string module;  ///< empty: not by an import
  std::string reason;  ///< "started 3 threads": follows the module's name
};
/// Number of a set of workers, so that what is left of one that was given up is known as such.
using ForkNumber = std::uint64_t;

/// The process that forks the workers of a set has begun.
struct Maker {
  ForkNumber fork = 0;
  pid_t pid = 0;
};
/// It was forked ahead of its round, and waits for its order.
struct Waits {
  ForkNumber fork = 0;
  std::uint64_t own_bytes = 0;  ///< memory that it shares with no other process
};
/// It is set up and waits at the gate. Its parent is the maker.
struct WorkerMade {
  ForkNumber fork = 0;
  LocalRank local;
  pid_t pid = 0;
};
struct WorkerFailed {
  ForkNumber fork = 0;
  LocalRank local;
  std::string why;
};
/// The maker has exited and was reaped: its workers are the agent's children.
struct Made {
  ForkNumber fork = 0;
  int status = 0;  ///< of wait
  std::uint64_t resident_bytes = 0;
};
using Message =
    std::variant<Started, Importing, Ready, Unsafe, Maker, Waits, WorkerMade, WorkerFailed, Made>;

/// Nothing: not a message. What the text fields hold was made printable.
[[nodiscard]] std::optional<Message> decode(std::string_view packet);

// ---- to the preloader ----

/// @param own_names  variables that each rank or round has with a value of its own
[[nodiscard]] std::string encode_begin(pid_t agent, std::string_view modules,
                                       const std::vector<std::string>& own_names);
/// Of a set of workers. With the socket of their orders, and the read end of the pipe from which
/// the maker reads how many there are to be (WorkerSet).
/// @param example  a worker that was forked from this preloader and runs: those that are forked
///     ahead copy the pages that it has copied; 0: there is none
[[nodiscard]] std::string encode_round(ForkNumber fork, pid_t example);
/// For the set's own socket, where any of its workers takes it. With the gate's read end, the
/// environments (Environments::text), its stdin, stdout, stderr and, if it has one, its connection for PMI.
/// @param environment  offset and length among the environments, bytes
[[nodiscard]] std::string encode_worker(LocalRank local,
                                        std::pair<std::size_t, std::size_t> environment,
                                        const std::vector<std::uint32_t>& cores,
                                        bool takes_terminal);
/// The maker of this set ends: to be reaped.
[[nodiscard]] std::string encode_collect(ForkNumber fork);

/// The environments of a round's workers as one text: "NAME=VALUE" with a zero byte behind each.
class Environments {
 public:
  /// @return offset and length of this one
  std::pair<std::size_t, std::size_t> add(const char* const* envp);
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace acc::agent::preload
