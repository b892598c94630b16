#include "launcher/launcher.hpp"

#include "agent/agent.hpp"
#include "agent/fanout/cluster_launch.hpp"
#include "agent/life_line.hpp"
#include "common/exit_codes.hpp"
#include "common/host_name.hpp"
#include "common/log.hpp"
#include "common/round_end.hpp"
#include "common/text.hpp"
#include "common/version.hpp"
#include "launcher/cli.hpp"
#include "launcher/habits.hpp"
#include "launcher/help.hpp"
#include "launcher/host_facts.hpp"
#include "launcher/hosts_flags.hpp"
#include "launcher/hosts_inputs.hpp"
#include "launcher/hosts_json.hpp"
#include "launcher/hosts_plan.hpp"
#include "launcher/key_table.hpp"
#include "launcher/machines_plan.hpp"
#include "launcher/merge.hpp"
#include "launcher/mode.hpp"
#include "launcher/output_paths.hpp"
#include "launcher/plan.hpp"
#include "launcher/plan_json.hpp"
#include "launcher/private_file.hpp"
#include "launcher/program.hpp"
#include "launcher/script_check.hpp"
#include "launcher/secret_file.hpp"
#include "launcher/user_messages.hpp"
#include "rendezvous/secret.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace acc::launcher {

using namespace literals;

namespace {

void append(Complaints& complaints, Complaints more) {
  complaints.insert(complaints.end(), std::make_move_iterator(more.begin()),
                    std::make_move_iterator(more.end()));
}

std::string working_directory() {
  char buffer[4096];
  return ::getcwd(buffer, sizeof buffer) != nullptr ? buffer : ".";
}

void set_log_level(const JobSpec& spec) {
  if (const auto level = log::level_named(spec.text("log_level"_key))) log::set_level(*level);
}

/// The groups of flags that go with the mode flags on this line.
std::vector<Group> platforms(const CommandLine& line) {
  constexpr std::pair<Key, Group> kPlatforms[] = {
      {"multi_gpu"_key, Group::machines},
      {"cpu"_key, Group::mpi},
      {"use_fsdp"_key, Group::fsdp},
      {"use_deepspeed"_key, Group::deepspeed},
      {"use_megatron_lm"_key, Group::megatron},
      {"tpu"_key, Group::cloud},
      {"use_parallelism_config"_key, Group::parallelism}};
  std::vector<Group> groups;
  for (const auto& [flag, group] : kPlatforms) {
    if (line.given(flag) != nullptr) groups.push_back(group);
  }
  return groups;
}

/// The deepspeed program reads it and passes the variables on to other machines. It may hold
/// secrets of the environment.
int write_deepspeed_env(const agent::JobPlan& plan, Environment environment) {
  for (const auto& [name, value] : plan.env) environment[name] = value;
  const auto lines = deepspeed_env(environment).lines;  // what is skipped is told by the plan
  const auto written = append_private(".deepspeed_env", join(lines, "\n") + "\n");
  if (written) return 0;
  tell(written.error().what);
  return to_int(ExitCode::output);
}

/// One command line's way from its words to the agent.
class Launch {
 public:
  Launch(const std::vector<std::string>& words, bool has_output, Caller caller)
      : has_output_{has_output},
        caller_{std::move(caller)},
        line_{parse_command_line(words)},
        environment_{read_environment()} {}

  int run(const agent::GuardianLink& guardian) {
    if (line_.help_topic) return help();
    if (line_.given("version"_key) != nullptr)
      return print(std::string{"acc-launch "} + version() + "\n");
    if (line_.secret_path && line_.complaints.empty()) return make_secret(*line_.secret_path);
    if (const auto refused = take_orders()) {
      tell(refused->what);
      return to_int(refused->code == Errc::not_found ? ExitCode::failure : ExitCode::usage);
    }
    auto complaints = line_.complaints;
    const bool knows_machine = read_facts(complaints);
    const bool knows_file = read_config(complaints);
    // Refused with hosts, whatever it says.
    if (is_on_hosts(line_)) line_.rejected.push_back("machine_rank"_key);
    auto merged = merge(line_, config_, *facts_, environment_);
    append(complaints, std::move(merged.complaints));
    auto& spec = merged.spec;
    // Whatever becomes of it: a report of an older job must not be taken for this one's.
    if (!line_.given("print_config"_key) && !line_.given("print_plan"_key))
      agent::note_report(guardian, spec.text("report"_key));
    const bool looks_only = line_.given("print_config"_key) != nullptr;
    if (!looks_only && knows_file) append(complaints, check_script_word(line_, spec));
    if (looks_only && complaints.empty()) return print(config_text(spec));
    if (is_on_hosts(line_)) return start_on_hosts(spec, std::move(complaints), guardian);
    append(complaints, check_without_hosts(line_));
    agent::JobPlan plan;
    append(complaints, knows_machine && knows_file && !looks_only
                           ? make_plan_of(spec, complaints.empty(), plan)
                           : check_values(spec, environment_));
    if (!complaints.empty()) {
      agent::note_refusal(guardian, complaints.front().what);
      return refuse(spec, std::move(complaints));
    }
    set_log_level(spec);
    return start(spec, plan, guardian);
  }

