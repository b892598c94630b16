#include "agent/node_stacks.hpp"

#include "agent/evidence/culprits.hpp"

#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace acc::agent {

using rendezvous::KvReply;
using rendezvous::KvRequest;
using Op = KvRequest::Op;

namespace {

// 10 s in all: for each node's collection, the way there and back, and the text of all.
constexpr Millis kNodeTime{7'000};
constexpr Millis kAnswerPatience{8'000};
constexpr Millis kKept{15'000};  // an answer, in the store
constexpr Millis kUntilAsked = std::chrono::hours{24};
// Another node finds its silent ranks within a second, and collects for ten …
constexpr Millis kComparePatience{12'000};
// … or there is no coordinator to answer.
constexpr Millis kNoCoordinator{1'000};
constexpr std::size_t kLeastBytes = std::size_t{4} * 1024;
constexpr std::size_t kMostBytes = std::size_t{192} * 1024;
constexpr std::size_t kBytesOfAll = std::size_t{16} * 1024 * 1024;

constexpr const char* kRequests = "acc/stacks/ask/";
constexpr const char* kHangs = "acc/hang/";
constexpr const char* kSilent = "acc/silent";

std::string answers_of(std::uint64_t number) { return "acc/stacks/" + std::to_string(number); }

// "b (ranks 4-7)"
std::string name_of(std::uint32_t node, const std::vector<rendezvous::TableRow>& rows) {
  if (node >= rows.size()) return std::to_string(node);
  const auto& row = rows[node];
  return row.node + " (" + describe(row.ranks) + ")";
}

}  // namespace

/// What arrives from the nodes; ends once, when all have answered or the time is over.
struct NodeStacks::Gathering {
  explicit Gathering(boost::asio::io_context& io, std::uint32_t nodes)
      : timer{io}, has_answered(nodes, false), missing{nodes} {}

  void add(std::uint32_t node, evidence::NodeEvidence found) {
    evidence.push_back(std::move(found));
    note(node);
  }
  void note(std::uint32_t node) {
    if (node >= has_answered.size() || has_answered[node]) return;
    has_answered[node] = true;
    if (--missing == 0) finish();
  }
  void finish() {
    timer.cancel();
    if (auto tell = std::exchange(done, nullptr)) tell(*this);
  }

  boost::asio::steady_timer timer;
  StackCollection::Evidence evidence;
  std::vector<bool> has_answered;  ///< by node rank
  std::uint32_t missing;
  std::vector<rendezvous::TableRow> rows;
  Result<evidence::Answer> own = Error{Errc::timed_out, "the stacks of this node took too long"};
  std::function<void(Gathering&)> done;
};

NodeStacks::~NodeStacks() { alive_.end(); }

void NodeStacks::round_started(NodeRank own, std::uint32_t nodes) {
  own_ = own;
  nodes_ = nodes;
  is_running_ = true;
  ++rounds_;
  completed_.reset();
  own_requests_.clear();
  next_hang_ = 1;
  if (nodes_ < 2) return;
  wait_for(kRequests, 1, [this](std::uint64_t number, const std::string& value) {
    if (std::ranges::find(own_requests_, number) == own_requests_.end())
      answer(number, evidence::decode_question(value));
  });
  if (!parts_.on_hang) return;
  wait_for(kHangs, 1, [this](std::uint64_t number, const std::string&) {
    next_hang_ = number + 1;
    if (completed_) return tell_completed(key_of_silent());
    parts_.on_hang();
  });
}

void NodeStacks::round_ended() {
  is_running_ = false;
  for (const auto& one : std::exchange(open_, {}))
    if (const auto gathering = one.lock()) gathering->finish();
}

void NodeStacks::round_completed(evidence::NodeEvidence mine) {
  round_ended();
  completed_ = {std::move(mine), clock_now()};
}

// ---- the store ----

void NodeStacks::store(Op op, const std::string& key, std::string value) {
  KvRequest request;
  request.op = op;
  request.key = key;
  request.value = std::move(value);
  parts_.ask(std::move(request), [](const KvReply&) {});
}

void NodeStacks::remove_later(const std::string& key) {
  const auto timer = std::make_shared<boost::asio::steady_timer>(parts_.io, kKept);
  timer->async_wait(alive_.bind([this, timer, key, round = rounds_](boost::system::error_code) {
    if (answers() && round == rounds_) store(Op::remove, key);
  }));
}

// All values of the nodes are in the store at the same time.
std::size_t NodeStacks::most_bytes() const {
  return std::clamp(kBytesOfAll / nodes_, kLeastBytes, kMostBytes);
}

// ---- requests of other nodes ----

void NodeStacks::wait_for(const std::string& prefix, std::uint64_t number,
                          std::function<void(std::uint64_t, const std::string&)> act) {
  KvRequest next;
  next.op = Op::get;
  next.key = prefix + std::to_string(number);
  next.timeout = kUntilAsked;
  parts_.ask(std::move(next), alive_.bind([this, prefix, number, act](const KvReply& reply) {
    if (!answers()) return;
    if (reply.status == KvReply::Status::timed_out) return wait_for(prefix, number, act);
    if (reply.status != KvReply::Status::ok) return;  // another round
    act(number, reply.value);
    wait_for(prefix, number + 1, act);
  }));
}

void NodeStacks::answer(std::uint64_t number, const evidence::Question& question) {
  const auto key = answers_of(number) + "/" + std::to_string(own_.value());
  if (completed_) return tell_completed(key);
  const StackCollection::Request for_other{.question = question, .limit = kNodeTime, .is_kept = false};
  parts_.stacks.collect(for_other, alive_.bind([this, key](auto found) {
    if (!found || !is_running_) return;
    evidence::fit(found->evidence, most_bytes());
    store(Op::set, key, evidence::encode(found->evidence));
    remove_later(key);
  }));
}

void NodeStacks::tell_completed(const std::string& key) {
  auto mine = completed_->mine;
  const auto since = std::chrono::duration_cast<Millis>(clock_now() - completed_->at);
  for (auto& one : mine.finished) one.before += since;
  store(Op::set, key, evidence::encode(mine));
  remove_later(key);
}

// ---- gathering ----

NodeStacks::GatheringPtr NodeStacks::begin(Millis patience, std::function<void(Gathering&)> done) {
  auto gathering = std::make_shared<Gathering>(parts_.io, nodes_);
  gathering->done = std::move(done);
  gathering->timer.expires_after(patience);
  gathering->timer.async_wait([gathering](boost::system::error_code cancelled) {
    if (!cancelled) gathering->finish();
  });
  std::erase_if(open_, [](const auto& one) { return one.expired(); });
  open_.push_back(gathering);
  return gathering;
}

void NodeStacks::ask_others(const GatheringPtr& gathering, const std::string& prefix,
                            Millis patience) {
  for (std::uint32_t node = 0; node < nodes_; ++node) {
    if (node == own_.value()) continue;
    KvRequest other;
    other.op = Op::get;
    other.key = prefix + "/" + std::to_string(node);
    other.timeout = patience;
    parts_.ask(std::move(other), [gathering, node](const KvReply& reply) {
      if (reply.status != KvReply::Status::ok) return;
      if (auto found = evidence::decode_node(reply.value)) gathering->add(node, std::move(*found));
    });
  }
}

void NodeStacks::collect(const evidence::Question& question, StackCollection::Collected done) {
  if (!is_running_) return done(Error{Errc::unavailable, "no worker runs now"});
  const auto gathering = begin(kAnswerPatience, alive_.bind([this, question, done](Gathering& found) {
    write(found, question, done);
  }));
  const StackCollection::Request wanted{.question = question, .limit = kNodeTime};
  parts_.stacks.collect(wanted, [gathering, own = own_.value()](auto found) {
    gathering->own = found;
    if (found)
      gathering->add(own, std::move(found->evidence));
    else
      gathering->note(own);
  });
  parts_.table([gathering](const auto& rows) { gathering->rows = rows; });
  request(gathering, question);
}

void NodeStacks::request(const GatheringPtr& gathering, const evidence::Question& question) {
  KvRequest count;
  count.op = Op::add;
  count.key = "acc/stacks/asked";
  count.delta = 1;
  parts_.ask(std::move(count), alive_.bind([this, gathering, question](const KvReply& reply) {
    if (!is_running_ || reply.status != KvReply::Status::ok || reply.number <= 0) return;
    const auto number = static_cast<std::uint64_t>(reply.number);
    own_requests_.push_back(number);
    store(Op::set, kRequests + std::to_string(number), evidence::encode(question));
    ask_others(gathering, answers_of(number), kAnswerPatience);
  }));
}

void NodeStacks::write(Gathering& gathering, const evidence::Question& question,
                       const StackCollection::Collected& done) {
  if (gathering.evidence.empty()) {
    return done(!is_running_      ? Error{Errc::unavailable, "the workers are ending"}
                : gathering.own   ? Error{Errc::timed_out, "no node answered"}
                                  : gathering.own.error());
  }
  std::vector<std::string> missing;
  for (std::uint32_t node = 0; node < gathering.has_answered.size(); ++node)
    if (!gathering.has_answered[node]) missing.push_back(name_of(node, gathering.rows));
  if (!gathering.own && gathering.has_answered[own_.value()])
    missing.push_back(name_of(own_.value(), gathering.rows) + ": " + gathering.own.error().what);
  const auto file = gathering.own ? gathering.own->file : std::string{};
  parts_.stacks.write_together(question, std::move(gathering.evidence), std::move(missing), file, done);
}

// ---- hangs ----

// All nodes whose ranks fall silent together set the same key.
void NodeStacks::announce_hang() {
  if (nodes_ > 1 && is_running_) store(Op::set, kHangs + std::to_string(next_hang_), std::to_string(own_.value()));
}

std::string NodeStacks::key_of_silent() const {
  return kSilent + ("/" + std::to_string(own_.value()));
}

// All of them judge the same facts, and the node of the rank that is behind reports it.
void NodeStacks::compare(const evidence::NodeEvidence& mine,
                         std::function<void(StackCollection::Evidence)> done) {
  const auto key = key_of_silent();
  if (nodes_ < 2) return done ? done({mine}) : void();
  if (!done) return store(Op::remove, key);  // they go on
  const auto gathering =
      begin(kComparePatience + kNoCoordinator, [done = std::move(done)](Gathering& found) {
        done(std::move(found.evidence));
      });
  auto told = mine;
  evidence::fit(told, most_bytes());
  store(Op::set, key, evidence::encode(told));
  gathering->add(own_.value(), mine);
  ask_others(gathering, kSilent, kComparePatience);
}

}  // namespace acc::agent
