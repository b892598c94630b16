#include "rendezvous/codec.hpp"
#include "tests/simulation/process.hpp"
#include "tests/simulation/world.hpp"

// Rank 0 writes checkpoints, and asks before it makes one valid: the parts of the worker, the agent
// and the coordinator (acc::agent::is_current, RendezvousClient, Coordinator).
namespace acc::simulation {

using namespace rendezvous;

void Process::plan_write() {
  writer_ = {};
  if (place_.first_rank != Rank{0} || world_.is_quiet()) return;
  writer_.generation = generation_;
  const Time pause = between(world_.random(), Time{spec_.membership.timings.heartbeat_timeout} / 20,
                             Time{spec_.membership.timings.heartbeat_timeout});
  world_.queue().after(pause, [this, generation = generation_] {
    if (ended_ || generation != generation_ || workers_.empty() || !workers_[0].lives) return;
    // A sleeping worker asks when it resumes: the agent receives the request then, too.
    dispatch([this, generation] {
      if (generation == generation_ && workers_[0].lives && writer_.question == 0) ask_to_write();
    });
  });
}

// Also repeats a request: the answer to an older one no longer counts.
void Process::ask_to_write() {
  writer_.question = ++last_question_;
  writer_.asked = now();
  writer_.since = world_.queue().now();
  send_inquiry();
}

void Process::send_inquiry() {
  if (writer_.question == 0 || !uplink_ || !client_->is_connected()) return;
  KvRequest request;
  request.id = writer_.question;
  request.op = KvRequest::Op::current;
  const Frame frame{{client_->term(), client_->epoch().round}, std::move(request)};
  send(*uplink_, frame, std::make_shared<const std::string>(encode(frame.epoch, frame.message)));
}

void Process::on_inquiry(const Peer& peer, const Frame& frame, const KvRequest& request) {
  carry_out(membership_->asked_current(peer.id, frame.epoch.round, request.id, membership_time()));
}

void Process::on_inquiry_answer(const KvReply& reply) {
  if (writer_.question == 0 || reply.id != writer_.question) return;
  const bool is_there = writer_.generation == generation_ && !workers_.empty() && workers_[0].lives;
  if (!is_there) {
    writer_.question = 0;
    return;
  }
  if (reply.status != KvReply::Status::ok) {
    note("must not make its checkpoint valid");
    ++world_.stats().refused_writes;
    writer_.question = 0;
    return;
  }
  if (now() - writer_.asked >= Millis{reply.number}) return ask_to_write();
  ++world_.stats().writes;
  // The answer, or what the coordinator beside it makes it from, was on its way during the pause:
  // what is left, by docs/decisions/0023-frozen-nodes.md.
  const bool spans_pause = writer_.since <= uncounted_until_;
  if (!spans_pause) world_.checker().wrote(spec_.name, workers_epoch_);
  plan_write();
}

}  // namespace acc::simulation
