#pragma once

#include "agent/daemon/api_call.hpp"
#include "agent/daemon/cluster_secret.hpp"
#include "agent/daemon/request_shares.hpp"
#include "common/error.hpp"

#include <boost/asio/awaitable.hpp>

#include <string>

namespace acc::agent::daemon {

/// The user whom another node names. not_found: this node has no such user.
boost::asio::awaitable<Result<Principal>> find_user(std::string name);
/// For other nodes. not_found: the user has no name here.
boost::asio::awaitable<Result<std::string>> name_of_user(Principal who);

/// What requests of other daemons are answered with.
struct PeerApi {
  ApiContext& api;
  ClusterSecret& secret;
  ShareLimits limits{};
  RequestShares shares{};
};

/// A request of another daemon: in the name of the user that it vouches for. Each reply says which
/// daemon this is, a refusal, too.
/// @param door  from the connection: its source's number as uid, and key_id of the proof, which the
/// secret has still (a connection outlives a request)
boost::asio::awaitable<HttpReply> answer_peer(PeerApi& peers, Principal door, HttpRequest request);

}  // namespace acc::agent::daemon
