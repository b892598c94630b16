#include "agent/daemon/api_routes.hpp"

#include "agent/control_protocol.hpp"
#include "agent/daemon/api_body.hpp"
#include "agent/daemon/api_event_stream.hpp"
#include "agent/daemon/api_json.hpp"
#include "agent/daemon/api_log_stream.hpp"
#include "agent/daemon/api_metrics.hpp"
#include "common/text.hpp"
#include "common/version.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;
using asio::awaitable;

namespace {

/// @param warning  empty: there is none
HttpReply accepted(const std::string& warning = {}) {
  return json_reply(202, warning.empty() ? "{}\n" : encode_warning(warning));
}

awaitable<HttpReply> submit(ApiContext& api, ApiCall call) {
  auto read = decode_submission(call.request.body);
  if (!read.is_right()) co_return refused(read.complaints);
  // The body's memory isn't needed while the job starts.
  call.request.body = std::string{};
  auto& wanted = read.value;
  if (wanted.launch && call.who.is_of_another_node()) {
    wanted.launch->key_id = call.who.key_id;
    const auto other = call.request.header("x-acc-version").value_or("");
    if (other != version())
      co_return refused_as(409, "version_differs",
                           "version " + std::string{version()} + " of acc-launch is installed on " +
                               api.jobs.node().name + ", and " + printable(other, 40) +
                               " on the node that starts the job: install the same on all");
  }
  if (wanted.only_checks) {
    const auto checked = co_await api.jobs.check(call.who, std::move(wanted));
    if (!checked) co_return failed(checked.error(), 400);
    co_return json_reply(200, encode_check(*checked));
  }
  auto id = co_await api.jobs.submit(call.who, std::move(read.value));
  if (!id) co_return failed(id.error(), 400);
  auto reply = json_reply(201, encode_submitted(*id));
  reply.headers.emplace_back("Location", "/v1/jobs/" + *id);
  co_return reply;
}

awaitable<HttpReply> list_jobs(ApiContext& api, ApiCall call) {
  HttpReply reply;
  reply.late_bytes = api.jobs.list(call.who).size() * kListedJobBytes;
  reply.late_body = [&jobs = api.jobs, who = call.who] { return encode_jobs(jobs.list(who)); };
  co_return reply;
}

/// What the agent is asked for: last_lines=1, gpus=1.
std::string status_request(const ApiCall& call) {
  std::string request{control::kStatusRequest};
  for (const std::string name : {"last_lines", "gpus"})
    if (call.query(name) == "1") request += ", \"" + name + "\": true";
  return request + "}";
}

awaitable<HttpReply> show_job(ApiContext& api, ApiCall call) {
  auto asking = std::make_shared<Asking>(api, call.who.quota_owner());
  if (!asking->is_granted()) co_return too_many_questions();
  const auto found = api.jobs.find(call.who, call.id);
  if (!found) co_return failed(found.error(), 400);
  JobDetails details;
  if (found->state == JobState::running || found->state == JobState::stopping) {
    auto request = status_request(call);
    const auto live = co_await api.jobs.control(call.who, call.id, std::move(request));
    if (live) details.live = *live;  // an agent that starts or ends has no socket
  }
  if (details.live.empty()) asking.reset();  // what it holds is small
  HttpReply reply;
  reply.late_bytes = kMostJobBytes + details.live.size();
  reply.late_body = [&jobs = api.jobs, job = *found, who = call.who, asking,
                     details = std::move(details)]() mutable {
    auto report = jobs.report(who, job.id);
    if (report)
      details.report = std::move(*report);
    else if (report.error().code != Errc::not_found)
      details.report_left_out = report.error().what;
    return encode_job(job, details);
  };
  co_return reply;
}

awaitable<HttpReply> stop_job(ApiContext& api, ApiCall call) {
  const auto grace = decode_stop(call.request.body);
  if (!grace.is_right()) co_return refused(grace.complaints);
  const auto done = co_await api.jobs.stop(call.who, call.id, grace.value);
  if (!done) co_return failed(done.error(), 409);
  co_return accepted(*done);
}

awaitable<HttpReply> signal_job(ApiContext& api, ApiCall call) {
  const auto signo = decode_signal(call.request.body);
  if (!signo.is_right()) co_return refused(signo.complaints);
  const auto done = co_await api.jobs.signal(call.who, call.id, signo.value);
  if (!done) co_return failed(done.error(), 409);
  co_return accepted();
}

awaitable<HttpReply> restart_job(ApiContext& api, ApiCall call) {
  const Asking asking{api, call.who.quota_owner()};
  if (!asking.is_granted()) co_return too_many_questions();
  const auto done = co_await api.jobs.restart(call.who, call.id);
  if (!done) co_return failed(done.error(), 409);
  co_return accepted();
}

awaitable<HttpReply> show_stacks(ApiContext& api, ApiCall call) {
  const Asking asking{api, call.who.quota_owner()};
  if (!asking.is_granted()) co_return too_many_questions();
  std::string request{control::kStacksRequest};
  const auto reply = co_await api.jobs.control(call.who, call.id, std::move(request));
  if (!reply) co_return failed(reply.error(), 409);
  const bool is_refused = reply->starts_with("{\"error\"");
  co_return json_reply(is_refused ? 409 : 200, *reply + "\n");
}

awaitable<HttpReply> remove_job(ApiContext& api, ApiCall call) {
  const auto done = co_await api.jobs.remove(call.who, call.id);
  if (!done) co_return failed(done.error(), 409);
  co_return json_reply(204, "");
}

awaitable<HttpReply> show_node(ApiContext& api, ApiCall call) {
  co_return json_reply(200, encode_node(api.jobs.node(), api.jobs.list(call.who)));
}

awaitable<HttpReply> drain(ApiContext& api, ApiCall call) {
  auto reason = decode_drain(call.request.body);
  if (!reason.is_right()) co_return refused(reason.complaints);
  const auto done = co_await api.jobs.drain(call.who, std::move(reason.value));
  if (!done) co_return failed(done.error(), 409);
  co_return accepted(*done);
}

awaitable<HttpReply> undrain(ApiContext& api, ApiCall call) {
  const auto done = co_await api.jobs.undrain(call.who);
  if (!done) co_return failed(done.error(), 409);
  co_return accepted();
}

awaitable<HttpReply> list_nodes(ApiContext& api, ApiCall call) {
  if (api.nodes == nullptr) co_return refused(503, "other nodes can't be asked");
  co_return co_await api.nodes->list(std::move(call.who));
}

awaitable<HttpReply> ask_node(ApiContext& api, ApiCall call) {
  if (api.nodes == nullptr) co_return refused(503, "other nodes can't be asked");
  co_return co_await api.nodes->pass_on(std::move(call.who), std::move(call.request));
}

// Only whom the kernel tells gets one: none comes from another, or from another node.
awaitable<HttpReply> issue_token(ApiContext& api, ApiCall call) {
  const auto wish = decode_token_wish(call.request.body);
  if (!wish.is_right()) co_return refused(wish.complaints);
  if (call.who.is_of_another_node() || call.who.has_token)
    co_return refused(403, "tokens are made over the unix socket of the node alone");
  if (api.tokens == nullptr)
    co_return refused(409,
                      "this acc-agent has no port that takes tokens: start it with --http "
                      "127.0.0.1:9180, or set \"http\" in its settings");
  const auto issued = api.tokens->issue(call.who, wish.value);
  if (!issued) co_return failed(issued.error(), 409);
  co_return json_reply(201, encode_token(*issued));
}

awaitable<HttpReply> health(ApiContext&, ApiCall) {
  HttpReply reply;
  reply.content_type = "text/plain; charset=utf-8";
  reply.body = "ok\n";
  co_return reply;
}

constexpr auto kEvery = MayCall::every_user;
constexpr auto kOperators = MayCall::operators;

/// Whatever the daemon there answers, and why it doesn't.
constexpr std::string_view kOfAnotherNode =
    "201 202 204 401 403 404 405 409 411 415 416 429 502 504";

constexpr std::array kRoutes{
    Route{"POST", "/v1/jobs", kEvery, BodyUse::required, "", 201, "200 403 409 411 415 429",
          submit},
    Route{"GET", "/v1/jobs", kEvery, BodyUse::none, "", 200, "", list_jobs},
    Route{"GET", "/v1/jobs/{id}", kEvery, BodyUse::none, "last_lines gpus", 200, "404", show_job},
    Route{"DELETE", "/v1/jobs/{id}", kEvery, BodyUse::none, "", 204, "403 404 409", remove_job},
    Route{"POST", "/v1/jobs/{id}/stop", kEvery, BodyUse::optional, "", 202, "403 404 409 415",
          stop_job},
    Route{"POST", "/v1/jobs/{id}/signal", kEvery, BodyUse::required, "", 202, "403 404 409 411 415",
          signal_job},
    Route{"POST", "/v1/jobs/{id}/restart", kEvery, BodyUse::none, "", 202, "403 404 409 429",
          restart_job},
    Route{"POST", "/v1/jobs/{id}/stacks", kEvery, BodyUse::none, "", 200, "403 404 409",
          show_stacks},
    Route{"GET", "/v1/jobs/{id}/logs", kEvery, BodyUse::none,
          "stream rank follow since format from", 200, "404 416", serve_logs},
    Route{"GET", "/v1/events", kEvery, BodyUse::none, "follow", 200, "", serve_events},
    Route{"GET", "/v1/node", kEvery, BodyUse::none, "", 200, "", show_node},
    Route{"POST", "/v1/node/drain", kOperators, BodyUse::required, "", 202, "403 409 411 415",
          drain},
    Route{"POST", "/v1/node/undrain", kOperators, BodyUse::none, "", 202, "403 409", undrain},
    Route{"GET", "/v1/nodes", kEvery, BodyUse::none, "", 200, "403", list_nodes},
    Route{"GET", "/v1/nodes/{node}/{path}", kEvery, BodyUse::none, kAnyQuery, 200, kOfAnotherNode,
          ask_node},
    Route{"POST", "/v1/nodes/{node}/{path}", kEvery, BodyUse::optional, kAnyQuery, 200,
          kOfAnotherNode, ask_node},
    Route{"DELETE", "/v1/nodes/{node}/{path}", kEvery, BodyUse::none, kAnyQuery, 200,
          kOfAnotherNode, ask_node},
    Route{"POST", "/v1/token", kEvery, BodyUse::optional, "", 201, "403 409 415", issue_token},
    Route{"GET", "/metrics", kEvery, BodyUse::none, "", 200, "", serve_metrics},
    Route{"GET", "/healthz", kEvery, BodyUse::none, "", 200, "", health},
};

/// True, and the {id}, if the path has this form.
bool fits(std::string_view pattern, const std::vector<std::string>& segments, JobId& id) {
  const auto parts = split(pattern.substr(1), '/');
  const bool has_rest = parts.back() == "{path}";
  if (has_rest ? segments.size() < parts.size() : parts.size() != segments.size()) return false;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == "{id}") {
      id = segments[i];
    } else if (parts[i] == "{node}" || parts[i] == "{path}") {
      continue;
    } else if (parts[i] != segments[i]) {
      return false;
    }
  }
  return true;
}

