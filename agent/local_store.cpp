#include "agent/local_store.hpp"

#include <utility>

namespace acc::agent {

using rendezvous::KvStore;
using Clock = std::chrono::steady_clock;

namespace {
constexpr auto kAlways = std::chrono::hours{24};
}  // namespace

LocalStore::LocalStore(boost::asio::io_context& io, std::size_t workers)
    : store_{rendezvous::kv_limits_for(workers)}, timer_{io} {}

void LocalStore::ask(std::uint64_t connection, rendezvous::KvRequest request,
                     WorkerCalls::KvAnswer answer) {
  if (request.op == rendezvous::KvRequest::Op::current) {
    // Rounds are started by this agent alone, and only when the last one's processes are gone.
    rendezvous::KvReply reply;
    reply.number = Millis{kAlways}.count();
    return answer(std::move(reply));
  }
  request.id = next_id_++;
  questions_.emplace(request.id, Question{connection, std::move(answer)});
  tell(store_.request(connection, std::move(request), Clock::now()));
}

// A connection has one question at a time; the rest of ours is looked through.
void LocalStore::gone(std::uint64_t connection) {
  store_.peer_gone(connection);
  std::erase_if(questions_, [&](const auto& one) { return one.second.connection == connection; });
}

void LocalStore::begin_round(Round round) { tell(store_.reset({{}, round})); }

void LocalStore::tell(KvStore::Answers answers) {
  arm();
  for (auto& [connection, reply] : answers) {
    auto question = questions_.extract(reply.id);
    if (!question.empty()) question.mapped().answer(std::move(reply));
  }
}

void LocalStore::arm() {
  const auto deadline = store_.next_deadline();
  if (!deadline) {
    timer_.cancel();
    return;
  }
  timer_.expires_at(*deadline);
  timer_.async_wait([this](boost::system::error_code error) {
    if (!error) tell(store_.tick(Clock::now()));
  });
}

}  // namespace acc::agent
