#include "agent/daemon/api_metrics.hpp"

#include "agent/daemon/api_file_growth.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <string>

#include "fake_jobs.hpp"

using namespace acc::agent::daemon;
using Catch::Matchers::Contains;

namespace {

constexpr std::string_view kStatus =
    R"({"round": 3, "restarts": 2, "workers": [{"state": "running", "rss_bytes": 100, "cpu_s": 0.5},
        {"state": "running", "rss_bytes": 50, "cpu_s": 0.25}, {"state": "exited", "rss_bytes": null, "cpu_s": null}]})";

}  // namespace

TEST_CASE("an agent's status becomes a job's figures", "[daemon][metrics]") {
  const auto figures = figures_of("t-1", kStatus);
  REQUIRE(figures);
  CHECK(figures->round == 3);
  CHECK(figures->restarts == 2);
  CHECK(figures->running == 2);
  CHECK(figures->exited == 1);
  CHECK(figures->rss_bytes == 150);
  CHECK(figures->cpu_s == 0.75);
  for (const auto* wrong : {"", "[]", "{", R"({"workers": 1})", R"({"error": "the job is over"})"})
    CHECK(!figures_of("t-1", wrong));
  const auto odd =
      figures_of("t-1", R"({"workers": [1, {}, {"state": 7}, {"state": "starting"}]})");
  REQUIRE(odd);
  CHECK(odd->running + odd->exited == 0);
}

TEST_CASE("a job's progress is that of its slowest rank here", "[daemon][metrics]") {
  constexpr std::string_view kTraining =
      R"({"goodput": {"share": 0.75, "seconds_waiting": 1, "seconds_restarting": 24, "seconds_lost_work": null},
          "workers": [{"state": "running", "step": 9, "steps_per_second": 2.5, "seconds_since_heartbeat": 0.5},
                      {"state": "running", "step": 8, "steps_per_second": null, "seconds_since_heartbeat": 4},
                      {"state": "exited", "step": 1, "seconds_since_heartbeat": 900}]})";
  const auto text =
      encode_metrics({}, {}, {*figures_of("t-1", kTraining), *figures_of("t-2", kStatus)}, 0);
  CHECK_THAT(text, Contains("acc_daemon_job_step{job=\"t-1\"} 8\n"));
  CHECK_THAT(text, Contains("acc_daemon_job_steps_per_second{job=\"t-1\"} 2.5\n"));
  CHECK_THAT(text, Contains("acc_daemon_job_heartbeat_age_seconds{job=\"t-1\"} 4\n"));
  CHECK_THAT(text, Contains("acc_daemon_job_goodput_ratio{job=\"t-1\"} 0.75\n"));
  CHECK_THAT(text,
             Contains("acc_daemon_job_lost_seconds_total{job=\"t-1\",cause=\"restarts\"} 24\n"));
  CHECK_THAT(text, !Contains("lost_steps\""));
  CHECK_THAT(text, !Contains("acc_daemon_job_step{job=\"t-2\""));
  CHECK_THAT(text, !Contains("acc_daemon_job_goodput_ratio{job=\"t-2\""));
}

TEST_CASE("the daemon's metrics count jobs by state, slots and GPUs", "[daemon][metrics]") {
  NodeFacts node;
  node.version = "1.0";
  node.slots = 8;
  node.slots_free = 3;
  node.drained = "by hand";
  JobRecord running;
  running.id = "t-1";
  running.state = JobState::running;
  running.starts = 2;
  JobRecord failed;
  failed.id = "t-2";
  failed.state = JobState::failed;
  const auto text = encode_metrics(node, {running, failed}, {*figures_of("t-1", kStatus)}, 0);
  CHECK_THAT(text, Contains("acc_daemon_jobs{state=\"running\"} 1\n"));
  CHECK_THAT(text, Contains("acc_daemon_jobs{state=\"failed\"} 1\n"));
  CHECK_THAT(text, Contains("acc_daemon_jobs{state=\"waiting\"} 0\n"));
  CHECK_THAT(text, Contains("acc_daemon_slots{state=\"taken\"} 5\n"));
  CHECK_THAT(text, Contains("acc_daemon_drained 1\n"));
  CHECK_THAT(text, Contains("acc_daemon_job_starts_total{job=\"t-1\"} 2\n"));
  CHECK_THAT(text, !Contains("job=\"t-2\""));
  CHECK_THAT(text, Contains("acc_daemon_job_workers{job=\"t-1\",state=\"exited\"} 1\n"));
}

namespace {

struct SlowJobs : FakeJobs {
  SlowJobs() : FakeJobs{"/nonexistent"} {}
  Wait<std::string> control(Principal, JobId, std::string) override {
    most = std::max(most, ++open);
    boost::asio::steady_timer pause{co_await boost::asio::this_coro::executor,
                                    std::chrono::milliseconds{1}};
    co_await pause.async_wait(boost::asio::use_awaitable);
    --open;
    ++answered;
    co_return std::string{kStatus};
  }
  int open = 0;
  int most = 0;
  int answered = 0;
};

}  // namespace

TEST_CASE("few jobs of a user are asked at once, by all requests together", "[daemon][metrics]") {
  SlowJobs jobs;
  for (int i = 0; i < 20; ++i) {
    JobRecord job;
    job.id = "t-" + std::to_string(i);
    job.state = JobState::running;
    jobs.jobs[job.id] = job;
  }
  boost::asio::io_context io;
  FileGrowth growth{io};
  ApiContext api{jobs, growth};
  int replies = 0;
  for (int i = 0; i < 3; ++i)
    boost::asio::co_spawn(io, serve_metrics(api, ApiCall{}),
                          [&](const std::exception_ptr& failed, const HttpReply& reply) {
                            CHECK_FALSE(failed);
                            CHECK(reply.status == 200);
                            if (++replies == 3) io.stop();
                          });
  io.run_for(std::chrono::seconds{20});
  CHECK(replies == 3);
  CHECK(jobs.most == 8);
  CHECK(jobs.answered >= 20);
}
