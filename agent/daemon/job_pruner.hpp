#pragma once

#include "agent/daemon/event_log.hpp"
#include "agent/daemon/job_folder.hpp"
#include "agent/daemon/kept_job.hpp"
#include "agent/daemon/prune_rules.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace acc::agent::daemon {

/// Removes ended jobs: the one that a call asks for, and those that the prune rules find. Their
/// folders are moved away at once, and deleted by and by.
class JobPruner {
 public:
  /// All outlive this.
  struct Parts {
    boost::asio::io_context& io;
    boost::asio::thread_pool& files;  ///< keeps the order of what is written
    StateFolder& folder;
    EventLog& events;
    JobTable& jobs;
    std::function<void(const char* what, boost::asio::awaitable<void>)> spawn;
  };
  JobPruner(const Parts& parts, const PruneRules& rules);
  /// Waits for what is being measured or deleted.
  ~JobPruner();
  JobPruner(const JobPruner&) = delete;
  JobPruner& operator=(const JobPruner&) = delete;

  void set_rules(const PruneRules& rules);
  /// Applies the rules soon, and again when the next job is too old.
  void prune_later();
  /// Of an ended job.
  boost::asio::awaitable<Result<void>> drop(JobPtr job);
  /// Deletes what was moved away.
  void empty_trash_later();
  /// Nothing begins any more.
  void close();

 private:
  boost::asio::awaitable<void> prune();
  /// @return when to look again, by the wall clock; nothing: not before another job ends
  boost::asio::awaitable<std::optional<std::int64_t>> prune_all();
  boost::asio::awaitable<std::vector<EndedJob>> ended_jobs();
  boost::asio::awaitable<std::vector<StateFolder::Trash>> trash(boost::asio::thread_pool& pool);
  boost::asio::awaitable<void> empty_trash();
  void empty_trash_of(uid_t uid);
  boost::asio::awaitable<void> remove_all_of(uid_t uid);
  boost::asio::awaitable<void> remove_folders_of(uid_t uid);
  /// For what may take long. Made when needed, and gone when nothing waits for it.
  enum class Slow : std::uint8_t { counting, removing };
  boost::asio::thread_pool& slow(Slow what);

  Parts parts_;
  PruneRules rules_;
  boost::asio::steady_timer timer_;
  bool is_pruning_ = false;
  bool is_closed_ = false;
  std::map<uid_t, bool> removing_;  ///< users whose folders are being deleted; true: more came
  std::map<Slow, boost::asio::thread_pool> slow_;
};

}  // namespace acc::agent::daemon
