#pragma once

#include "common/alive.hpp"
#include "common/duration.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace acc::agent::daemon {

/// Which uids have a share of the server of their own: root, the daemon's user, and those with an
/// account. One person may have thousands of others (/etc/subuid): those share one. What is known
/// of an account is kept; that there is none, for seconds.
class QuotaOwners {
 public:
  /// May ask a directory server, and block; called on a thread, one at a time.
  using HasAccount = std::function<bool(uid_t)>;
  static constexpr Millis kQuiet{60'000};  ///< between two lines of the log about threads

  /// May throw where the machine has no thread left.
  using MakePool = std::function<std::unique_ptr<boost::asio::thread_pool>()>;
  QuotaOwners(boost::asio::io_context& io, uid_t own, HasAccount has_account,
              MakePool make_pool = one_thread);
  /// Waits for a look-up that is under way.
  ~QuotaOwners();
  QuotaOwners(const QuotaOwners&) = delete;
  QuotaOwners& operator=(const QuotaOwners&) = delete;

  /// Tells whether it has an account: at once, or later on the loop. Beyond kMostUids that are
  /// being looked up, or kMostWaiting questions about them, and while no thread is to be had, it is
  /// taken to have none.
  void find(uid_t uid, std::function<void(bool has_account)> told);

  static constexpr std::size_t kMostUids = 64;
  static constexpr std::size_t kMostWaiting = 1024;
  static constexpr std::size_t kMostWaitingOfOne = 256;  ///< as many as a user may have

 private:
  static std::unique_ptr<boost::asio::thread_pool> one_thread();
  [[nodiscard]] bool has_pool();
  void tell_shortage(const char* why);
  void found(uid_t uid, bool has_account);

  boost::asio::io_context& io_;
  uid_t own_;
  HasAccount has_account_;
  MakePool make_pool_;
  std::set<uid_t> with_;
  std::map<uid_t, Instant> without_;  ///< until
  std::map<uid_t, std::vector<std::function<void(bool)>>> waiting_;
  std::size_t waiting_count_ = 0;
  std::unique_ptr<boost::asio::thread_pool> pool_;  ///< while there is something to look up
  Instant next_line_ = Instant::min();
  std::size_t not_logged_ = 0;
  Alive alive_;
};

}  // namespace acc::agent::daemon
