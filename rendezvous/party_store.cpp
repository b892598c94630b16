#include "rendezvous/party.hpp"

// The workers' questions, on their way to the coordinator and back. An agent that changes its
// coordinator asks again whatever was not answered.
namespace acc::rendezvous {

void Party::ask(KvRequest request, KvAnswer answer) {
  request.id = ++last_question_;
  if (link_ && member_.is_connected())
    link_->send({{member_.term(), member_.epoch().round}, request});
  const auto id = request.id;
  questions_.emplace(id, Question{std::move(request), std::move(answer)});
}

void Party::answered(const KvReply& reply) {
  const auto found = questions_.find(reply.id);
  if (found == questions_.end()) return;
  const auto question = std::move(found->second);
  questions_.erase(found);
  share_.note(question.request, reply);
  question.answer(reply);
}

// Before the first beat: that one says that nothing of this kind follows.
void Party::tell_share(const Term& term) {
  if (!link_ || term < member_.term() || term == asked_in_) return;
  asked_in_ = term;
  for (auto& told : share_.tell()) link_->send({{term, member_.epoch().round}, std::move(told)});
}

void Party::ask_again() {
  if (!link_) return;
  const Epoch epoch{member_.term(), member_.epoch().round};
  for (const auto& [id, question] : questions_) link_->send({epoch, question.request});
  if (!table_answers_.empty()) link_->send({epoch, TableRequest{}});
}

// A new round: whoever still waits for something of the last one learns so.
void Party::end_questions() {
  share_.forget();
  for (auto& [id, question] : std::exchange(questions_, {})) {
    KvReply reply;
    reply.id = id;
    reply.status = KvReply::Status::wrong_round;
    question.answer(std::move(reply));
  }
}

void Party::table(TableAnswer answer) {
  table_answers_.push_back(std::move(answer));
  if (table_answers_.size() > 1 || !link_ || !member_.is_connected()) return;
  rows_.clear();
  link_->send({{member_.term(), member_.epoch().round}, TableRequest{}});
}

void Party::add_rows(const Table& part) {
  if (part.first == 0) rows_.clear();
  rows_.insert(rows_.end(), part.rows.begin(), part.rows.end());
  if (rows_.size() < part.nodes) return;
  for (const auto& answer : std::exchange(table_answers_, {})) answer(rows_);
}

}  // namespace acc::rendezvous
