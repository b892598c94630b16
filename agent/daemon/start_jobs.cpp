#include "agent/daemon/start_jobs.hpp"

#include "agent/daemon/cluster_secret.hpp"
#include "agent/daemon/job_service.hpp"
#include "agent/descriptor_limit.hpp"

#include <boost/asio/co_spawn.hpp>

#include <unistd.h>

#include <exception>
#include <memory>
#include <optional>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;

namespace {

PruneRules prune_rules(const Settings& settings) {
  PruneRules rules;
  rules.max_age_ms = settings.prune_age.count();
  rules.max_ended = settings.prune_jobs;
  return rules;
}

}  // namespace

Result<JobsRun> start_job_service(asio::io_context& io, const Settings& settings) {
  static const DescriptorLimit descriptors;  // of the process
  ServiceSettings service;
  service.state_folder = settings.state_dir;
  service.launcher = settings.launch;
  service.job_files = settings.jobs_dir;
  service.slots = settings.slots.value_or(0);
  service.gpus = settings.gpus;
  service.prune = prune_rules(settings);
  service.nofile = descriptors.before();
  const auto cluster = std::make_shared<ClusterSecret>(settings.secret_file, ::geteuid() == 0);
  service.launch_secret = [cluster](const std::string& user,
                                    Launch& launch) -> Result<rendezvous::SecretBytes> {
    const auto secret = cluster->secret();
    if (!secret) return secret.error();
    // Kept: also a later start takes it, when the file's first key is another by then.
    if (launch.key_id.empty()) launch.key_id = (*secret)->keys.front().id;
    return launch_secret(**secret, launch.key_id, user, launch.id);
  };
  auto jobs = std::make_unique<JobService>(io, std::move(service));
  std::optional<Result<void>> started;
  asio::co_spawn(io, jobs->start(), [&](std::exception_ptr failed, Result<void> done) {
    if (failed) std::rethrow_exception(failed);
    started = std::move(done);
  });
  while (!started) io.run_one();
  if (!*started) return started->error();
  auto* const service_of_run = jobs.get();  // lives as long as the run
  return JobsRun{
      std::move(jobs),
      [service_of_run](Settings fresh) { return service_of_run->reload(prune_rules(fresh)); },
      [service_of_run] { service_of_run->close(); }};
}

}  // namespace acc::agent::daemon
