#pragma once

#include "runtime/bootstrap/member.hpp"
#include "runtime/bootstrap/sockets.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace acc::runtime {

/// Error::operation() of a Circle's peer_lost that only tells that a connection ended: another rank
/// may know why.
inline constexpr const char* kNoCause = "connection ended";

/// The ranks of a group that are on one host, each with a unix socket to the first of them, the
/// leader: over it they hand each other memory, and agree whether all of them are well.
///
///   leader                              each other rank
///   listens (before its name is told)
///                                       connects, says group and rank
///   share(): memory's descriptor   ──▶
///                                  ◀──  agree(): well, or an error
///   agree(): all well, or the error ──▶
class Circle {
 public:
  /// A listening socket with a name that the kernel chose. Every rank has one before it is known
  /// who leads.
  [[nodiscard]] static UniqueFd open_door();
  [[nodiscard]] static std::string name_of_door(const UniqueFd& door);

  /// @param ranks  of this host, in the order of the group; the first leads.
  /// @param mine  index into `ranks`.
  /// @param group  its key: a process can be in many.
  /// @param door  stays open: those that come late wait at it until its owner has said why.
  /// @throws Error peer_lost: a process ended meanwhile; timed_out; system
  static Circle meet(const UniqueFd& door, std::vector<Member> ranks, std::size_t mine,
                     const std::string& group, Deadline deadline);

  /// Collective: zeroed memory of `bytes`, the same on all.
  /// @throws Error  the same code on every rank
  [[nodiscard]] UniqueFd share(std::size_t bytes, Deadline deadline);

  /// Collective: a socket between the leader and each other rank, for them to keep.
  /// @return leader: by index, its own empty; else: the one to the leader, alone.
  [[nodiscard]] std::vector<UniqueFd> open_lines(Deadline deadline);

  /// Collective. The leader asks `beyond` (other hosts, say) when all here are well, or tells it
  /// what is wrong here.
  /// @throws Error the first failure of any rank, on all of them.
  using Beyond = std::function<void(const std::optional<Error>& ours)>;
  void agree(const std::optional<Error>& failure, Deadline deadline, const Beyond& beyond = {});

  [[nodiscard]] bool leads() const noexcept { return mine_ == 0; }

 private:
  Circle(std::vector<Member> ranks, std::size_t mine) : ranks_{std::move(ranks)}, mine_{mine} {}
  void connect_to_leader(const std::string& group, Deadline deadline);
  void gather(const UniqueFd& door, const std::string& group, Deadline deadline);
  void take_in(const UniqueFd& door, const std::string& group, Deadline deadline);
  [[nodiscard]] std::string read_note(std::size_t from, UniqueFd* descriptor, Deadline deadline);
  [[nodiscard]] std::optional<Error> last_word_of(std::size_t whom) noexcept;
  void write_note(std::size_t to, std::string_view note, int descriptor, Deadline deadline);
  void pass_on(const std::string& note) noexcept;
  [[noreturn]] void lost(std::size_t whom, const acc::Error& how) const;
  [[noreturn]] void ended(std::size_t whom) const;

  std::vector<Member> ranks_;
  std::size_t mine_;
  std::vector<UniqueFd> lines_;  ///< leader: by index, its own empty; else: the one to the leader
};

/// Anonymous memory of `bytes` that can't shrink under its readers.
[[nodiscard]] UniqueFd make_memory(std::size_t bytes);

}  // namespace acc::runtime
