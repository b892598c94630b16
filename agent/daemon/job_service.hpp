#pragma once

#include "agent/daemon/jobs.hpp"
#include "agent/daemon/service_settings.hpp"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace acc::agent::daemon {

/// The daemon's jobs: carries out what the machine of each job decides (job_machine.hpp). Jobs
/// outlive it; the next service on the same state folder finds them again.
class JobService : public Jobs {
 public:
  /// `io` runs on one thread, and outlives the service.
  JobService(boost::asio::io_context& io, ServiceSettings settings);
  ~JobService() override;
  JobService(const JobService&) = delete;
  JobService& operator=(const JobService&) = delete;

  /// Locks the state folder and finds the jobs again. Before any other call; reload() reads the job
  /// files.
  boost::asio::awaitable<Result<void>> start();
  /// Reads the job files anew, and takes what may change while it runs: prune rules.
  boost::asio::awaitable<Result<void>> reload(PruneRules prune);
  /// Takes no more jobs; those that run stay. After that the loop may end.
  void close();

  boost::asio::awaitable<Result<JobId>> submit(Principal who, Submission submission) override;
  boost::asio::awaitable<Result<CheckedSubmission>> check(Principal who,
                                                          Submission submission) override;
  boost::asio::awaitable<Result<std::string>> stop(Principal who, JobId id,
                                                   std::optional<std::uint32_t> grace_s) override;
  boost::asio::awaitable<Result<void>> signal(Principal who, JobId id, int signo) override;
  boost::asio::awaitable<Result<void>> restart(Principal who, JobId id) override;
  boost::asio::awaitable<Result<void>> remove(Principal who, JobId id) override;
  boost::asio::awaitable<Result<std::string>> drain(Principal who, std::string reason) override;
  boost::asio::awaitable<Result<void>> undrain(Principal who) override;
  boost::asio::awaitable<Result<std::string>> control(Principal who, JobId id,
                                                      std::string request) override;
  [[nodiscard]] std::vector<JobRecord> list(Principal who) const override;
  [[nodiscard]] Result<JobRecord> find(Principal who, const JobId& id) const override;
  [[nodiscard]] NodeFacts node() const override;
  [[nodiscard]] Result<UniqueFd> open_output(Principal who, const JobId& id,
                                             const OutputChoice& choice) const override;
  [[nodiscard]] Result<RankLog> find_rank_log(Principal who, const JobId& id,
                                              const RankLogChoice& choice) const override;
  [[nodiscard]] std::vector<UniqueFd> open_log_folders(Principal who,
                                                       const JobId& id) const override;
  [[nodiscard]] Result<std::string> report(Principal who, const JobId& id) const override;
  [[nodiscard]] std::vector<JobEvent> events_after(Principal who,
                                                   std::uint64_t number) const override;
  [[nodiscard]] Subscription on_event(std::function<void(const JobEvent&)> told) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace acc::agent::daemon