 private:
  [[nodiscard]] int help() const {
    const auto text =
        line_.help_topic->empty() ? help_for(platforms(line_)) : help_text(*line_.help_topic);
    if (text) return print(*text);
    tell(text.error().what);
    return to_int(ExitCode::usage);
  }

  /// A reader that has seen enough (`| head`) is no failure.
  [[nodiscard]] int print(const std::string& text) const {
    const int failed = has_output_ ? write_all(STDOUT_FILENO, text) : EBADF;
    if (failed == 0 || failed == EPIPE) return 0;
    tell(system_error(failed, "can't write to the standard output").what);
    return to_int(ExitCode::output);
  }

  [[nodiscard]] int make_secret(const std::string& wanted) const {
    const auto made = make_secret_file(wanted, "--make_secret FILE");
    if (made) return print(*made);
    tell("--make_secret: " + made.error().what);
    return to_int(secret_path_for(wanted).empty() ? ExitCode::usage : ExitCode::output);
  }

  /// False: the file with the facts can't be read, so that what the machine has isn't known.
  bool read_facts(Complaints& complaints) {
    facts_ = is_on_hosts(line_) ? unknown_facts() : detected_facts();
    const auto* file = line_.given("host_facts"_key);
    if (file == nullptr) return true;
    auto facts = facts_from_file(python_text(file->value));
    if (facts) {
      facts_ = std::move(*facts);
    } else {
      complaints.push_back(facts.error());
    }
    return facts.has_value();
  }

  /// False: there is a config file and it can't be read, so that its settings aren't known.
  bool read_config(Complaints& complaints) {
    const auto* given = line_.given("config_file"_key);
    std::string path =
        given != nullptr ? expand_home(python_text(given->value), environment_) : std::string{};
    if (given == nullptr) {
      if (std::ranges::find(line_.rejected, "config_file"_key) != line_.rejected.end())
        return false;
      if (!wants_default_config(line_)) return true;
      path = default_config_path(environment_);
      if (::access(path.c_str(), F_OK) != 0) return true;
      default_config_ = path;
    }
    auto config = load_config(path);
    if (config) {
      config_ = std::move(*config);
    } else {
      complaints.push_back(config.error());
    }
    return config.has_value();
  }

  /// `is_good_so_far`: there is no complaint yet. With one, what could go wrong only later is
  /// looked at now, so that the user reads everything at once.
  Complaints make_plan_of(const JobSpec& spec, bool is_good_so_far, agent::JobPlan& plan) {
    const auto kind = script_kind_of(spec);
    PlanInputs inputs{environment_, working_directory(), find_interpreter(environment_), kind};
    if (kind == ScriptKind::executable || spec.flag("no_python"_key))
      inputs.mpi = mpi_library(linked_libraries(
          spec.flag("no_python"_key) ? find_program(spec.script, environment_) : spec.script));
    const bool only_mpiexec = spec.is_set("mpirun_hostfile"_key) &&
                              find_program("mpirun", environment_).empty() &&
                              !find_program("mpiexec", environment_).empty();
    if (only_mpiexec) inputs.mpi_program = "mpiexec";
    auto planned = make_plan(spec, *facts_, inputs);
    plan = std::move(planned.plan);
    plan.cluster.secret = secret_;
    plan.life_line = life_line_;
    // One of several hosts, whose output goes to the same place.
    if (life_line_ || secret_) {
      plan.stop.is_from_one_launch = true;
      plan.output.is_reported_elsewhere = spec.integer("machine_rank"_key).value_or(0) != 0;
      // Beside workers of other hosts a local rank says little.
      if (plan.output.prefix == agent::OutputPlan{}.prefix)
        plan.output.prefix = "[${role_name}${rank}]:";
    }
    auto& complaints = planned.complaints;
    if (line_.given("print_plan"_key) != nullptr) return std::move(complaints);
    append(complaints, check_runnable(spec, plan));
    append(complaints, check_machines(spec, plan));
    const bool knows_script = line_.script_is_certain && !spec.script.empty();
    if ((is_good_so_far && complaints.empty()) || !knows_script) return std::move(complaints);
    const auto problem = check_script_file(spec, environment_);
    if (problem.errnum != 0 && command_hint(spec.script).empty())
      complaints.push_back({Errc::not_found, problem.what});
    return std::move(complaints);
  }

