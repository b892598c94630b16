#include "launcher/policies.hpp"

#include "common/text.hpp"
#include "launcher/key_table.hpp"
#include "launcher/setting_parsers.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cctype>
#include <limits>

namespace acc::launcher {

using namespace literals;

namespace {

bool is_interface_address(const std::string& host) {
  in6_addr unused{};
  return host == "localhost" || ::inet_pton(AF_INET, host.c_str(), &unused) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &unused) == 1;
}

// "torch.nn": identifiers of ASCII letters, or of others, as Python allows them.
bool is_module_name(std::string_view name) {
  const auto is_letter = [](unsigned char c) { return std::isalpha(c) != 0 || c == '_' || c >= 0x80; };
  return std::ranges::all_of(split(name, '.'), [&](const std::string& part) {
    return !part.empty() && is_letter(static_cast<unsigned char>(part.front())) &&
           std::ranges::all_of(part, [&](unsigned char c) {
             return is_letter(c) || std::isdigit(c) != 0;
           });
  });
}

class Policies {
 public:
  Policies(const JobSpec& spec, agent::JobPlan& plan, Complaints& complaints)
      : spec_{spec}, plan_{plan}, complaints_{complaints} {}

  void restart() {
    auto& policy = plan_.restart;
    policy.max_restarts = count("max_restarts"_key);
    policy.delay_base = time("restart_delay"_key);
    policy.delay_max = time("restart_delay_max"_key);
    policy.healthy_after = time("healthy_time"_key);
    policy.refill_after = time("restart_refill"_key);
    policy.max_no_progress = count("max_no_progress"_key);
    plan_.progress_file = spec_.text("progress_file"_key);
    policy.has_progress_file = !plan_.progress_file.empty();
    take("no_restart_codes"_key, parse_codes(spec_.text("no_restart_codes"_key)),
         policy.never_retry);
    if (const auto* interval = std::get_if<double>(&spec_.value("monitor_interval"_key).data))
      plan_.monitor_interval = *interval;
  }

  void stop() {
    auto& policy = plan_.stop;
    policy.grace = time("grace"_key);
    policy.preempt_grace = time("preempt_grace"_key);
    policy.give_up = time("give_up"_key);
    take("preempt_signals"_key, parse_signals(spec_.text("preempt_signals"_key)),
         policy.preempt_signals);
  }

  void hang() {
    auto& hang = plan_.hang;
    const auto text = spec_.text("hang_timeout"_key);
    if (text == "auto") {
      hang.kind = agent::HangPolicy::Kind::learned;
    } else {
      take("hang_timeout"_key, parse_duration(text), hang.timeout);
      if (hang.timeout > Millis{0}) hang.kind = agent::HangPolicy::Kind::fixed;
    }
    if (spec_.is_set("first_step_timeout"_key)) hang.first_step = time("first_step_timeout"_key);
    hang.stall = time("stall_timeout"_key);
    hang.stall_restarts = spec_.text("stall_action"_key) == "restart";
  }

