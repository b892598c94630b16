#include "agent/round_starter.hpp"

#include "agent/output/file_system_check.hpp"
#include "agent/small_file.hpp"
#include "common/ports.hpp"
#include "common/program_path.hpp"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <span>
#include <utility>

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

// As the launcher says it, which looks before the agent does.
std::string port_instead(const std::string& taken, std::uint16_t port) {
  return taken + ": port " + std::to_string(port) +
         " is used instead, for this job alone. Choose one with --main_process_port, or 0 for any "
         "free one.";
}

}  // namespace

RoundStarter::RoundStarter(const Tools& tools)
    : tools_{tools}, plan_{tools.plan}, master_{tools.plan.master} {}

// Checked before anything is started: starting half of the workers again and again is of no use.
std::optional<StartFailure> RoundStarter::check_descriptors(bool has_lease) {
  constexpr std::size_t kForAMoment = 12;  // the child's ends of its pipes, the start itself
  // Opened in this node's first round, and there from then on: the control socket, heartbeats.
  constexpr std::size_t kKeptFromNowOn = 8;
  const auto workers = plan_.local_world_size;
  const auto needed = count_open_descriptors() + kForAMoment +
                      (std::exchange(is_first_check_, false) ? kKeptFromNowOn : 0) +
                      (plan_.pmi ? workers : 0) +
                      (has_lease ? workers : 0) +  // the ends of the lease timer's pipe
                      descriptors_of_workers(plan_.output, workers, tools_.console);
  auto words = describe_shortage(workers, needed, tools_.descriptors.now());
  if (words.empty()) return std::nullopt;
  return StartFailure{LocalRank{0}, EMFILE, "descriptors", std::move(words)};
}

// @return false: another job on this machine has it, whose workers ours would meet there
bool RoundStarter::reserve(std::uint16_t port) {
  master_.port = port;
  errno = 0;
  UniqueFd reservation = reserve_port(port);
  const bool is_taken = !reservation && errno == EADDRINUSE;
  port_reservation_ = std::move(reservation);
  return !is_taken;
}

void RoundStarter::reserve_fresh_port() {
  // What was free may have been reserved by a job whose rank 0 doesn't listen yet.
  constexpr int kTries = 16;
  for (int i = 0; i < kTries && !reserve(fresh_port(master_.port)); ++i) {
  }
}

// The store's address in this round. A port that the user named is kept; else a later round takes a
// fresh one, so that nothing of the last round can be met there (DESIGN §6).
Master RoundStarter::choose_master(bool is_restart) {
  const bool fresh = !master_.port_is_given && is_restart;
  if (fresh) port_reservation_.reset();
  const bool serves = plan_.kind == JobKind::elastic && plan_.first_rank == Rank{0};
  if (fresh && !serves) master_.port = fresh_port(master_.port);
  if (!serves || port_reservation_) return master_;
  if (fresh) {
    reserve_fresh_port();
    return master_;
  }
  const auto wanted = master_.port;
  if (reserve(wanted)) return master_;
  // Another job took it after the launcher had looked.
  const auto taken = port_in_use(wanted);
  reserve_fresh_port();
  if (master_.port_is_given) tools_.messages.warning(port_instead(taken, master_.port));
  master_.port_is_given = false;
  return master_;
}

// On one machine ranks follow from arithmetic.
Assignment RoundStarter::assign_here(const Order& order) {
  return {order.round,
          NodeRank{0},
          1,
          {plan_.first_rank, plan_.local_world_size},
          plan_.world_size,
          choose_master(order.restarts > 0)};
}

std::uint16_t RoundStarter::reserve_store_port(Round round) {
  const auto wanted = plan_.master.port;
  const bool is_first = round == Round{0};
  const bool is_expected =
      plan_.master.port_is_given || (plan_.cluster.backend == Backend::fixed && is_first);
  port_refusal_.clear();
  // It stays reserved from round to round: no other job gets it in between.
  if (is_expected && port_reservation_ && master_.port == wanted) return wanted;
  port_reservation_.reset();
  if (is_expected && reserve(wanted)) return wanted;
  const auto taken = is_expected ? port_in_use(wanted) : std::string{};
  reserve_fresh_port();
  if (is_expected && is_first) {
    port_refusal_ = taken +
                    " on this machine: choose another with --main_process_port, the same on "
                    "all machines";
  } else if (is_expected) {
    tools_.messages.warning(taken + ": in this attempt port " + std::to_string(master_.port) +
                            " is used instead");
  }
  return master_.port;
}

