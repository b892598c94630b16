#pragma once

#include "agent/daemon/peer_identity.hpp"
#include "common/duration.hpp"

#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace acc::agent::daemon {

/// Who answers at the end of a new connection.
struct Answerer {
  PeerIdentity identity;
  bool is_here = false;  ///< at our own door, directly
};

/// What became of asking a node who it is.
struct Sighting {
  enum class End : std::uint8_t {
    answered,
    silent,  ///< a daemon may be there
    absent,  ///< none of this cluster is
    unknown  ///< the attempt failed here
  };
  End end = End::unknown;
  PeerIdentity identity;
};

/// Judges whether the daemon that answered for a node is that of another one. It asks the nodes of
/// the settings that it may be, as far as SeenNodes suspects them.
class PeerCheck {
 public:
  /// How it asks. Both may outlive a call, and not this object.
  struct Network {
    std::function<boost::asio::awaitable<Sighting>(std::string node, Instant due)> ask;
    /// Whether the node's name leads to our own door, whatever answers there.
    std::function<boost::asio::awaitable<bool>(std::string node, Instant due)> leads_here;
  };
  struct Verdict {
    std::string wrong;  ///< why it isn't that node's; empty: there is no sign of that
    std::string doubt;  ///< which sign can't be followed now: nothing may be changed by it
  };

  PeerCheck(PeerIdentity own, std::uint16_t port, Network network);

  void set_nodes(const std::vector<std::string>& nodes);
  /// What was found out about a node by the way. A reply without an identity says nothing.
  void note(const std::string& node, const Sighting& sighting);
  boost::asio::awaitable<Verdict> judge(std::string node, Answerer from, Millis limit);
  /// As judge(), of the nodes that were all asked since then, without asking more; empty: right.
  [[nodiscard]] std::string complaint_in(const std::vector<std::string>& nodes,
                                         const std::vector<Answerer>& answerers, std::size_t number,
                                         Instant since) const;
  /// A node of such a list without a complaint is known from then on, unless one that it may be
  /// gave no answer.
  void accept_listed(const std::string& node, const Answerer& from);

 private:
  boost::asio::awaitable<Sighting> ask(std::string node, PeerIdentity answered, Instant due);
  boost::asio::awaitable<bool> has_other_own_name(std::string node, Instant due);

  std::uint16_t port_;
  std::vector<std::string> nodes_;
  SeenNodes seen_;
  Network network_;
};

}  // namespace acc::agent::daemon
