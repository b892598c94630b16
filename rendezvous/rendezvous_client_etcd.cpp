#include "common/log.hpp"
#include "rendezvous/rendezvous_client.hpp"

// Finding, and being, the coordinator with etcd: what an EtcdCandidate learns, and when it is one.
namespace acc::rendezvous {

namespace {

std::string why_gone(const std::string& job) {
  return "etcd knows nothing of job '" + job +
         "' any more: it ended while this node was out of reach, or etcd lost its data";
}

}  // namespace

void RendezvousClient::be_candidate() {
  LeadershipOptions leadership;
  leadership.prefix = options_.etcd->prefix;
  leadership.job = options_.membership.job;
  leadership.me = options_.client.self.node;
  leadership.ttl = leadership_ttl(options_.client.timings);
  leadership.nodes = options_.membership.nodes_max;
  leadership.seed = options_.client.seed;
  EtcdCandidate::Hooks hooks;
  auto& on = hooks.events;
  on.follow = [this](const Leader& leader) { follow(leader); };
  on.lead = [this](const BecomeLeader& won) { lead(won); };
  on.stop_leading = [this](const std::string& why) {
    if (coordinator_ && !job_is_over_ && !is_ending_) coordinator_->step_down(why);
  };
  on.committed = [this](const Epoch& epoch) {
    if (coordinator_) coordinator_->committed(epoch);
  };
  on.trouble = [this](const std::string& text) {
    client_.set_last_failure(text);
    if (coordinator_) coordinator_->note_etcd_trouble(text);
  };
  hooks.tell = [this](const std::string& text, bool is_warning) { tell(text, is_warning); };
  etcd_ = std::make_unique<EtcdCandidate>(io_, options_.etcd->servers, std::move(leadership),
                                          std::move(hooks));
}

void RendezvousClient::begin_with_etcd(OnCannot cannot) {
  perform(client_.begin(time_of_event()));
  const auto& said = options_.client.self.address;
  if (!said.empty() || !options_.listen.empty())
    return listen_for_etcd(said.empty() ? options_.listen : said, cannot);
  etcd_->find_own_address(
      [this, cannot = std::move(cannot)](const std::string& own) { listen_for_etcd(own, cannot); });
}

// Before this node is announced: the winner must be reachable already.
void RendezvousClient::listen_for_etcd(const std::string& own_address, const OnCannot& cannot) {
  const auto opened = listener_.open_for_all(own_address, options_.etcd->listen_port);
  if (!opened) return cannot(opened.error());
  etcd_->open({own_address, listener_.at()->port});
  client_.set_listener(etcd_->here().port);
  client_.set_address_here(own_address);
  seek_in_etcd();
}

// Called after each change of the client's state.
void RendezvousClient::seek_in_etcd() {
  if (!etcd_ || coordinator_) return;
  etcd_->seek(seeks_coordinator(client_.phase()), client_.term().number + 1);
}

void RendezvousClient::follow(const Leader& leader) {
  if (coordinator_ || is_ending_) return;
  on_order_(Tell{"", false, false});
  perform(client_.coordinator_is_at(leader.at, time_of_event()));
}

void RendezvousClient::lead(const BecomeLeader& won) {
  if (coordinator_ || is_ending_) return etcd_->resign();
  if (is_job_gone(won, client_.state())) {
    is_ending_ = true;
    return etcd_->end_job([this] {
      perform(client_.job_is_gone(why_gone(options_.membership.job), time_of_event()));
    });
  }
  auto membership = options_.membership;
  membership.name = node_name();
  membership.where = describe(etcd_->here());
  membership.external_leader = true;
  membership.term = {won.term, 0};
  const auto& last = won.last;
  log::info("coordinator_elected",
            {{"job", membership.job},
             {"term", won.term},
             {"round", last ? std::to_string(last->epoch.round.value()) : "none"}});
  std::string words;  // none of the first one
  if (last || won.term > 1)
    words = "this node takes over as coordinator by etcd (term " + std::to_string(won.term) +
            (last ? ", round " + std::to_string(last->epoch.round.value()) : "") + ")";
  on_order_(Tell{std::move(words), false, true});
  coordinator_ = std::make_unique<Coordinator>(io_, std::move(membership), coordinator_hooks());
  if (last) coordinator_->inherit(*last);
  perform(client_.coordinator_is_here(etcd_->here(), time_of_event()));
}

void RendezvousClient::add_etcd_hooks(Coordinator::Hooks& hooks) {
  hooks.leadership_term = [this] {
    const auto leadership_term = etcd_->leadership_term();
    if (!leadership_term) return Coordinator::Hooks::LeadershipTerm{};
    return Coordinator::Hooks::LeadershipTerm{leadership_term->asked, leadership_term->until};
  };
  hooks.commit = [this](const RoundRecord& record) { etcd_->commit(record); };
}

void RendezvousClient::end_with_etcd(std::function<void()> done) {
  if (!coordinator_) etcd_->withdraw();
  etcd_->finish(job_is_over_, std::move(done));
}

}  // namespace acc::rendezvous
