#pragma once

#include "runtime/tcp/courier.hpp"
#include "runtime/tcp/room.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace acc::runtime::hosts {

/// The steps in which a collective over several hosts goes. In each round the ranks of a host lay
/// bytes on their board, the carriers send them to the boards of the hosts that want them, and who
/// wants them takes them. The first round begins with what every rank calls, so that all have come
/// and the calls are compared before anybody takes anything.
class Rounds {
 public:
  /// @param courier  nullptr: this rank is no carrier.
  Rounds(Room& room, const Placement& placement, Courier* courier, std::string group, bool check)
      : room_{room},
        placement_{placement},
        courier_{courier},
        group_{std::move(group)},
        check_{check} {}

  /// A collective begins; all its rounds come between `begin` and `end`.
  void begin(Turn& turn);
  void end(const Turn& turn) noexcept { room_.complete(turn); }

  /// `stage` writes to the board, `carry` moves between the hosts (carriers alone), `take` reads.
  /// Any of them may be empty.
  struct Step {
    std::function<void(std::byte* board)> stage;
    std::function<void(Courier& courier, std::byte* board)> carry;
    std::function<void(const std::byte* board)> take;
  };
  void run(Turn& turn, const Step& step);

  /// Pieces of memory, each of one rank and for all ranks or one, that go over the boards.
  struct Piece {
    int owner = 0;
    std::size_t bytes = 0;
    int reader = -1;  ///< -1: all
  };
  /// @param from  where the bytes of a piece of this rank are
  /// @param to  where the bytes of a piece belong; called on its readers, the owner among them
  using From = std::function<const std::byte*(std::size_t piece)>;
  using To = std::function<std::byte*(std::size_t piece)>;
  void spread(Turn& turn, const std::vector<Piece>& pieces, const From& from, const To& to);
  /// All pieces are for all ranks. @param reduce  once a round, with all pieces' bytes of it
  using Reduce = std::function<void(std::size_t offset, std::size_t bytes, const void* const* at)>;
  void gather(Turn& turn, const std::vector<Piece>& pieces, const From& from, const Reduce& reduce);

 private:
  [[nodiscard]] bool calls_agree_here(Turn& turn);
  void exchange_calls(Turn& turn);
  void compare(Turn& turn);
  void spread_directly(Turn& turn, const std::vector<Piece>& pieces, const From& from,
                       const To& to);
  void stage_pieces(const std::vector<Piece>& pieces, std::size_t slot, std::size_t offset,
                    const From& from, std::byte* board) const;
  void carry_pieces(const std::vector<Piece>& pieces, std::size_t slot, std::size_t offset,
                    Courier& courier, std::byte* board) const;

  Room& room_;
  const Placement& placement_;
  Courier* courier_;
  std::string group_;
  bool check_;
  std::uint32_t number_ = 0;  ///< of collectives
  std::uint32_t round_ = 0;
  bool is_first_ = true;                        ///< round of this collective
  std::vector<std::vector<Descriptor>> calls_;  ///< by host, of its ranks
};

}  // namespace acc::runtime::hosts
