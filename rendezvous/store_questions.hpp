#pragma once

#include "rendezvous/kv_replay.hpp"
#include "rendezvous/messages.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

namespace acc::rendezvous {

/// Pending requests of this node's workers to the coordinator: to the store of the round, and for
/// the table of nodes. They are repeated to a new coordinator, which also receives the replay of
/// these workers' writes. Passive: the owner reports changes of the coordinator and its answers;
/// times are by boot_now().
class StoreQuestions {
 public:
  using Send = std::function<void(Message)>;
  using Answer = std::function<void(KvReply)>;
  using TableAnswer = std::function<void(const std::vector<TableRow>&)>;

  /// `send`: to the coordinator; drops messages while there is none.
  explicit StoreQuestions(Send send) : send_{std::move(send)} {}

  /// `answer` is called at most once, also when the round ends; never for an Op::current that has
  /// timed out, which the worker socket answers itself.
  void ask(KvRequest request, Answer answer, Instant now);
  void ask_for_table(TableAnswer answer);

  void answered(KvReply reply, Instant now);
  void received(const Table& part);
  /// A new coordinator: all pending requests are sent again.
  void ask_again();
  /// The clock may have stopped: pending questions whether the round may write get new numbers, so
  /// that no answer to the old ones counts.
  void ask_current_anew(Instant now);
  /// A new round: pending requests are answered with `wrong_round`.
  void end_round();

  /// The replay for a coordinator of this term, to be sent over a new link before its first
  /// heartbeat; nothing if that coordinator has it already.
  [[nodiscard]] std::optional<std::vector<KvRestore>> take_replay(const Term& term);
  /// The coordinator answered a heartbeat of this link, so it has read the replay in front of it.
  void replay_arrived() { told_in_ = telling_; }
  /// False: the workers have written more to the store than take_replay() remembers.
  [[nodiscard]] bool remembers_all() const { return replay_.is_complete(); }

 private:
  struct Question {
    KvRequest request;
    Answer answer;
    Instant asked;
  };
  void put(KvRequest request, Answer answer, Instant now);
  void forget_expired(Instant now);

  Send send_;
  KvReplay replay_;
  Term telling_;  ///< of the coordinator that the last replay was for
  Term told_in_;  ///< the newest term whose coordinator has received the replay
  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, Question> questions_;
  std::vector<TableAnswer> table_answers_;
  std::vector<TableRow> rows_;
};

}  // namespace acc::rendezvous
