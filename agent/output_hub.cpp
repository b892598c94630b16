#include "agent/output_hub.hpp"

#include "agent/output_hub_impl.hpp"

#include <utility>

namespace acc::agent {

OutputHub::OutputHub(boost::asio::io_context& io, const OutputPlan& plan,
                     std::uint32_t local_world_size, const ConsoleFacts& facts,
                     OutputOptions options)
    : impl_{std::make_shared<Impl>(io, plan, local_world_size, facts, std::move(options))} {
  impl_->set_up();
}

OutputHub::~OutputHub() {
  impl_->on_degraded = nullptr;
  impl_->end_round();
  impl_->stop();
}

void OutputHub::set_job(std::string job_id, std::string role) {
  impl_->job_id = std::move(job_id);
  impl_->role = std::move(role);
}
void OutputHub::begin_round(Round round, const std::string& run_folder) {
  impl_->begin_round(round, run_folder);
}
Result<ChildStreams> OutputHub::open(LocalRank local, Rank rank) {
  return impl_->open(local, rank);
}
void OutputHub::close_child_ends(LocalRank local) { impl_->close_child_ends(local); }
void OutputHub::drain(LocalRank local) { impl_->drain(local); }
void OutputHub::end_round() { impl_->end_round(); }
std::string OutputHub::tail(LocalRank local) const { return impl_->tail(local); }
std::string OutputHub::log_path(LocalRank local, Streams which) const {
  return impl_->log_path(local, which);
}
void OutputHub::say(std::string_view line) { impl_->say(line); }
std::vector<Losses> OutputHub::losses() const { return impl_->losses(); }
void OutputHub::on_degraded(std::function<void(const Losses&)> told) {
  impl_->on_degraded = std::move(told);
}
void OutputHub::shorten_patience(Millis patience) { impl_->shorten_patience(patience); }
std::vector<Variable> OutputHub::environment(LocalRank local, Rank rank) const {
  return impl_->environment(local, rank);
}
void OutputHub::window_changed() { impl_->window_changed(); }
void OutputHub::finish(const std::function<FlushLimits()>& limits) { impl_->finish(limits); }

}  // namespace acc::agent
