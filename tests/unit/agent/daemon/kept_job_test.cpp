#include "agent/daemon/kept_job.hpp"

#include <catch2/catch.hpp>

#include <memory>

using namespace acc::agent::daemon;

TEST_CASE("a job's end shows when it is recorded and its slots are free", "[daemon]") {
  boost::asio::io_context io{1};
  StoredJob stored;
  stored.id = "train-x1";
  stored.life.phase = Phase::ended;
  stored.life.end = JobState::failed;
  stored.life.exit_code = 7;
  stored.life.reason = "exited with code 7";
  stored.ended_ms = 12;
  Job job{io, stored};
  job.is_busy = true;
  const auto before = record_of(job);
  CHECK(before.state == JobState::running);
  CHECK_FALSE(before.exit_code);
  CHECK(before.reason.empty());
  CHECK(before.ended_ms == 0);
  job.stored.life.stop_asked = true;
  CHECK(record_of(job).state == JobState::stopping);
  job.is_busy = false;
  const auto after = record_of(job);
  CHECK(after.state == JobState::failed);
  CHECK(after.exit_code == 7);
  CHECK(after.ended_ms == 12);
}

TEST_CASE("a job that a drained node holds back was said to be tried again at once", "[daemon]") {
  boost::asio::io_context io{1};
  StoredJob stored;
  stored.id = "train-x1";
  stored.life.phase = Phase::delayed;
  stored.life.reason = "waits for its start; this node is drained: by hand";
  Job job{io, stored};
  job.delay.expires_after(Delay{0});
  CHECK(record_of(job).reason == stored.life.reason);
  job.delay.expires_after(std::chrono::hours{1});
  CHECK_THAT(record_of(job).reason, Catch::Contains("; tried again in 3"));
}

TEST_CASE("a job whose folder is being removed is found no more", "[daemon]") {
  boost::asio::io_context io{1};
  StoredJob stored;
  stored.id = "train-x1";
  const JobTable jobs{{"train-x1", std::make_shared<Job>(io, stored)}};
  CHECK(find_job(jobs, "train-x1"));
  CHECK_FALSE(find_job(jobs, "train-x2"));
  jobs.begin()->second->is_leaving = true;
  CHECK_FALSE(find_job(jobs, "train-x1"));
}
