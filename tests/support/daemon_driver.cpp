// Drives a JobService for a test: a JSON object a line in, one out for each, and one for each event.
//   {"do": "submit", "n": 1, "uid": 1001, "words": […], …}  →  {"n": 1, "ok": "job-k3jd82"}
// daemon_driver STATE LAUNCHER [JOB_FILES] [max_ended]. It ends at the end of its input; jobs live on.
#include "agent/daemon/job_record.hpp"
#include "agent/daemon/job_service.hpp"
#include "common/duration.hpp"
#include "common/log.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <nlohmann/json.hpp>

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <istream>

using namespace acc;
using namespace acc::agent::daemon;
using Json = nlohmann::json;
using boost::asio::awaitable;

static PruneRules prune_rules;

static void say(const Json& json) {
  const std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) std::exit(1);
}

template <class T>
static Json to_json(const Result<T>& result) {
  if (result.has_error())
    return {{"error", result.error().what}, {"code", static_cast<int>(result.error().code)}};
  if constexpr (std::is_void_v<T>) return {{"ok", true}};
  else return {{"ok", *result}};
}

static Json to_json(const JobRecord& job) {
  return {{"id", job.id}, {"uid", job.uid}, {"state", name_of(job.state)}, {"reason", job.reason},
          {"exit_code", job.exit_code ? Json(*job.exit_code) : Json(nullptr)}, {"pid", job.pid},
          {"starts", job.starts}, {"gpus", job.gpus}, {"ended_ms", job.ended_ms},
          {"env", job.submission->env}, {"name", job.submission->name}};
}

static Json read_output(const Result<UniqueFd>& fd) {
  if (fd.has_error()) return {{"error", fd.error().what}, {"code", static_cast<int>(fd.error().code)}};
  std::string text(65536, '\0');
  const auto n = ::read(fd->get(), text.data(), text.size());
  return {{"ok", text.substr(0, n > 0 ? static_cast<std::size_t>(n) : 0)}};
}

static Submission submission_of(const Json& in) {
  Submission job;
  job.name = in.value("name", "");
  job.words = in.value("words", std::vector<std::string>{});
  job.working_directory = in.value("cwd", "/");
  job.env = in.value("env", std::map<std::string, std::string>{});
  job.user = in.value("user", "");
  job.slots = in.value("slots", 1U);
  job.names_slots = !in.value("slots_of_plan", false);
  job.gpus = in.value("gpus", 0U);
  job.wait = in.value("wait", false);
  const std::string rule = in.value("restart", "no");
  job.restart = rule == "always" ? RestartRule::always : rule == "on-failure" ? RestartRule::on_failure : RestartRule::no;
  job.max_starts_again = in.value("max", 0U);
  if (in.contains("launch")) {
    job.launch.emplace();
    job.launch->id = in["launch"];
  }
  return job;
}

