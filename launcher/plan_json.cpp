#include "launcher/plan_json.hpp"

#include "common/enum_names.hpp"
#include "common/exit_status.hpp"
#include "launcher/coordinator_plan.hpp"
#include "launcher/core_binding.hpp"
#include "launcher/key_table.hpp"
#include "launcher/mode.hpp"
#include "launcher/setting_parsers.hpp"

#include <nlohmann/json.hpp>

#include <map>

namespace acc::launcher {

using namespace literals;
using Json = nlohmann::ordered_json;

namespace {

constexpr EnumNames<agent::JobKind, agent::JobKind::deepspeed> kKinds{
    {"process", "elastic", "mpirun", "deepspeed"}};
constexpr EnumNames<agent::Choice, agent::Choice::no> kChoices{{"auto", "yes", "no"}};
constexpr EnumNames<rendezvous::ServeSeed, rendezvous::ServeSeed::never> kHosting{
    {"must", "may", "never"}};
constexpr EnumNames<agent::Backend, agent::Backend::etcd> kBackends{{"static", "tcp", "etcd"}};
constexpr EnumNames<agent::ScaleUp, agent::ScaleUp::now> kScaleUp{{"next_round", "now"}};

double seconds(Millis time) { return static_cast<double>(time.count()) / 1e3; }

Json text_or_null(const std::string& text) { return text.empty() ? Json{} : Json(text); }

Json streams(const agent::StreamsPerRank& streams) {
  if (streams.some.empty()) return static_cast<int>(streams.all);
  Json out = Json::object();
  for (const auto& [rank, which] : streams.some)
    out[std::to_string(rank.value())] = static_cast<int>(which);
  return out;
}

/// torchrun's launch parameters.
Json launch(const JobSpec& spec, const agent::JobPlan& plan) {
  const auto& cluster = plan.cluster;
  const auto backend = cluster.standalone ? "c10d" : spec.text("rdzv_backend"_key);
  const auto rank = cluster.several() ? spec.integer("machine_rank"_key).value_or(0) : 0;
  std::map<std::string, Json> conf;
  if (const auto given = parse_rendezvous_conf(spec.text("rdzv_conf"_key)))
    conf.insert(given->begin(), given->end());
  if (backend == "static") conf["rank"] = rank;
  return {{"nnodes_min", cluster.nodes_min},
          {"nnodes_max", cluster.nodes_max},
          {"nproc_per_node", plan.local_world_size},
          {"node_rank", rank},
          {"standalone", cluster.standalone},
          {"rdzv_backend", backend},
          {"rdzv_endpoint", rendezvous_endpoint(spec, plan)},
          {"rdzv_id", cluster.job},
          {"rdzv_conf", conf.empty() ? Json::object() : Json(conf)},
          {"max_restarts", plan.restart.max_restarts},
          {"monitor_interval", plan.monitor_interval},
          {"role", plan.role},
          {"log_dir", text_or_null(plan.output.log_dir)},
          {"redirects", streams(plan.output.redirects)},
          {"tee", streams(plan.output.tee)},
          {"start_method", plan.start_method},
          {"pmi", plan.pmi}};
}

Json restart(const agent::JobPlan& plan) {
  const auto& policy = plan.restart;
  Json codes = Json::array();
  for (const auto& range : policy.never_retry) codes.push_back({range.first, range.last});
  return {{"max_restarts", policy.max_restarts},
          {"delay_s", seconds(policy.delay_base)},
          {"delay_max_s", seconds(policy.delay_max)},
          {"healthy_after_s", seconds(policy.healthy_after)},
          {"refill_after_s", seconds(policy.refill_after)},
          {"max_no_progress", policy.max_no_progress},
          {"progress_file", text_or_null(plan.progress_file)},
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

Json hang(const agent::HangPolicy& policy) {
  using Kind = agent::HangPolicy::Kind;
  return {{"timeout_s", policy.kind == Kind::fixed ? Json(seconds(policy.timeout)) : Json{}},
          {"is_learned", policy.kind == Kind::learned},
          {"first_step_s", policy.first_step ? Json(seconds(*policy.first_step)) : Json{}},
          {"stall_s", seconds(policy.stall)},
          {"stall_restarts", policy.stall_restarts}};
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
          {"capture", kChoices[plan.capture]},
          {"pty", plan.pty},
          {"output_patience_s", seconds(plan.patience)},
          {"color", kChoices[plan.color]},
          {"quiet", plan.quiet}};
}

Json cluster(const agent::Cluster& cluster) {
  Json facts = Json::object();
  for (const auto& fact : cluster.facts) facts[fact.name] = fact.value;
  return {{"backend", kBackends[cluster.backend]},
          {"job", cluster.job},
          {"wanted_rank", cluster.wanted ? Json(cluster.wanted->value()) : Json{}},
          {"node_name", text_or_null(cluster.node_name)},
          {"control_host", text_or_null(cluster.control_host)},
          {"control_port", cluster.control_port},
          {"hosting", kHosting[cluster.serve_seed]},
          {"address", text_or_null(cluster.address)},
          {"secret_file", text_or_null(cluster.secret_file)},
          {"insecure", cluster.insecure},
          {"loopback", cluster.loopback},
          {"join_timeout_s", seconds(cluster.join_timeout)},
          {"last_call_s", cluster.last_call ? Json(seconds(*cluster.last_call)) : Json{}},
          {"dead_after_s", seconds(cluster.timings.heartbeat_timeout)},
          {"lease_s", seconds(cluster.timings.lease)},
          {"clock_skew_s", seconds(cluster.clock_skew)},
          {"scale_up", kScaleUp[cluster.scale_up]},
          {"facts", facts},
          {"etcd_endpoints", cluster.etcd_endpoints},
          {"etcd_prefix", cluster.etcd_prefix},
          {"etcd_cacert", text_or_null(cluster.etcd_ca_file)},
          {"etcd_cert", text_or_null(cluster.etcd_cert_file)},
          {"etcd_key", text_or_null(cluster.etcd_key_file)},
          {"etcd_user_file", text_or_null(cluster.etcd_user_file)}};
}

}  // namespace

std::string plan_to_json(const JobSpec& spec, const agent::JobPlan& plan) {
  Json out;
  out["kind"] = kKinds[plan.kind];
  out["env"] = plan.env;
  if (plan.env.empty()) out["env"] = Json::object();
  out["command"] = plan.command;
  out["program_problem"] = text_or_null(plan.script_problem.what);
  if (plan.kind == agent::JobKind::elastic) out["launch"] = launch(spec, plan);
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
  out["restart"] = restart(plan);
  out["stop"] = stop(plan.stop);
  out["hang"] = hang(plan.hang);
  out["output"] = output(plan.output);
  out["share"] = {{"slots", plan.share.slots ? Json(*plan.share.slots) : Json{}},
                  {"gpus", plan.share.gpus}};
  out["events"] = text_or_null(plan.events_file);
  out["events_size"] = plan.events_size;
  out["health"] = {{"before_rounds", plan.health.before_rounds},
                   {"interval_s", seconds(plan.health.interval)},
                   {"timeout_s", seconds(plan.health.patience)},
                   {"command", text_or_null(plan.health.command)},
                   {"checkpoint_folder", text_or_null(plan.health.checkpoint_folder)}};
  out["preload"] = {{"modules", text_or_null(plan.preload.modules)},
                    {"timeout_s", seconds(plan.preload.patience)}};
  out["metrics"] = nullptr;
  if (plan.metrics) out["metrics"] = {{"host", plan.metrics->host}, {"port", plan.metrics->port}};
  out["report"] = text_or_null(plan.report_file);
  for (const auto& cores : plan.cores) out["cores"].push_back(cpu_list_text(cores));
  out["stdin_rank"] = plan.stdin_rank ? Json(plan.stdin_rank->value()) : Json{};
  out["warnings"] = plan.warnings;
  // Foreign bytes in a script's arguments need not be UTF-8.
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace acc::launcher
