#pragma once

#include "agent/worker_calls.hpp"
#include "rendezvous/kv_store.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <unordered_map>

namespace acc::agent {

/// The key-value store of a job on one node: the agent answers its workers by itself.
/// Lives at least as long as its loop runs.
class LocalStore {
 public:
  LocalStore(boost::asio::io_context& io, std::size_t workers);
  LocalStore(const LocalStore&) = delete;
  LocalStore& operator=(const LocalStore&) = delete;

  void ask(std::uint64_t connection, rendezvous::KvRequest request, WorkerCalls::KvAnswer answer);
  void gone(std::uint64_t connection);
  /// Empties the store; requests that still wait are answered with wrong_round.
  void begin_round(Round round);

 private:
  struct Question {
    std::uint64_t connection = 0;
    WorkerCalls::KvAnswer answer;
  };

  void tell(rendezvous::KvStore::Answers answers);
  void arm();

  rendezvous::KvStore store_;
  boost::asio::steady_timer timer_;
  std::uint64_t next_id_ = 0;
  std::unordered_map<std::uint64_t, Question> questions_;  ///< waiting, by request id
};

}  // namespace acc::agent