  /// What is of this host alone, of several whose lines go to one terminal, names it.
  static void tell_of(const agent::JobPlan& plan, const std::string& text) {
    tell(plan.output.is_reported_elsewhere ? acc::host_name() + ": " + text : text);
  }

  /// Who holds the other end of a life line quotes it, behind the host's name.
  static void tell_refusal(const agent::JobPlan& plan, const std::string& text) {
    plan.life_line ? tell(text) : tell_of(plan, text);
  }

  [[nodiscard]] int refuse(const JobSpec& spec, Complaints complaints) const {
    if (!spec.flag("quiet"_key)) {
      for (const auto& note : spec.notes) tell("note: " + note);
    }
    return tell_complaints(std::move(complaints), spec.config_path);
  }

  int start(const JobSpec& spec, agent::JobPlan& plan, const agent::GuardianLink& guardian) {
    const bool prints = line_.given("print_plan"_key) != nullptr;
    plan.script_problem = check_script_file(spec, environment_);
    const int reason = plan.script_problem.errnum;
    // On several machines the others wait for this one: it joins and lets all of them know. On a
    // life line none has begun.
    if (reason != 0 && !prints && (!plan.cluster.several() || plan.life_line)) {
      tell_refusal(plan, plan.script_problem.what);
      agent::note_refusal(guardian, plan.script_problem.what);
      return to_int(exit_code_for_start(reason));
    }
    const bool is_heard = !plan.output.is_reported_elsewhere;  // once a job, not once a host
    const bool quiet = spec.flag("quiet"_key) || !is_heard;
    for (const auto& note : spec.notes) {
      if (!quiet) tell("note: " + note);
    }
    const auto program =
        spec.flag("no_python"_key) ? find_program(spec.script, environment_) : spec.script;
    if (is_heard)
      write_all(STDERR_FILENO,
                defaults_warning(spec, !spec.flag("module"_key) && is_binary(program)));
    if (!quiet) {
      tell_about_ignored(line_);
      for (const auto& note : notes_about_arguments(line_, spec)) tell("note: " + note);
      const auto python = find_program(find_interpreter(environment_), environment_);
      const auto other = note_about_interpreter(spec, python);
      if (!other.empty()) tell("note: " + other);
    }
    for (const auto& warning : plan.warnings) tell_of(plan, "warning: " + warning);
    if (plan.cluster.several() && plan.cluster.insecure && !plan.cluster.loopback && !prints)
      tell("warning: --insecure: any host that reaches port " +
           std::to_string(plan.cluster.control_port) + " can join, read and stop this job");
    if (prints) return print(plan_to_json(spec, plan));
    plan.warnings.clear();  // told
    if (const int code = check_paths(plan, guardian); code != 0) return code;
    if (plan.kind == agent::JobKind::deepspeed) {
      if (const int code = write_deepspeed_env(plan, environment_); code != 0) return code;
    }
    const auto& before_start = caller_.before_start;
    if (const auto code = before_start ? before_start(plan) : std::nullopt) return *code;
    return agent::run(plan, guardian);
  }

