#include "rendezvous/store_questions.hpp"

#include <chrono>
#include <utility>

namespace acc::rendezvous {

void StoreQuestions::ask(KvRequest request, Answer answer, Instant now) {
  forget_expired(now);
  put(std::move(request), std::move(answer), now);
}

void StoreQuestions::put(KvRequest request, Answer answer, Instant now) {
  const auto id = request.id = ++last_id_;
  const auto added =
      questions_.emplace(id, Question{std::move(request), std::move(answer), now}).first;
  send_(added->second.request);
}

void StoreQuestions::answered(KvReply reply, Instant now) {
  const auto found = questions_.find(reply.id);
  if (found == questions_.end()) return;
  const bool is_granted =
      found->second.request.op == KvRequest::Op::current && reply.status == KvReply::Status::ok;
  if (is_granted) {
    // It counts from the request. An answer that lay in our socket while this process slept is
    // useless.
    reply.number -= std::chrono::ceil<Millis>(now - found->second.asked).count();
    if (reply.number <= 0) return ask_current_anew(now);
  }
  const auto question = std::move(found->second);
  questions_.erase(found);
  replay_.note(question.request, reply);
  question.answer(std::move(reply));
}

void StoreQuestions::ask_current_anew(Instant now) {
  std::vector<Question> anew;
  for (auto& [id, question] : questions_) {
    if (question.request.op == KvRequest::Op::current) anew.push_back(std::move(question));
  }
  std::erase_if(questions_,
                [](const auto& one) { return one.second.request.op == KvRequest::Op::current; });
  for (auto& question : anew) put(std::move(question.request), std::move(question.answer), now);
}

// Their workers were answered by the timeout of the worker socket.
void StoreQuestions::forget_expired(Instant now) {
  std::erase_if(questions_, [&](const auto& one) {
    const auto& [request, answer, asked] = one.second;
    return request.op == KvRequest::Op::current && now - asked > request.timeout;
  });
}

std::optional<std::vector<KvRestore>> StoreQuestions::take_replay(const Term& term) {
  telling_ = term;
  if (term == told_in_) return std::nullopt;
  return replay_.tell();
}

void StoreQuestions::ask_again() {
  for (const auto& [id, question] : questions_) send_(question.request);
  if (!table_answers_.empty()) send_(TableRequest{});
}

void StoreQuestions::end_round() {
  replay_.forget();
  for (auto& [id, question] : std::exchange(questions_, {})) {
    KvReply reply;
    reply.id = id;
    reply.status = KvReply::Status::wrong_round;
    question.answer(std::move(reply));
  }
}

void StoreQuestions::ask_for_table(TableAnswer answer) {
  table_answers_.push_back(std::move(answer));
  if (table_answers_.size() > 1) return;
  rows_.clear();
  send_(TableRequest{});
}

void StoreQuestions::received(const Table& part) {
  if (part.first == 0) rows_.clear();
  rows_.insert(rows_.end(), part.rows.begin(), part.rows.end());
  if (rows_.size() < part.nodes) return;
  for (const auto& answer : std::exchange(table_answers_, {})) answer(rows_);
}

}  // namespace acc::rendezvous
