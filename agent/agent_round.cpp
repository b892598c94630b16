#include "agent/agent_loop.hpp"
#include "agent/environment.hpp"
#include "agent/local_store.hpp"
#include "agent/pmi_server.hpp"
#include "agent/seat.hpp"
#include "agent/small_file.hpp"
#include "agent/worker_server.hpp"
#include "common/log.hpp"
#include "common/ports.hpp"
#include "common/program_path.hpp"

#include <boost/asio/post.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

// How one round is started.
namespace acc::agent {

namespace {

std::span<const char* const> caller_environment() {
  std::size_t count = 0;
  while (environ[count] != nullptr) ++count;
  return {environ, count};
}

std::uint16_t fresh_port(std::uint16_t otherwise) {
  const auto port = pick_free_port();
  return port != 0 ? port : otherwise;
}

}  // namespace

// Known before anything is tried: half of the workers started over and over help nobody.
std::optional<StartFailure> AgentLoop::check_descriptors() const {
  constexpr std::size_t kForAMoment = 12;  // the child's ends of its pipes, the start itself
  const auto workers = plan_.local_world_size;
  const auto needed = count_open_descriptors() + kForAMoment + (plan_.pmi ? workers : 0) +
                      (seat_ ? workers : 0) +  // the ends of the lease timer's pipe
                      descriptors_of_workers(plan_.output, workers, console_);
  auto words = describe_shortage(workers, needed, descriptors_.now());
  if (words.empty()) return std::nullopt;
  return StartFailure{LocalRank{0}, EMFILE, "descriptors", std::move(words)};
}

// The store's address in this round. A port that the user named is kept; else a later round takes a
// fresh one, so that nothing of the last round can be met there (DESIGN §6).
Master AgentLoop::choose_master() {
  Master master = plan_.master;
  const bool fresh = !master.port_is_given && group_.ledger.restarts > 0;
  if (fresh) {
    port_reservation_.reset();
    master.port = fresh_port(master.port);
  }
  const bool serves = plan_.kind == JobKind::elastic && plan_.first_rank == Rank{0};
  if (!serves || port_reservation_) return master;
  port_reservation_ = reserve_port(master.port);
  if (port_reservation_ || master.port_is_given) return master;
  // Another job took it after the launcher had looked.
  master.port = fresh_port(master.port);
  port_reservation_ = reserve_port(master.port);
  plan_.master.port = master.port;
  return master;
}

// On one machine ranks follow from arithmetic.
Assignment AgentLoop::assign_here() {
  return {group_.round,     plan_.rendezvous.node_rank, plan_.rendezvous.nnodes_max,
          plan_.first_rank, plan_.world_size,           choose_master()};
}

// On node rank 0 of a job on several nodes: told to all of them. A fixed job's first round has the
// port that its users expect; it was looked at before the start.
std::uint16_t AgentLoop::reserve_store_port(Round round) {
  auto& master = plan_.master;
  const bool is_expected =
      master.port_is_given || (plan_.cluster.backend == Backend::fixed && round == Round{0});
  const auto port = is_expected ? master.port : fresh_port(master.port);
  port_reservation_.reset();
  port_reservation_ = reserve_port(port);
  return port;
}

void AgentLoop::start_workers() {
  auto prepared = prepare_round();
  if (const auto* failure = std::get_if<StartFailure>(&prepared)) return on_started(*failure);
  workers_.start(std::move(std::get<Launch>(prepared)));
}

std::variant<Launch, StartFailure> AgentLoop::prepare_round() {
  const Round round = group_.round;
  if (const int reason = plan_.script_problem.errnum; reason != 0)
    return StartFailure{LocalRank{0}, reason, "exec", {}};
  if (auto shortage = check_descriptors()) return std::move(*shortage);
  containment_.prepare_round();
  note_cgroup(guardian_, containment_.cgroup_path());
  std::string error_folder;
  if (plan_.kind == JobKind::elastic) error_folder = run_folder_.make_attempt(round);
  if (plan_.kind == JobKind::elastic && error_folder.empty() && round == Round{0}) {
    narrator_.warning("cannot make a folder for error files in '" + run_folder_.path() +
                      "': exceptions that @record notes won't be in the report");
  }
  if (guardian_.board != nullptr && !run_folder_.holds_logs() && !error_folder.empty()) {
    auto& note = guardian_.board->temporary_folder;
    run_folder_.path().copy(note, sizeof note - 1);  // zeroed memory: the end is marked
  }
  output_.begin_round(round, run_folder_.path());
  if (round == Round{0} && plan_.output.log_dir.empty() && run_folder_.holds_logs())
    narrator_.note("log files are in " + run_folder_.path() + " (--log_dir names another place)");

  RoundFacts facts;
  facts.assignment = place_ ? *place_ : assign_here();
  listen_to_workers();
  asked_not_to_restart_.clear();
  if (local_store_) local_store_->begin_round(round);
  worker_server_->begin_round(round, facts.assignment.first_rank, plan_.local_world_size);
  if (pmi_server_)
    pmi_server_->begin_round("acc_" + job_id_ + "_" + std::to_string(round.value()),
                             facts.assignment.first_rank, facts.assignment.world_size);
  facts.agent_socket = worker_server_->address();
  facts.job_id = job_id_;
  facts.restarts = group_.ledger.restarts;
  facts.restart_reason = restart_reason_;
  facts.error_folder = error_folder;
  const Rank first_rank = facts.assignment.first_rank;
  facts.console = [this, first_rank](LocalRank local) {
    return output_.environment(local, Rank{first_rank.value() + local.value()});
  };
  RoundEnvironment environment{plan_, caller_environment(), facts};

  const char* path = environment.find("PATH");
  program_path_ =
      find_on_path(plan_.command.front(), path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
  if (program_path_.empty()) return StartFailure{LocalRank{0}, ENOENT, "exec", {}};

  if (!plan_.restart.progress_file.empty())
    progress_seen_ = read_small_file(plan_.restart.progress_file);
  const bool lends_terminal = reader_.has_value() && terminal_.can_lend();
  group_.terminal_rank = lends_terminal ? reader_ : std::nullopt;
  memory_
      .mark();  // before the start, or the first of many workers might be out of memory uncounted
  lease_bound_.clear();
  std::function<void(LocalRank)> make_folder;
  if (!error_folder.empty())
    make_folder = [this, round](LocalRank local) { run_folder_.make_worker(round, local); };
  return Launch{program_path_,
                CStringArray{plan_.command},
                plan_.local_world_size,
                facts.assignment.first_rank,
                reader_,
                lends_terminal,
                plan_.cores,
                std::move(environment),
                std::move(make_folder),
                pmi_server_.get()};
}

void AgentLoop::on_started(const std::optional<StartFailure>& failure) {
  const auto now = std::chrono::steady_clock::now();
  if (failure) {
    handle(StartFailed{*failure, now});
    check_emptied();
    return;
  }
  log::info("round_started",
            {{"job", job_id_}, {"round", group_.round.value()}, {"workers", group_.size}});
  handle(RoundStarted{now});
  if (seat_) seat_->set_alive(group_.alive);
  if (group_.terminal_rank) lend_terminal();
  forget_last_attempt();
  const std::string status = std::to_string(group_.size) + " workers running, attempt " +
                             std::to_string(group_.round.value());
  if (group_.round > Round{0}) return service_.status(status);
  service_.ready(status);
  boost::asio::post(io_, sweep_dead_cgroups);  // of others before us: not in the way of the start
}

void AgentLoop::on_exec_failed(const StartFailure& failure) {
  handle(StartFailed{failure, std::chrono::steady_clock::now()});
}

void AgentLoop::forget_last_attempt() {
  if (run_folder_.forget_some(group_.round)) return;
  boost::asio::post(io_, [this] { forget_last_attempt(); });
}

bool AgentLoop::progress_changed() {
  const auto& file = plan_.restart.progress_file;
  return !file.empty() && read_small_file(file) != progress_seen_;
}

}  // namespace acc::agent
