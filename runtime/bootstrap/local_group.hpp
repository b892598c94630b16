#pragma once

#include "common/kept_fd.hpp"
#include "runtime/bootstrap/member.hpp"
#include "runtime/net/sockets.hpp"

#include <acc/error.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace acc::runtime {

/// Error::operation() of a peer_lost that says only that a connection ended: another rank may know
/// the cause.
inline constexpr const char* kNoCause = "connection ended";

/// The ranks of a group on one host while it is formed. Each has a unix socket to the first of
/// them, the leader; over it they share memory and agree whether all have succeeded.
///
///   leader                              each other rank
///   listens (before its name is published)
///                                       connects, says group and rank
///   share(): memory's descriptor   ──▶
///                                  ◀──  agree(): ok, or an error
///   agree(): all ok, or the error ──▶
class LocalGroup {
 public:
  /// A listening socket with a name chosen by the kernel. Every rank opens one before the leader is
  /// known.
  [[nodiscard]] static UniqueFd open_listener();
  [[nodiscard]] static std::string name_of_listener(const UniqueFd& listener);

  /// @param ranks  of this host, in the order of the group; the first is the leader.
  /// @param own  index into `ranks`.
  /// @param group  the group's key: a process can be in several.
  /// @param listener  stays open: a late rank waits there until its owner has reported why it
  ///   failed.
  /// @throws Error peer_lost: a process has ended; timed_out; system
  static LocalGroup connect(const UniqueFd& listener, std::vector<Member> ranks, std::size_t own,
                            const std::string& group, Deadline deadline);

  /// Collective: zeroed memory of `bytes`, the same on all.
  /// @throws Error  with the same code on every rank
  [[nodiscard]] UniqueFd share(std::size_t bytes, Deadline deadline);

  /// Collective: a further socket between the leader and each other rank, owned by the caller.
  /// @return leader: by index, its own empty; others: the one to the leader.
  [[nodiscard]] std::vector<UniqueFd> open_connections(Deadline deadline);

  /// Collective: do all ranks agree that they have succeeded? The leader calls `other_hosts` with
  /// the first failure of this host, or none, before it answers.
  /// @throws Error the first failure of any rank, the same on all.
  using OtherHosts = std::function<void(const std::optional<Error>& ours)>;
  void agree(const std::optional<Error>& failure, Deadline deadline,
             const OtherHosts& other_hosts = {});

  /// @throws Error peer_lost, of this rank: its program has closed a connection. To be called
  /// before
  ///   the ranks meet for share(): the others would only see that a connection ended.
  void require_open() const;

  [[nodiscard]] bool is_leader() const noexcept { return own_ == 0; }

 private:
  LocalGroup(std::vector<Member> ranks, std::size_t own) : ranks_{std::move(ranks)}, own_{own} {}
  void connect_to_leader(const std::string& group, Deadline deadline);
  void accept_all(const UniqueFd& listener, const std::string& group, Deadline deadline);
  void accept_peers(const UniqueFd& listener, const std::string& group, Deadline deadline);
  [[nodiscard]] std::string read_message(std::size_t from, UniqueFd* descriptor, Deadline deadline);
  [[nodiscard]] std::optional<Error> last_message_of(std::size_t index) noexcept;
  void write_message(std::size_t to, std::string_view message, int descriptor, Deadline deadline);
  void send_to_all(const std::string& message) noexcept;
  [[nodiscard]] int open_connection(std::size_t index) const;
  [[noreturn]] void throw_lost(std::size_t index, const acc::Error& how) const;
  [[noreturn]] void throw_ended(std::size_t index) const;

  std::vector<Member> ranks_;
  std::size_t own_;
  std::vector<KeptFd>
      connections_;  ///< leader: by index, its own empty; else: the one to the leader
};

/// Anonymous memory of `bytes`, sealed so that it can't shrink under its readers.
[[nodiscard]] UniqueFd make_memory(std::size_t bytes);

}  // namespace acc::runtime
