#include "launcher/plan_json.hpp"

#include "common/exit_status.hpp"
#include "launcher/core_binding.hpp"
#include "launcher/mode.hpp"

#include <nlohmann/json.hpp>

namespace acc::launcher {

using Json = nlohmann::ordered_json;

namespace {

const char* name_of(agent::JobKind kind) {
  switch (kind) {
    case agent::JobKind::process:
      return "process";
    case agent::JobKind::elastic:
      return "elastic";
    case agent::JobKind::mpirun:
      return "mpirun";
    case agent::JobKind::deepspeed:
      break;
  }
  return "deepspeed";
}

const char* name_of(agent::Choice choice) {
  if (choice == agent::Choice::automatic) return "auto";
  return choice == agent::Choice::yes ? "yes" : "no";
}

double seconds(Millis time) { return static_cast<double>(time.count()) / 1e3; }

Json text_or_null(const std::string& text) { return text.empty() ? Json{} : Json(text); }

Json streams(const agent::StreamsPerRank& streams) {
  if (streams.some.empty()) return static_cast<int>(streams.all);
  Json out = Json::object();
  for (const auto& [rank, which] : streams.some)
    out[std::to_string(rank.value())] = static_cast<int>(which);
  return out;
}

Json launch(const agent::JobPlan& plan) {
  const auto& meeting = plan.rendezvous;
  Json conf = Json::object();
  for (const auto& [key, value] : meeting.conf) conf[key] = value;
  if (meeting.backend == "static") conf["rank"] = meeting.node_rank.value();
  return {{"nnodes_min", meeting.nnodes_min},
          {"nnodes_max", meeting.nnodes_max},
          {"nproc_per_node", plan.local_world_size},
          {"node_rank", meeting.node_rank.value()},
          {"standalone", meeting.standalone},
          {"rdzv_backend", meeting.backend},
          {"rdzv_endpoint", meeting.endpoint},
          {"rdzv_id", meeting.id},
          {"rdzv_conf", conf},
          {"max_restarts", plan.restart.max_restarts},
          {"monitor_interval", plan.monitor_interval},
          {"role", plan.role},
          {"log_dir", text_or_null(plan.output.log_dir)},
          {"redirects", streams(plan.output.redirects)},
          {"tee", streams(plan.output.tee)},
          {"start_method", plan.start_method},
          {"pmi", plan.pmi}};
}

Json restart(const agent::RestartPolicy& policy) {
  Json codes = Json::array();
  for (const auto& range : policy.never_retry) codes.push_back({range.first, range.last});
  return {{"max_restarts", policy.max_restarts},
          {"delay_s", seconds(policy.delay_base)},
          {"delay_max_s", seconds(policy.delay_max)},
          {"healthy_after_s", seconds(policy.healthy_after)},
          {"refill_after_s", seconds(policy.refill_after)},
          {"max_no_progress", policy.max_no_progress},
          {"progress_file", text_or_null(policy.progress_file)},
          {"no_restart_codes", codes}};
}

Json stop(const agent::StopPolicy& policy) {
  Json signals = Json::array();
  for (const int signo : policy.preempt_signals) signals.push_back(signal_name(signo));
  return {{"grace_s", seconds(policy.grace)},
          {"preempt_signals", signals},
          {"preempt_grace_s", seconds(policy.preempt_grace)},
          {"give_up_s", seconds(policy.give_up)}};
}

Json output(const agent::OutputPlan& plan) {
  Json console = Json::array();
  for (const auto rank : plan.console) console.push_back(rank.value());
  return {{"log_dir", text_or_null(plan.log_dir)},
          {"redirects", streams(plan.redirects)},
          {"tee", streams(plan.tee)},
          {"local_ranks_filter", console},
          {"prefix", plan.prefix},
          {"rotate_bytes", plan.rotate_bytes},
          {"rotate_keep", plan.rotate_keep},
          {"capture", name_of(plan.capture)},
          {"pty", plan.pty},
          {"output_patience_s", seconds(plan.patience)},
          {"color", name_of(plan.color)},
          {"quiet", plan.quiet}};
}

const char* name_of(agent::Hosting hosting) {
  if (hosting == agent::Hosting::must) return "must";
  return hosting == agent::Hosting::may ? "may" : "never";
}

const char* name_of(agent::Backend backend) {
  if (backend == agent::Backend::fixed) return "static";
  return backend == agent::Backend::tcp ? "tcp" : "etcd";
}

Json cluster(const agent::Cluster& cluster) {
  Json facts = Json::object();
  for (const auto& fact : cluster.facts) facts[fact.name] = fact.value;
  return {{"backend", name_of(cluster.backend)},
          {"job", cluster.job},
          {"wanted_rank", cluster.wanted ? Json(cluster.wanted->value()) : Json{}},
          {"node_name", text_or_null(cluster.node_name)},
          {"control_host", text_or_null(cluster.control_host)},
          {"control_port", cluster.control_port},
          {"hosting", name_of(cluster.hosting)},
          {"address", text_or_null(cluster.address)},
          {"secret_file", text_or_null(cluster.secret_file)},
          {"insecure", cluster.insecure},
          {"loopback", cluster.loopback},
          {"join_timeout_s", seconds(cluster.join_timeout)},
          {"last_call_s", cluster.last_call ? Json(seconds(*cluster.last_call)) : Json{}},
          {"dead_after_s", seconds(cluster.dead_after)},
          {"lease_s", seconds(cluster.lease)},
          {"scale_up", cluster.scale_up == agent::ScaleUp::now ? "now" : "next_round"},
          {"facts", facts},
          {"etcd_endpoints", cluster.etcd_endpoints},
          {"etcd_prefix", cluster.etcd_prefix}};
}

}  // namespace

std::string plan_to_json(const agent::JobPlan& plan) {
  Json out;
  out["kind"] = name_of(plan.kind);
  out["env"] = plan.env;
  if (plan.env.empty()) out["env"] = Json::object();
  out["command"] = plan.command;
  if (plan.kind == agent::JobKind::elastic) out["launch"] = launch(plan);
  out["defaulted"] = plan.defaulted.empty() ? Json::object() : Json(plan.defaulted);
  if (plan.kind == agent::JobKind::elastic) {
    out["world_size"] = plan.world_size.value();
    out["first_rank"] = plan.first_rank.value();
    out["master"] = {{"addr", plan.master.addr},
                     {"port", plan.master.port},
                     {"port_is_given", plan.master.port_is_given}};
  }
  if (plan.kind == agent::JobKind::elastic && plan.cluster.several())
    out["cluster"] = cluster(plan.cluster);
  if (plan.kind == agent::JobKind::deepspeed)
    out["deepspeed_env_file"] = deepspeed_env({plan.env.begin(), plan.env.end()}).lines;
  out["restart"] = restart(plan.restart);
  out["stop"] = stop(plan.stop);
  out["output"] = output(plan.output);
  out["report"] = text_or_null(plan.report_file);
  for (const auto& cores : plan.cores) out["cores"].push_back(cpu_list_text(cores));
  out["stdin_rank"] = plan.stdin_rank ? Json(plan.stdin_rank->value()) : Json{};
  out["warnings"] = plan.warnings;
  // Foreign bytes in a script's arguments need not be UTF-8.
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace acc::launcher