  void output(const Environment& environment) {
    auto& output = plan_.output;
    take("tee"_key, parse_streams(spec_.text("tee"_key)), output.tee);
    take("redirects"_key, parse_streams(spec_.text("redirects"_key)), output.redirects);
    take("local_ranks_filter"_key, parse_ranks(spec_.text("local_ranks_filter"_key)),
         output.console);
    take("log_rotate_size"_key, parse_bytes(spec_.text("log_rotate_size"_key)),
         output.rotate_bytes);
    output.rotate_keep = count("log_rotate_keep"_key);
    output.log_dir = spec_.text("log_dir"_key);
    output.quiet = spec_.flag("quiet"_key);
    output.capture = choice("capture"_key, "yes", "no");
    output.pty = spec_.text("pty"_key) == "on";                // auto: make_plan knows the program
    constexpr Millis kLongest{std::chrono::hours{24 * 3650}};  // no clock overflows
    output.patience = std::min(time("output_patience"_key), kLongest);
    output.color = choice("color"_key, "always", "never");
    const auto prefix = variable(environment, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
    if (!prefix.empty()) output.prefix = prefix;
  }

  void health() {
    auto& health = plan_.health;
    health.interval = time("health_interval"_key);
    health.command = spec_.text("health_check"_key);
    health.checkpoint_folder = spec_.text("health_folder"_key);
    health.patience = std::clamp(time("health_timeout"_key), Millis{10}, Millis{20'000});
    health.before_rounds = spec_.flag("health"_key) || health.interval > Millis{0} ||
                           !health.command.empty() || !health.checkpoint_folder.empty();
  }

  void preload() {
    auto& preload = plan_.preload;
    preload.patience = std::max(time("preload_timeout"_key), Millis{10});
    std::vector<std::string> modules;
    for (const auto& word : split(spec_.text("preload"_key), ',')) {
      const auto name = trim(word);
      if (!name.empty() && !is_module_name(name))
        return complain("preload"_key, in_quotes(name) +
                                           " is no name of a Python module: write them as "
                                           "torch,transformers, or auto");
      if (!name.empty()) modules.emplace_back(name);
    }
    preload.modules = join(modules, ",");
  }

  void rest(const Environment& environment) {
    plan_.events_file = spec_.text("events"_key);
    take("events_size"_key, parse_bytes(spec_.text("events_size"_key)), plan_.events_size);
    plan_.report_file = spec_.text("report"_key);
    if (spec_.is_set("metrics"_key) && !spec_.text("metrics"_key).empty())
      take_metrics(spec_.text("metrics"_key));
    if (spec_.is_set("slots"_key)) plan_.share.slots = count("slots"_key);
    plan_.share.gpus = count("gpus"_key);
    if (plan_.share.gpus > 0 && variable(environment, "ACC_JOB_FOLDER").empty())
      plan_.warnings.push_back(spec_.name_for_complaint("gpus"_key) +
                               ": only acc-agent gives GPUs, to the files of its jobs folder; here "
                               "gpu_ids and num_processes count");
    plan_.role = spec_.text("role"_key);
    plan_.start_method = spec_.text("start_method"_key);
    if (!spec_.is_set("stdin"_key)) return;
    const auto rank = count("stdin"_key);
    plan_.stdin_rank = LocalRank{rank};
  }

 private:
  void take_metrics(const std::string& text) {
    if (const auto port = parse_number<std::uint16_t>(text)) {
      plan_.metrics = agent::MetricsAddress{"127.0.0.1", *port};
      return;
    }
    // 0, any free port, is one for listening only: no endpoint has it.
    const bool takes_any_port = text.ends_with(":0");
    auto endpoint = parse_endpoint(takes_any_port ? text.substr(0, text.size() - 2) : text);
    if (takes_any_port && endpoint && !endpoint->port) endpoint->port = 0;
    if (!endpoint || !endpoint->port || !is_interface_address(endpoint->host))
      return complain("metrics"_key, in_quotes(text) +
                                         " is neither a PORT nor ADDRESS:PORT, as 9400, "
                                         "0.0.0.0:9400 or [::]:9400");
    plan_.metrics = agent::MetricsAddress{endpoint->host, *endpoint->port};
  }

  void complain(Key key, const std::string& what) {
    complaints_.push_back({Errc::bad_config, spec_.name_for_complaint(key) + ": " + what});
  }

  template <class T>
  void take(Key key, Result<T> parsed, T& into) {
    if (parsed) {
      into = std::move(*parsed);
    } else {
      complain(key, parsed.error().what);
    }
  }

  Millis time(Key key) {
    Millis millis{0};
    take(key, parse_duration(spec_.text(key)), millis);
    return millis;
  }

  std::uint32_t count(Key key) {
    const auto number = spec_.integer(key).value_or(0);
    if (number >= 0 && number <= std::numeric_limits<std::int32_t>::max())
      return static_cast<std::uint32_t>(number);
    complain(key, std::to_string(number) + " is out of range: 0 or more");
    return 0;
  }

  agent::Choice choice(Key key, std::string_view yes, std::string_view no) {
    const auto word = spec_.text(key);
    if (word == yes) return agent::Choice::yes;
    return word == no ? agent::Choice::no : agent::Choice::automatic;
  }

  const JobSpec& spec_;
  agent::JobPlan& plan_;
  Complaints& complaints_;
};

}  // namespace

void plan_policies(const JobSpec& spec, const Environment& environment, agent::JobPlan& plan,
                   Complaints& complaints) {
  Policies policies{spec, plan, complaints};
  policies.restart();
  policies.stop();
  policies.hang();
  policies.output(environment);
  policies.health();
  policies.preload();
  policies.rest(environment);
}

Complaints check_local_ranks(const JobSpec& spec, const agent::JobPlan& plan) {
  Complaints complaints;
  const auto workers = plan.local_world_size;
  if (workers == 0) return complaints;  // told elsewhere
  const auto check = [&](Key key, LocalRank rank) {
    if (rank.value() < workers) return true;
    complaints.push_back(
        {Errc::bad_config, spec.name_for_complaint(key) + ": '" + printable(spec.text(key)) +
                               "' names local rank " + std::to_string(rank.value()) +
                               ", but this machine has " +
                               (workers == 1 ? "only local rank 0"
                                             : "local ranks 0.." + std::to_string(workers - 1))});
    return false;
  };
  const auto check_streams = [&](Key key, const agent::StreamsPerRank& streams) {
    for (const auto& [rank, which] : streams.some) {
      if (!check(key, rank)) return;
    }
  };
  check_streams("tee"_key, plan.output.tee);
  check_streams("redirects"_key, plan.output.redirects);
  for (const auto rank : plan.output.console) {
    if (!check("local_ranks_filter"_key, rank)) break;
  }
  if (plan.stdin_rank) check("stdin"_key, *plan.stdin_rank);
  return complaints;
}

}  // namespace acc::launcher
