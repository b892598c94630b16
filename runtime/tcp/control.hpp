#pragma once

#include "common/unique_fd.hpp"
#include "runtime/tcp/room.hpp"

#include <memory>
#include <vector>

namespace acc::runtime::hosts {

/// What a rank tells the leader of its host, over a socket of the two.
struct Note {
  enum class Kind : std::uint32_t {
    broke = 1,  ///< look at the room
    late,       ///< my time is up: who is late?
  };
  Kind kind = Kind::broke;
  std::uint32_t number = 0;  ///< of the collective; 0: a message
  std::int32_t peer = -1;    ///< of the message
  Operation operation = Operation::none;
  std::int64_t limit_ms = 0;
};

/// A leader's thread, connected to the leaders of all hosts and to the ranks of its own. Why one
/// host broke it tells the others, and when somebody's time is up it asks all hosts who is late, so
/// that every rank throws the same words. It sleeps unless one of these happens.
class Control {
 public:
  /// @param leaders  by host; the own one is empty. @param lines  by index; the own one is empty.
  Control(Room& room, const Placement& placement, std::vector<UniqueFd> leaders,
          std::vector<UniqueFd> lines);
  /// Tells the other hosts that this rank has left, and before it the cause if there is one.
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  /// The leader's own notes; any thread.
  void tell(const Note& note) noexcept;
  /// Returns when the other hosts have the cause of a broken room, at most after a moment: a
  /// process that ends with its error must not end before they have it.
  void await_told() noexcept;
  /// Readable from the moment on at which the room is known to be broken.
  [[nodiscard]] int broken_fd() const noexcept;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace acc::runtime::hosts
