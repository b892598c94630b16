#include "launcher/ctl/bridge_requests.hpp"

#include "common/exit_status.hpp"
#include "common/json_bytes.hpp"
#include "launcher/ctl/job_list.hpp"

#include <nlohmann/json.hpp>

#include <utility>

namespace acc::ctl {

using Json = nlohmann::json;

namespace {

std::string at_node(const BridgeWish& wish, const std::string& path) {
  return node_prefix(wish.node) + path;
}

std::string of_bridged_job(const BridgeWish& wish, const std::string& job,
                           const std::string& rest = {}) {
  return at_node(wish, "/v1/jobs/" + job + rest);
}

std::string stream_target(const BridgeWish& wish, const std::string& job, const std::string& stream,
                          const std::string& from) {
  return of_bridged_job(wish, job, "/logs?stream=" + stream + "&format=raw&follow=1&from=" + from);
}

std::string submission_of(const BridgeWish& wish, const BridgeContext& context, bool only_checks) {
  auto env = Json::object();
  for (const auto& [name, value] : context.variables) env[name] = json_text_of(value);
  Json body{{"name", bridge_job_name(wish)},
            {"words", json_texts_of(wish.words)},
            {"working_directory", json_text_of(context.folder)},
            {"env", std::move(env)},
            {"umask", wish.umask},
            {"wait", false}};
  if (wish.slots) body["slots"] = *wish.slots;
  if (wish.has_secret)
    body["launch"] = {{"id", wish.launch}, {"nodes", wish.nodes}, {"node_rank", wish.node_rank}};
  if (only_checks) body["check"] = true;
  return to_line(body);
}

}  // namespace

std::string bridge_job_name(const BridgeWish& wish) {
  return wish.launch + "." + std::to_string(wish.node_rank);
}

AskDaemon check_request(const BridgeWish& wish, const BridgeContext& context) {
  return {BridgeAsk::check, "POST", at_node(wish, "/v1/jobs"), submission_of(wish, context, true)};
}

AskDaemon submit_request(const BridgeWish& wish, const BridgeContext& context) {
  return {BridgeAsk::submit, "POST", at_node(wish, "/v1/jobs"),
          submission_of(wish, context, false)};
}

AskDaemon find_request(const BridgeWish& wish) {
  return {BridgeAsk::find, "GET", at_node(wish, "/v1/jobs")};
}

AskDaemon state_request(const BridgeWish& wish, const std::string& job) {
  return {BridgeAsk::state, "GET", of_bridged_job(wish, job)};
}

AskDaemon stop_request(const BridgeWish& wish, const std::string& job) {
  return {BridgeAsk::stop, "POST", of_bridged_job(wish, job, "/stop"), "{}"};
}

AskDaemon signal_request(const BridgeWish& wish, const std::string& job, int signo) {
  return {BridgeAsk::signal, "POST", of_bridged_job(wish, job, "/signal"),
          to_line(Json{{"signal", signal_name(signo)}})};
}

std::string output_target(const BridgeWish& wish, const std::string& job, bool is_err,
                          std::optional<std::uint64_t> from) {
  return stream_target(wish, job, is_err ? "stderr" : "stdout",
                       from ? std::to_string(*from) : "end");
}

std::string events_target(const BridgeWish& wish, const std::string& job, std::uint64_t from) {
  return stream_target(wish, job, "events", std::to_string(from));
}

}  // namespace acc::ctl
