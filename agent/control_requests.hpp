#pragma once

#include "agent/control_protocol.hpp"
#include "agent/control_server.hpp"
#include "agent/watch/stack_collection.hpp"
#include "rendezvous/rendezvous_client.hpp"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace acc::agent {

class UserMessages;

/// What the control socket asks of this agent: requests become events, the state becomes a reply.
///
/// Used on the loop's thread only. The io_context, the state and the messages outlive it.
class ControlRequests {
 public:
  using Reply = ControlServer::Reply;
  struct Hooks {
    std::function<void(const Event&)> on_event;  ///< for the supervisor
    std::function<control::JobView(const control::Status&)> view;
    /// Of several nodes: those of the round. The coordinator may give no answer.
    std::function<void(std::function<void(std::vector<control::NodeView>)>)> table;
    std::function<control::OutputView(const control::Output&)> output;
    std::function<void(const evidence::Question&, StackCollection::Collected)> collect_stacks;
    /// Before the supervisor restarts the workers of this node alone.
    std::function<void(const std::string&)> set_restart_reason;
    /// As if it had arrived: SIGQUIT writes stacks first.
    std::function<void(int signo)> on_signal;
  };
  ControlRequests(boost::asio::io_context& io, const GroupState& group,
                  const UserMessages& messages, Hooks hooks);

  /// In place of an earlier one.
  /// @param on_lost  nobody finds the socket any more
  /// @return why there is no socket
  Result<void> listen(ControlPlace place, std::function<void()> on_lost);
  /// The job is over.
  void close();

  void take(const control::Request& request, uid_t uid, Reply reply);
  /// For AskRestart, which follows from a request for a restart: where the coordinator's answer
  /// goes. Empty: the reply was given.
  [[nodiscard]] rendezvous::RendezvousClient::RestartAnswer take_restart_answer();

 private:
  void reply_status(control::Status wanted, Reply reply);
  void collect_stacks(const Reply& reply);
  void signal(int signo, uid_t uid, const Reply& reply);
  void restart(uid_t uid, Reply reply);
  void ask_all_for_restart(Reply reply);
  void note(const std::string& what, uid_t uid) const;

  boost::asio::io_context& io_;
  const GroupState& group_;
  const UserMessages& messages_;
  Hooks hooks_;
  bool is_closed_ = false;
  rendezvous::RendezvousClient::RestartAnswer restart_answer_;
  std::unique_ptr<ControlServer> server_;  ///< none: no folder for it, or it can't be made
};

}  // namespace acc::agent
