#include "launcher/ctl/top/fetcher.hpp"

#include "common/signals_blocked.hpp"
#include "common/unique_fd.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace acc::ctl::top {

struct Fetcher::Shared {
  explicit Shared(Source from) : source{std::move(from)} {}

  Source source;  // of the thread
  UniqueFd ready{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by the mutex.
  std::deque<Order> orders;
  std::optional<Wish> wish;
  std::vector<Event> answers;
  bool is_asking = false;
  bool is_over = false;

  void run();
  void put(Event answer);
  void answer(const Wish& wish);
};

void Fetcher::Shared::put(Event answer) {
  const std::scoped_lock lock{mutex};
  answers.push_back(std::move(answer));
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(ready.get(), &one, sizeof one);
}

void Fetcher::Shared::answer(const Wish& wanted) {
  if (wanted.jobs) put(source.jobs());
  if (!wanted.job.empty()) put(source.job(wanted.job));
  if (wanted.log) put(source.log(wanted.job, *wanted.log, wanted.log_from));
}

void Fetcher::Shared::run() {
  std::unique_lock lock{mutex};
  for (;;) {
    is_asking = false;
    changed.wait(lock, [&] { return is_over || wish || !orders.empty(); });
    if (is_over) return;
    is_asking = true;
    if (!orders.empty()) {
      const auto order = std::move(orders.front());
      orders.pop_front();
      lock.unlock();
      put(source.carry_out(order));
    } else {
      const auto wanted = *std::exchange(wish, std::nullopt);
      lock.unlock();
      answer(wanted);
    }
    lock.lock();
  }
}

Fetcher::Fetcher(Source source) : shared_{std::make_shared<Shared>(std::move(source))} {
  const AllSignalsBlocked blocked;  // signals are for the thread that has the terminal
  std::thread{[shared = shared_] { shared->run(); }}.detach();
}

Fetcher::~Fetcher() {
  const std::scoped_lock lock{shared_->mutex};
  shared_->is_over = true;
  shared_->changed.notify_one();
}

int Fetcher::fd() const { return shared_->ready.get(); }

bool Fetcher::is_busy() const {
  const std::scoped_lock lock{shared_->mutex};
  return shared_->is_asking || shared_->wish || !shared_->orders.empty();
}

void Fetcher::ask(const Wish& wish) {
  const std::scoped_lock lock{shared_->mutex};
  shared_->wish = wish;
  shared_->changed.notify_one();
}

void Fetcher::carry_out(const Order& order) {
  const std::scoped_lock lock{shared_->mutex};
  shared_->orders.push_back(order);
  shared_->changed.notify_one();
}

std::vector<Event> Fetcher::take() {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto n = ::read(shared_->ready.get(), &count, sizeof count);
  const std::scoped_lock lock{shared_->mutex};
  return std::exchange(shared_->answers, {});
}

}  // namespace acc::ctl::top
