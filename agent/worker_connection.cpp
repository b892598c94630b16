#include "agent/worker_connection.hpp"

#include "common/poll_now.hpp"
#include "common/text.hpp"

#include <boost/asio/post.hpp>

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <optional>
#include <utility>

namespace acc::agent {

using rendezvous::KvReply;
using rendezvous::KvRequest;
using worker_socket::Answer;
using worker_socket::Request;
using worker_socket::Verb;

namespace {

// The switches of this file have no default, so that -Wswitch reports a new value that one of them
// lacks.

/// What a verb means to the store; none: the agent handles it itself.
std::optional<KvRequest::Op> op_of(Verb verb) {
  using Op = KvRequest::Op;
  switch (verb) {
    case Verb::set:
      return Op::set;
    case Verb::get:
      return Op::get;
    case Verb::add:
      return Op::add;
    case Verb::wait:
      return Op::wait;
    case Verb::barrier:
      return Op::barrier;
    case Verb::remove:
      return Op::remove;
    case Verb::compare_set:
      return Op::compare_set;
    case Verb::current:
      return Op::current;
    case Verb::hello:
    case Verb::beat:
    case Verb::checkpoint:
    case Verb::no_restart:
    case Verb::section:
    case Verb::section_end:
    case Verb::table:
    case Verb::lost:
      break;
  }
  return std::nullopt;
}

KvRequest to_kv(KvRequest::Op op, Request&& request) {
  KvRequest kv;
  kv.op = op;
  kv.key = std::move(request.key);
  kv.value = std::move(request.value);
  kv.expected = std::move(request.expected);
  kv.delta = request.delta;
  kv.count = request.count;
  kv.timeout = request.timeout;
  return kv;
}

Answer::Word word_of_success(KvRequest::Op op) {
  using Op = KvRequest::Op;
  using Word = Answer::Word;
  switch (op) {
    case Op::set:
    case Op::wait:
    case Op::remove:
    case Op::compare_set:
      return Word::ok;
    case Op::get:
      return Word::value;
    case Op::add:
    case Op::barrier:
    case Op::current:
      return Word::number;
  }
  return Word::bad_request;  // op_of() makes no such operation
}

/// None: a number that is no status.
std::optional<Answer::Word> word_of(KvRequest::Op op, KvReply::Status status) {
  using Word = Answer::Word;
  switch (status) {
    case KvReply::Status::ok:
      return word_of_success(op);
    case KvReply::Status::missing:
      return Word::missing;
    case KvReply::Status::timed_out:
      return Word::timed_out;
    case KvReply::Status::too_big:
      return Word::too_big;
    case KvReply::Status::full:
      return Word::full;
    case KvReply::Status::wrong_round:
      return Word::wrong_round;
    case KvReply::Status::differs:
      return Word::differs;
    case KvReply::Status::bad_request:
      return Word::bad_request;
  }
  return std::nullopt;
}

std::string table_text(const std::vector<rendezvous::TableRow>& rows) {
  std::vector<worker_socket::TableRow> table;
  table.reserve(rows.size());
  for (const auto& row : rows) table.push_back({row.ranks, row.node, row.host, row.address});
  return worker_socket::to_text(table);
}

}  // namespace

WorkerConnection::WorkerConnection(boost::asio::io_context& io, UniqueFd fd, std::uint64_t number,
                                   const WorkerServerFacts& facts)
    : descriptor_{io, fd.release()}, patience_{io}, number_{number}, facts_{&facts} {}

void WorkerConnection::close() {
  if (facts_ == nullptr) return;
  const auto* facts = std::exchange(facts_, nullptr);
  boost::system::error_code ignored;
  descriptor_.close(ignored);
  patience_.cancel();
  if (facts->calls.on_gone) facts->calls.on_gone(number_);
  facts->forget(number_);  // may end our life, unless the caller holds us
}

// ---- in ----

void WorkerConnection::take_in(std::size_t budget) {
  if (taking_in_ || facts_ == nullptr) return;
  const auto self = shared_from_this();
  taking_in_ = true;
  while (is_idle()) {
    auto request = reader_.next();
    if (!request) {
      fail(request.error().what);
    } else if (*request) {
      carry_out(std::move(**request));
    } else if (ended_) {
      close();
    } else if (budget == 0) {
      break;
    } else {
      const std::size_t taken = read_more();
      if (taken == 0 && !ended_) break;
      budget -= std::min(budget, taken);
    }
  }
  taking_in_ = false;
  wait_for_next();
}

// 0: nothing there, or the end.
std::size_t WorkerConnection::read_more() {
  std::array<char, 16 * 1024> chunk;
  const auto n = ::recv(descriptor_.native_handle(), chunk.data(), chunk.size(), MSG_DONTWAIT);
  if (n > 0) {
    reader_.feed({chunk.data(), static_cast<std::size_t>(n)});
    return static_cast<std::size_t>(n);
  }
  ended_ = n == 0 || (errno != EAGAIN && errno != EINTR);
  return 0;
}

void WorkerConnection::carry_out(Request&& request) {
  const auto& calls = facts_->calls;
  if (request.verb == Verb::hello) return greet(request);
  if (!who_) return fail("say 'hello RANK' first");
  switch (request.verb) {
    case Verb::beat:
      if (calls.on_beat) calls.on_beat(*who_, request.step, std::chrono::steady_clock::now());
      return;
    case Verb::checkpoint:
      if (calls.on_checkpoint) calls.on_checkpoint(*who_, request.step);
      return;
    case Verb::no_restart:
      if (calls.on_no_restart)
        calls.on_no_restart(*who_, printable(request.text, worker_socket::kMaxLine));
      return;
    case Verb::section:
      if (calls.on_section)
        calls.on_section(*who_, request.text.empty() ? "unnamed" : request.text, request.timeout);
      return;
    case Verb::section_end:
      if (calls.on_section) calls.on_section(*who_, {}, Millis{0});
      return;
    case Verb::table:
      return ask_table();
    case Verb::lost:
      return ask_lost(request.timeout);
    case Verb::current:
      return ask_current(std::move(request));
    case Verb::set:
    case Verb::get:
    case Verb::add:
    case Verb::wait:
    case Verb::barrier:
    case Verb::remove:
    case Verb::compare_set:
      return ask_store(std::move(request));
    case Verb::hello:  // handled above
      break;
  }
  refuse(request.verb);
}

void WorkerConnection::greet(const Request& request) {
  const RankRange& ranks = facts_->ranks;
  if (!facts_->round || (request.round && *request.round != *facts_->round))
    return fail("round " + (request.round ? std::to_string(request.round->value()) : "?") +
                " isn't running");
  const auto local = ranks.local(request.rank);
  if (!local)
    return fail("rank " + std::to_string(request.rank.value()) + " isn't on this node, which has " +
                std::to_string(ranks.count) + " from " + std::to_string(ranks.first.value()));
  who_ = *local;
}

void WorkerConnection::ask_store(Request&& request) {
  const auto op = op_of(request.verb);
  if (!op) return refuse(request.verb);
  asked_ = true;
  auto reply = [weak = weak_from_this(), op = *op, question = ++question_](KvReply kv) {
    const auto self = weak.lock();
    if (!self) return;
    if (const auto word = word_of(op, kv.status)) {
      self->answer(question, {*word, kv.number, std::move(kv.value)});
    } else if (self->is_due(question)) {
      const int number = static_cast<int>(kv.status);
      self->fail("the store replied with the unknown status " + std::to_string(number));
    }
  };
  facts_->calls.on_kv(number_, to_kv(*op, std::move(request)), std::move(reply));
}

void WorkerConnection::refuse(Verb verb) {
  fail("unknown request " + std::to_string(static_cast<int>(verb)));
}

void WorkerConnection::ask_table() {
  asked_ = true;
  facts_->calls.on_table([weak = weak_from_this(), question = ++question_](const auto& rows) {
    if (const auto self = weak.lock())
      self->answer(question, {Answer::Word::value, 0, table_text(rows)});
  });
}

void WorkerConnection::ask_lost(Millis timeout) {
  asked_ = true;
  awaits_loss_ = true;
  const auto question = ++question_;
  if (!facts_->lost.empty()) return tell_lost();
  patience_.expires_after(timeout);
  patience_.async_wait([weak = weak_from_this(), question](boost::system::error_code cancelled) {
    const auto self = weak.lock();
    if (cancelled || !self || !self->awaits_loss_ || !self->is_due(question)) return;
    self->awaits_loss_ = false;
    self->answer(question, {Answer::Word::timed_out, 0, {}});
  });
}

// The coordinator answers when it can prove it, or not at all: so the deadline is kept here. That a
// round isn't the one of this node any more is proof enough.
void WorkerConnection::ask_current(Request&& request) {
  if (!facts_->round || request.round != facts_->round)
    return send(worker_socket::to_text({Answer::Word::wrong_round, 0, {}}));
  const Millis limit = request.timeout;
  ask_store(std::move(request));
  const auto question = question_;
  if (!is_due(question)) return;
  patience_.expires_after(limit);
  patience_.async_wait([weak = weak_from_this(), question](boost::system::error_code cancelled) {
    const auto self = weak.lock();
    if (!cancelled && self) self->answer(question, {Answer::Word::timed_out, 0, {}});
  });
}

void WorkerConnection::tell_lost() {
  if (facts_ == nullptr || !std::exchange(awaits_loss_, false)) return;
  patience_.cancel();
  answer(question_, {Answer::Word::value, 0, worker_socket::to_text(facts_->lost)});
}

// ---- out ----

bool WorkerConnection::is_due(std::uint64_t question) const {
  return facts_ != nullptr && asked_ && question == question_;
}

void WorkerConnection::answer(std::uint64_t question, const Answer& answer) {
  if (!is_due(question)) return;  // closed, or told twice
  asked_ = false;
  send(worker_socket::to_text(answer));
  if (taking_in_ || facts_ == nullptr) return;
  // Not here: an answer may come out of another connection's question.
  boost::asio::post(descriptor_.get_executor(), [self = shared_from_this()] { self->take_in(); });
}

void WorkerConnection::fail(const std::string& why) {
  if (facts_ == nullptr) return;
  last_words_ = true;
  send(worker_socket::to_text({Answer::Word::error, 0, why}));
}

void WorkerConnection::send(const std::string& text) {
  output_ += text;
  flush();
}

void WorkerConnection::flush() {
  const auto self = shared_from_this();
  while (!output_.empty()) {
    const auto n = ::send(descriptor_.native_handle(), output_.data(), output_.size(),
                          MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) {
      output_.erase(0, static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      return close();  // it is gone, and what it wanted with it
    }
  }
  if (last_words_ && output_.empty()) return close();
  if (output_.empty() || writing_) return;
  writing_ = true;
  descriptor_.async_wait(Descriptor::wait_write, [self](boost::system::error_code error) {
    self->writing_ = false;
    if (error || self->facts_ == nullptr) return;
    self->flush();
    self->take_in();
  });
}

void WorkerConnection::wait_for_next() {
  if (facts_ == nullptr || !output_.empty()) return;
  if (asked_) return watch_hang_up();
  if (reading_) return;
  reading_ = true;
  descriptor_.async_wait(Descriptor::wait_read,
                         [self = shared_from_this()](boost::system::error_code error) {
                           self->reading_ = false;
                           if (!error) self->take_in();
                         });
}

// While an answer is due nothing is read, so that a worker's death would go unseen. A worker that
// only ended its writing (nc -N) still waits for its answer; the kernel tells the two apart.
void WorkerConnection::watch_hang_up() {
  if (watching_) return;
  watching_ = true;
  descriptor_.async_wait(Descriptor::wait_error,
                         [self = shared_from_this()](boost::system::error_code error) {
                           self->watching_ = false;
                           if (error || !self->asked_) return;
                           if (!is_ready(self->descriptor_.native_handle(), 0))
                             return self->watch_hang_up();
                           self->close();
                         });
}

}  // namespace acc::agent