  /// --secret_fd and --life_line: what the acc-launch of another host says before all else. Its
  /// folder and variables hold for everything that follows.
  std::optional<Error> take_orders() {
    const auto* secret_flag = line_.given("secret_fd"_key);
    const auto* orders_flag = line_.given("life_line"_key);
    if (is_on_hosts(line_)) return std::nullopt;  // refused with the rest
    if (secret_flag == nullptr && orders_flag == nullptr) return std::nullopt;
    const auto number = [](const GivenOption& option) {
      return static_cast<int>(std::clamp<std::int64_t>(*option.value.integer(), -1, 1 << 20));
    };
    const bool is_shared = secret_flag != nullptr && orders_flag != nullptr &&
                           number(*secret_flag) == number(*orders_flag);
    int orders = -1;
    if (orders_flag != nullptr) {
      const auto taken = agent::take_descriptor(number(*orders_flag));
      if (!taken) return Error{Errc::bad_usage, "--life_line: " + taken.error().what};
      orders = *taken;
    }
    if (secret_flag != nullptr) {
      const auto taken =
          is_shared ? Result<int>{orders} : agent::take_descriptor(number(*secret_flag));
      if (!taken) return Error{Errc::bad_usage, "--secret_fd: " + taken.error().what};
      auto secret = rendezvous::read_secret(
          *taken, is_shared ? rendezvous::Behind::orders : rendezvous::Behind::nothing);
      if (!is_shared) ::close(*taken);
      if (!secret) return Error{Errc::bad_usage, "--secret_fd: " + secret.error().what};
      secret_ = std::make_shared<const rendezvous::Secret>(std::move(*secret));
    }
    if (orders < 0) return std::nullopt;
    auto start = agent::read_life_line(orders);
    if (!start) return Error{Errc::bad_usage, start.error().what};
    for (const auto& variable : start->variables)
      ::setenv(variable.name.c_str(), variable.value.c_str(), 1);
    environment_ = read_environment();
    life_line_ = std::move(start->line);
    if (start->folder.empty() || ::chdir(start->folder.c_str()) == 0) return std::nullopt;
    return Error{
        Errc::not_found,
        system_error(errno, "enter the working directory '" + printable(start->folder) + "'").what +
            ": it must be on all hosts (files aren't copied: make it there, or use a "
            "shared folder)"};
  }

  int check_paths(agent::JobPlan& plan, const agent::GuardianLink& guardian) const {
    std::vector<std::string> warnings;
    const auto complaints = check_output_paths(plan, has_output_, warnings);
    for (const auto& warning : warnings) tell_of(plan, "warning: " + warning);
    for (const auto& complaint : complaints) tell_refusal(plan, complaint.what);
    if (complaints.empty()) return 0;
    agent::note_refusal(guardian, complaints.front().what);
    return to_int(ExitCode::output);
  }

  int start_on_hosts(const JobSpec& spec, Complaints complaints,
                     const agent::GuardianLink& guardian) {
    auto inputs = look_at_inputs(line_, spec, environment_);
    if (!inputs) {
      complaints.push_back(inputs.error());
      return refuse(spec, std::move(complaints));
    }
    inputs->folder = working_directory();
    inputs->default_config = default_config_;
    inputs->reads_all_output = caller_.reads_all_output;
    if (inputs->folder == ".")
      complaints.push_back({Errc::not_found,
                            "the working directory was removed: change to one that is on all hosts "
                            "(cd), and start again"});
    auto planned = plan_hosts(line_, spec, *inputs);
    append(complaints, std::move(planned.complaints));
    append(complaints, check_values(spec, environment_));
    if (!complaints.empty()) {
      agent::note_refusal(guardian, complaints.front().what);
      return refuse(spec, std::move(complaints));
    }
    if (line_.given("print_plan"_key) != nullptr) return print(hosts_to_json(planned));
    agent::JobPlan written_here;
    written_here.events_file = planned.launch.events_file;
    if (spec.text("report"_key) == "-") written_here.report_file = "-";
    if (const int code = check_paths(written_here, guardian); code != 0) return code;
    set_log_level(spec);
    return agent::run_on_hosts(planned.launch, guardian);
  }

  bool has_output_;
  Caller caller_;
  CommandLine line_;
  Environment environment_;
  std::unique_ptr<HostFacts> facts_;
  std::optional<Config> config_;
  std::string default_config_;  ///< path of the config file, if it was found and not named
  std::shared_ptr<const rendezvous::Secret> secret_;
  std::optional<agent::LifeLine> life_line_;
};

}  // namespace

bool only_prints_plan(int argc, const char* const* argv) {
  int first = 1;
  while (first < argc && std::string_view{argv[first]}.starts_with("--secret_fd=")) ++first;
  return first < argc && std::string_view{argv[first]} == "--print_plan";
}

int launch(int argc, char** argv, const agent::GuardianLink& guardian, bool has_output) {
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  return launch(words, guardian, has_output);
}

int launch(const std::vector<std::string>& words, const agent::GuardianLink& guardian,
           bool has_output, Caller caller) {
  return Launch{words, has_output, std::move(caller)}.run(guardian);
}

}  // namespace acc::launcher
