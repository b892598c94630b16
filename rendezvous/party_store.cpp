#include "rendezvous/party.hpp"

// The workers' questions, on their way to the coordinator and back. An agent that changes its
// coordinator asks again whatever was not answered.
namespace acc::rendezvous {

void Party::ask(KvRequest request, KvAnswer answer) {
  forget_expired();
  request.id = ++last_question_;
  const auto id = request.id;
  questions_.emplace(id, Question{std::move(request), std::move(answer), boot_now()});
  send_question(id);
}

void Party::send_question(std::uint64_t id) {
  if (link_ && member_.is_connected())
    link_->send({{member_.term(), member_.epoch().round}, questions_.at(id).request});
}

void Party::answered(KvReply reply) {
  const Instant now = time_of_event();  // a doubt makes the answer one to an older question
  const auto found = questions_.find(reply.id);
  if (found == questions_.end()) return;
  const bool is_granted = found->second.request.op == KvRequest::Op::current &&
                          reply.status == KvReply::Status::ok;
  if (is_granted) {
    // It counts from the asking. One that lay in our socket while we slept is of no use.
    reply.number -= std::chrono::ceil<Millis>(now - found->second.asked).count();
    if (reply.number <= 0) return ask_current_anew();
  }
  const auto question = std::move(found->second);
  questions_.erase(found);
  share_.note(question.request, reply);
  question.answer(std::move(reply));
}

// Under new numbers, so that no answer to the old ones counts.
void Party::ask_current_anew() {
  std::vector<Question> anew;
  for (auto& [id, question] : questions_) {
    if (question.request.op == KvRequest::Op::current) anew.push_back(std::move(question));
  }
  std::erase_if(questions_, [](const auto& one) {
    return one.second.request.op == KvRequest::Op::current;
  });
  for (auto& question : anew) {
    question.request.id = ++last_question_;
    question.asked = boot_now();
    const auto id = question.request.id;
    questions_.emplace(id, std::move(question));
    send_question(id);
  }
}

// Their askers have been told by the clock of the workers' socket.
void Party::forget_expired() {
  const Instant now = boot_now();
  std::erase_if(questions_, [&](const auto& one) {
    const auto& [request, answer, asked] = one.second;
    return request.op == KvRequest::Op::current && now - asked > request.timeout;
  });
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
