#pragma once

#include "rendezvous/messages.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace acc::rendezvous {

/// The last replies of a round's store to each agent (pure). An agent whose link breaks repeats all
/// requests without an answer on the next one. What was carried out already, and only the reply was
/// lost, gets that reply again: an add would count twice, a barrier that ended would begin anew.
///
/// Only replies without a value: a request that is answered with one has changed nothing. The ids
/// of an agent's requests only grow.
class AnsweredRequests {
 public:
  /// `workers`: of that agent's node, each with a few requests at the same time.
  void note(const NodeId& agent, std::size_t workers, const KvReply& reply);
  /// The reply to a request that is repeated; nothing: carry it out.
  [[nodiscard]] std::optional<KvReply> find(const NodeId& agent, std::uint64_t id) const;
  /// A new round.
  void forget() { replies_.clear(); }

 private:
  struct Reply {
    std::uint64_t id = 0;
    std::int64_t number = 0;
    KvReply::Status status = KvReply::Status::ok;
  };
  struct Replies {
    std::uint64_t incarnation = 0;
    std::uint64_t newest = 0;  ///< id
    std::size_t oldest = 0;    ///< of `last`, once that is full: replaced next
    std::vector<Reply> last;
  };

  std::map<std::string, Replies, std::less<>> replies_;  ///< by name of the node
};

}  // namespace acc::rendezvous