bool is_json(std::string_view content_type) {
  return to_lower(trim(content_type.substr(0, content_type.find(';')))) == "application/json";
}

/// What is wrong with the request whatever the route does with it.
std::optional<HttpReply> refusal_of(const ApiContext& api, const Route& route, Principal who,
                                    const HttpRequest& request) {
  if (route.may_call == MayCall::operators && who.uid != 0 && who.uid != api.own)
    return refused(403, "only root and the user of the daemon may do this");
  if (route.body == BodyUse::required && !request.header("content-length") &&
      !request.header("transfer-encoding"))
    return refused(411, "a body of JSON is needed, with its Content-Length");
  if (!request.body.empty()) {
    if (route.body == BodyUse::none) return refused(400, "this takes no body");
    if (const auto type = request.header("content-type"); type && !is_json(*type))
      return refused(415, "the body must be application/json, not " + in_quotes(*type, 80) +
                              ": curl --json, or -H 'Content-Type: application/json'");
  }
  std::vector<std::string> complaints;
  const auto known = split(route.queries, ' ');
  for (const auto& [name, value] : request.query) {
    if (route.queries == kAnyQuery) break;
    if (!name.empty() && std::ranges::find(known, name) != known.end()) continue;
    complaints.push_back(printable(name, 60) + ": is no name of this query" +
                         (route.queries.empty() ? std::string{": there are none"}
                                                : "; there are " + join(known, ", ")));
  }
  if (!complaints.empty()) return refused(complaints);
  return std::nullopt;
}