static awaitable<void> answer(JobService& jobs, Json in) {
  const Principal who{in.value("uid", ::geteuid()), in.value("uid", ::geteuid())};
  const std::string what = in.value("do", "");
  const std::string id = in.value("id", "");
  Json out;
  std::optional<std::uint32_t> grace;
  if (in.contains("grace")) grace = in["grace"].get<std::uint32_t>();
  if (what == "submit") out = to_json(co_await jobs.submit(who, submission_of(in)));
  else if (what == "stop") out = to_json(co_await jobs.stop(who, id, grace));
  else if (what == "signal") out = to_json(co_await jobs.signal(who, id, in.value("signo", 0)));
  else if (what == "restart") out = to_json(co_await jobs.restart(who, id));
  else if (what == "remove") out = to_json(co_await jobs.remove(who, id));
  else if (what == "drain") out = to_json(co_await jobs.drain(who, in.value("reason", "")));
  else if (what == "undrain") out = to_json(co_await jobs.undrain(who));
  else if (what == "reload") out = to_json(co_await jobs.reload(prune_rules));
  else if (what == "control") out = to_json(co_await jobs.control(who, id, in.value("request", "")));
  else if (what == "report") out = to_json(jobs.report(who, id));
  else if (what == "log") {
    OutputChoice choice{in.value("stderr", false), std::nullopt};
    if (in.contains("rank")) choice.local_rank = in["rank"].get<std::uint32_t>();
    out = read_output(jobs.open_output(who, id, choice));
  } else if (what == "find") {
    const auto job = jobs.find(who, id);
    out = job.has_error() ? to_json(Result<void>{job.error()}) : Json{{"ok", to_json(*job)}};
  } else if (what == "list") {
    out["ok"] = Json::array();
    for (const auto& job : jobs.list(who)) out["ok"].push_back(to_json(job));
  } else if (what == "events") {
    out["ok"] = Json::array();
    for (const auto& event : jobs.events_after(who, in.value("after", std::uint64_t{0})))
      out["ok"].push_back({{"number", event.number}, {"job", event.job}, {"kind", event.kind}, {"text", event.text}});
  } else if (what == "node") {
    const auto node = jobs.node();
    out["ok"] = {{"slots", node.slots}, {"free", node.slots_free}, {"gpus_free", node.gpus_free}, {"drained", node.drained}};
  }
  out["n"] = in.value("n", 0);
  say(out);
}

// As the daemon does: one that was killed may hold its lock for a moment, by a child before its
// exec.
static void try_again_for(Millis patience, char** argv) {
  const auto now = std::chrono::duration_cast<Millis>(clock_now().time_since_epoch());
  const char* until = std::getenv("ACC_DRIVER_UNTIL");
  if (until == nullptr)
    ::setenv("ACC_DRIVER_UNTIL", std::to_string((now + patience).count()).c_str(), 1);
  if (until != nullptr && now.count() > std::strtoll(until, nullptr, 10)) return;
  ::poll(nullptr, 0, 50);
  ::execv("/proc/self/exe", argv);
}

static awaitable<void> serve(boost::asio::io_context& io, JobService& jobs, char** argv) {
  auto started = co_await jobs.start();
  if (started) started = co_await jobs.reload(prune_rules);
  if (started.has_error()) {
    if (started.error().code == Errc::unavailable) try_again_for(Millis{5'000}, argv);
    say({{"failed", started.error().what}});
    std::exit(1);
  }
  say({{"ready", ::getpid()}});
  boost::asio::posix::stream_descriptor input{io, ::dup(STDIN_FILENO)};
  boost::asio::streambuf buffer;
  boost::system::error_code error;
  for (;;) {
    co_await boost::asio::async_read_until(input, buffer, '\n', boost::asio::redirect_error(boost::asio::use_awaitable, error));
    if (error) break;
    std::istream lines{&buffer};
    std::string line;
    std::getline(lines, line);
    boost::asio::co_spawn(io, answer(jobs, Json::parse(line)), [](const std::exception_ptr& failed) {
      if (failed) std::rethrow_exception(failed);
    });
  }
  jobs.close();
  io.stop();
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  log::set_level(log::Level::warn);
  boost::asio::io_context io{1};
  ServiceSettings settings;
  settings.state_folder = argv[1];
  settings.launcher = argv[2];
  if (argc > 3) settings.job_files = argv[3];
  if (argc > 4) prune_rules.max_ended = std::strtoul(argv[4], nullptr, 10);
  settings.prune = prune_rules;
  settings.slots = 8;
  settings.gpus = {0, 1, 2, 3};
  settings.launch_secret = [](const std::string&, Launch&) { return rendezvous::SecretBytes{}; };
  JobService jobs{io, settings};
  const auto events = jobs.on_event([](const JobEvent& event) {
    say({{"event", event.kind}, {"number", event.number}, {"job", event.job}, {"text", event.text}});
  });
  boost::asio::co_spawn(io, serve(io, jobs, argv), boost::asio::detached);
  io.run();
}
