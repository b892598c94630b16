#pragma once

#include "common/clocks.hpp"
#include "rendezvous/etcd_client.hpp"
#include "rendezvous/etcd_leadership.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <deque>
#include <exception>
#include <utility>

/// What the files of EtcdLeadership share. All coroutines hold the Impl, never the outer object.
namespace acc::rendezvous {

namespace etcd_detail {

namespace asio = boost::asio;

inline constexpr auto kResult = asio::as_tuple(asio::use_awaitable);
/// Of a request that nothing else limits.
inline constexpr Millis kRequestLimit{5'000};

/// The time as leader that one campaign won.
struct Tenure {
  explicit Tenure(const asio::any_io_executor& executor) : renewal{executor}, end{executor} {}
  Leader leader;
  std::string value;         ///< of the leader key, as written
  std::int64_t created = 0;  ///< revision of the leader key
  std::int64_t lease = 0;
  std::int64_t table_modified = 0;  ///< revision of the table that we know of
  Instant until;
  Instant renew_at;
  Instant boot_asked;  ///< by boot_now(), as the next: what counts where the machine was suspended
  Instant boot_until;
  bool is_over = false;
  asio::steady_timer renewal;
  asio::steady_timer end;
};
using TenurePtr = std::shared_ptr<Tenure>;

struct TableWrite {
  TenurePtr tenure;  ///< in which it was asked for; it's void in the next
  CommittedTable table;
  EtcdLeadership::Done<void> done;
};

inline EtcdOperation get(std::string key) {
  return {EtcdOperation::Kind::get, std::move(key), {}, 0};
}
inline EtcdOperation put(std::string key, std::string value, std::int64_t lease = 0) {
  return {EtcdOperation::Kind::put, std::move(key), std::move(value), lease};
}
inline EtcdOperation remove(std::string key) {
  return {EtcdOperation::Kind::remove, std::move(key), {}, 0};
}

}  // namespace etcd_detail

struct EtcdLeadership::Impl : std::enable_shared_from_this<Impl> {
  Impl(boost::asio::any_io_executor e, LeadershipPlan p, LeadershipEvents told);

  boost::asio::any_io_executor executor;
  LeadershipPlan plan;
  LeadershipEvents events;
  EtcdKeys keys;
  EtcdClient client;

  bool is_started = false;
  bool is_stopped = false;
  bool is_campaigning = false;
  bool is_troubled = false;
  std::string last_trouble;
  std::int64_t seen = 0;  ///< newest revision at which the leader key is known
  bool was_told = false;
  std::optional<Leader> known;
  etcd_detail::TenurePtr tenure;
  std::deque<etcd_detail::TableWrite> writes;  ///< the first is under way
  boost::asio::steady_timer watch_pause;
  boost::asio::steady_timer check_pause;

  /// "renew the lease of job 'j7'", limited by what is left.
  [[nodiscard]] EtcdCall call(std::string_view what, Instant deadline) const;
  /// How long a lease, counted from its sending, makes a leader.
  [[nodiscard]] Millis validity(std::int64_t granted_s) const;
  /// The conditions under which a tenure may still write.
  [[nodiscard]] std::vector<EtcdCompare> still_leads(const etcd_detail::Tenure& t) const;

  void start();
  void stop();
  /// What the leader key held at `revision`.
  void settle(std::int64_t revision, const std::optional<EtcdEntry>& entry);
  /// The same after a read that was asked for when `seen` was `seen_before`.
  void settle_read(std::int64_t seen_before, const EtcdRead& read);
  void begin(etcd_detail::TenurePtr t);
  void lose(const etcd_detail::TenurePtr& t, std::string why);
  /// Ends the tenure without a word to the owner.
  void leave(const etcd_detail::TenurePtr& t);
  void arm_end(const etcd_detail::TenurePtr& t);
  void revoke_later(std::int64_t lease);
  void write_tables();
  void note_trouble(const Error& error);
  void note_answer();

  /// Runs `work` and hands its result to `done`, never from within the call that started it.
  template <class T>
  void deliver(boost::asio::awaitable<Result<T>> work, Done<T> done) {
    const auto self = shared_from_this();
    boost::asio::co_spawn(
        executor, std::move(work),
        [self, done = std::move(done)](std::exception_ptr bug, Result<T> result) mutable {
          if (bug) std::rethrow_exception(bug);
          boost::asio::post(self->executor,
                            [self, done = std::move(done), result = std::move(result)]() mutable {
                              if (!self->is_stopped && done) done(std::move(result));
                            });
        });
  }
  /// Runs a loop of our own. Whoever throws has a bug, which the owner of the loop gets to see.
  void spawn(boost::asio::awaitable<void> work) {
    boost::asio::co_spawn(executor, std::move(work), [](std::exception_ptr bug) {
      if (bug) std::rethrow_exception(bug);
    });
  }
};

namespace etcd_detail {

using Self = std::shared_ptr<EtcdLeadership::Impl>;

asio::awaitable<Result<Campaign>> campaign(Self self, std::uint32_t lowest_term, Instant deadline);
asio::awaitable<void> renew(Self self, TenurePtr t);
asio::awaitable<Result<void>> write_table(Self self, TenurePtr t, CommittedTable table);
asio::awaitable<Result<void>> resign(Self self, TenurePtr t);
asio::awaitable<Result<void>> end_job(Self self, TenurePtr t);

}  // namespace etcd_detail

}  // namespace acc::rendezvous