/// What can't be an id is not found: no path goes beyond this.
bool is_id(std::string_view id) {
  const auto is_first = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  constexpr std::size_t kLongest = 80;
  return !id.empty() && id.size() <= kLongest && is_first(id[0]) &&
         std::ranges::all_of(
             id, [&](char c) { return is_first(c) || c == '.' || c == '_' || c == '-'; });
}

}  // namespace

std::span<const Route> routes() { return kRoutes; }

RouteMatch match(std::string_view method, const std::vector<std::string>& segments) {
  RouteMatch found;
  for (const auto& route : kRoutes) {
    JobId id;
    if (!fits(route.path, segments, id)) continue;
    if (route.method == method || (method == "HEAD" && route.method == "GET"))
      return {&route, std::move(id), {}};
    found.allowed += (found.allowed.empty() ? "" : ", ") + std::string{route.method};
    if (route.method == "GET") found.allowed += ", HEAD";
  }
  return found;
}

awaitable<HttpReply> answer(ApiContext& api, Principal who, HttpRequest request) {
  auto found = match(request.method, request.segments);
  if (found.route == nullptr && found.allowed.empty())
    co_return refused(404, "there is no " + in_quotes(request.target, 200));
  if (found.route == nullptr) {
    auto reply = refused(405, in_quotes(request.target, 200) + " has no method " +
                                  printable(request.method, 40) + ", but " + found.allowed);
    reply.headers.emplace_back("Allow", found.allowed);
    co_return reply;
  }
  if (auto refusal = refusal_of(api, *found.route, who, request)) co_return std::move(*refusal);
  const bool has_id = found.route->path.find("{id}") != std::string_view::npos;
  if (has_id && !is_id(found.id))
    co_return refused(404, "there is no job " + in_quotes(found.id, 100));
  ApiCall call{who, std::move(request), std::move(found.id)};
  auto reply = co_await found.route->handle(api, std::move(call));
  co_return reply;
}

}  // namespace acc::agent::daemon