// @return where error files go; empty: nowhere
std::string RoundStarter::make_folders(Round round) {
  const bool is_first = round == Round{0};
  auto& run_folder = tools_.run_folder;
  const bool is_used = plan_.kind == JobKind::elastic || run_folder.holds_logs();
  if (is_first && is_used && !run_folder.detour().empty())
    tools_.messages.warning(run_folder.detour());
  const bool answers = !is_used || file_system_answers(run_folder.path());
  if (!answers)
    tools_.messages.warning("the file system of '" + run_folder.path() +
                            "' gives no answer: this attempt has no error files, and its log files "
                            "begin when it does");
  std::string error_folder;
  if (is_used && answers) error_folder = run_folder.make_attempt(round);
  if (plan_.kind != JobKind::elastic) error_folder.clear();
  const bool is_told = plan_.output.is_log_dir_closed;
  if (plan_.kind == JobKind::elastic && error_folder.empty() && is_first && !is_told && answers) {
    tools_.messages.warning("cannot make a folder for error files in '" + run_folder.path() +
                            "': exceptions that @record notes won't be in the report");
  }
  if (tools_.guardian.board != nullptr && !run_folder.holds_logs() && !error_folder.empty()) {
    auto& note = tools_.guardian.board->temporary_folder;
    run_folder.path().copy(note, sizeof note - 1);  // zeroed memory: the end is marked
  }
  tools_.output.begin_round(round, run_folder.path());
  if (!answers) return {};
  std::error_code none;
  const bool is_there = std::filesystem::is_directory(run_folder.path(), none);
  if (is_first && plan_.output.log_dir.empty() && run_folder.holds_logs() && is_there)
    tools_.messages.note("log files are in " + run_folder.path() +
                         " (--log_dir names another place)");
  return error_folder;
}

std::variant<Launch, StartFailure> RoundStarter::prepare(const Order& order,
                                                         WorkerServices& services) {
  if (const int reason = plan_.script_problem.errnum; reason != 0)
    return StartFailure{LocalRank{0}, reason, "exec", {}};
  // Another node may have become the first one since the port was to be reserved here.
  const auto refusal = std::exchange(port_refusal_, {});
  if (!refusal.empty() && order.place && order.place->node_rank == NodeRank{0})
    return StartFailure{LocalRank{0}, EADDRINUSE, "port", refusal};
  // The first rank moved to another node, which may be on this host.
  if (order.place && order.place->node_rank != NodeRank{0}) port_reservation_.reset();
  if (auto shortage = check_descriptors(order.place.has_value())) return std::move(*shortage);
  tools_.containment.prepare_round();
  note_cgroup(tools_.guardian, tools_.containment.cgroup_path());
  const std::string error_folder = make_folders(order.round);

  RoundFacts facts;
  facts.assignment = order.place ? *order.place : assign_here(order);
  const RankRange ranks = facts.assignment.ranks;
  services.begin_round(order.round, ranks, facts.assignment.world_size);
  facts.agent_socket = services.address();
  facts.heartbeat_page = services.heartbeats().path();
  facts.job_id = order.job_id;
  facts.restarts = order.restarts;
  facts.max_restarts = order.max_restarts;
  facts.restart_reason = order.restart_reason;
  facts.error_folder = error_folder;
  facts.console = [this, ranks](LocalRank local) {
    return tools_.output.environment(local, ranks.of(local));
  };
  RoundEnvironment environment{plan_, caller_environment(), facts};

  const char* path = environment.find("PATH");
  program_ =
      find_on_path(plan_.command.front(), path != nullptr ? path : kDefaultPath);
  if (program_.empty()) return StartFailure{LocalRank{0}, ENOENT, "exec", {}};

  if (!plan_.progress_file.empty() && file_system_answers(plan_.progress_file))
    progress_seen_ = read_small_file(plan_.progress_file);
  std::function<void(LocalRank)> make_folder;
  if (!error_folder.empty()) {
    make_folder = [this, round = order.round](LocalRank local) {
      tools_.run_folder.make_worker(round, local);
    };
  }
  return Launch{program_,
                CStringArray{plan_.command},
                ranks,
                order.reader,
                order.lends_terminal,
                plan_.cores,
                std::move(environment),
                std::move(make_folder),
                services.pmi(),
                tools_.preloader.get()};
}

std::optional<Preloader::Program> RoundStarter::preload_program(
    const std::string& job_id) const {
  RoundFacts facts;
  facts.assignment.ranks = {plan_.first_rank, plan_.local_world_size};
  facts.assignment.world_size = plan_.world_size;
  facts.assignment.master = plan_.master;
  facts.job_id = job_id;
  facts.max_restarts = plan_.restart.max_restarts;
  facts.console = [this, ranks = facts.assignment.ranks](LocalRank local) {
    return tools_.output.environment(local, ranks.of(local));
  };
  RoundEnvironment environment{plan_, caller_environment(), facts};
  const char* path = environment.find("PATH");
  auto program = find_on_path(plan_.command.front(), path != nullptr ? path : kDefaultPath);
  if (program.empty()) return std::nullopt;
  std::vector<WorkerEnvironment> workers;
  for (std::uint32_t i = 0; i < plan_.local_world_size; ++i)
    workers.push_back(environment.for_worker(LocalRank{i}));
  const bool has_other_nodes = plan_.kind == JobKind::elastic && plan_.cluster.several();
  return Preloader::Program{
      std::move(program), plan_.command, {workers, has_other_nodes}, !plan_.cores.empty()};
}

bool RoundStarter::progress_changed() const {
  const auto& file = plan_.progress_file;
  if (file.empty()) return false;
  // What isn't known ends no job.
  return !file_system_answers(file) || read_small_file(file) != progress_seen_;
}

}  // namespace acc::agent
