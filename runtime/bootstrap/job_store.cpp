#include "runtime/bootstrap/tcp_store.hpp"
#include "runtime/fork.hpp"

#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

namespace acc::runtime {

namespace {

/// The open stores of this process, by place, job and rank.
class Registry {
 public:
  /// Not destroyed at the end: other ranks may need rank 0's store until its process ends.
  static Registry& one() { return only_of_process<Registry>(); }

  std::shared_ptr<Store> open(const TcpStorePlace& place, Deadline deadline) {
    const auto key = describe(place) + "\n" + place.job + "\n" + std::to_string(place.rank);
    std::unique_lock lock{mutex_};
    Entry& entry = entries_[key];  // never removed: the reference stays valid
    wait_for_opener(lock, entry, place, deadline);
    if (entry.store) return entry.store;
    entry.opening = true;
    lock.unlock();
    std::shared_ptr<Store> opened;
    try {
      opened = open_tcp_store(place, deadline);
    } catch (...) {
      settle(entry, nullptr);
      throw;
    }
    settle(entry, opened);
    return opened;
  }

 private:
  struct Entry {
    std::shared_ptr<Store> store;
    bool opening = false;
  };

  // Another thread of this process may be opening the same store, with another time limit.
  void wait_for_opener(std::unique_lock<std::mutex>& lock, Entry& entry, const TcpStorePlace& place,
                       Deadline deadline) {
    const auto opened = [&] { return !entry.opening; };
    if (deadline == Deadline::max())
      changed_.wait(lock, opened);
    else if (!changed_.wait_until(lock, deadline, opened))
      throw Error{ErrorCode::timed_out, "another thread of rank " + std::to_string(place.rank) +
                                            " still looks for the store at " + describe(place)};
    // A process may outlive its rank 0 and join a later job at the same place.
    if (entry.store && !answers(*entry.store)) entry.store.reset();
  }

  static bool answers(Store& store) {
    try {
      (void)store.peek("acc/present");
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  void settle(Entry& entry, std::shared_ptr<Store> store) {
    const std::lock_guard lock{mutex_};
    entry.store = std::move(store);
    entry.opening = false;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Entry> entries_;
};

}  // namespace

std::shared_ptr<Store> job_store(const TcpStorePlace& place, Deadline deadline) {
  return Registry::one().open(place, deadline);
}

}  // namespace acc::runtime
