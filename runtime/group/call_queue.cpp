#include "runtime/group/call_queue.hpp"

#include "runtime/quiet_thread.hpp"
#include "runtime/timeout.hpp"

#include <stdexcept>
#include <utility>

namespace acc::runtime {

// ---- handles ----

void Work::State::take(const Call& from) {
  call = from;
  if (from.counts.empty()) return;
  counts.assign(from.counts.begin(), from.counts.end());
  counts.insert(counts.end(), from.recv_counts.begin(), from.recv_counts.end());
  call.counts = std::span{counts}.first(from.counts.size());
  call.recv_counts = std::span{counts}.subspan(from.counts.size());
}

void Work::State::finish(std::exception_ptr failure) {
  const std::lock_guard lock{mutex};
  error = std::move(failure);
  done.store(true, std::memory_order_release);
  changed.notify_all();
}

void Work::wait(std::optional<Millis> limit) const {
  if (limit) limit = checked_timeout(*limit, "the limit of Work::wait");
  if (!state_) return;
  if (!done() && state_->begun_in != fork_generation())
    throw Error{ErrorCode::invalid_argument,
                to_string(state_->call.what) +
                    ": this process was forked after the call was begun, which is its parent's",
                {},
                std::string{to_string(state_->call.what.operation)},
                state_->call.what.sequence};
  if (state_->collected)
    throw Error{ErrorCode::invalid_argument,
                to_string(state_->call.what) +
                    " is waited for within coalesce, which launches it at its end"};
  if (state_->pending) return state_->pending->wait(limit);
  if (!state_->done.load(std::memory_order_acquire)) {
    std::unique_lock lock{state_->mutex};
    const auto is_done = [this] { return state_->done.load(std::memory_order_relaxed); };
    if (!limit) {
      state_->changed.wait(lock, is_done);  // the call itself has a limit
    } else if (!state_->changed.wait_for(lock, *limit, is_done)) {
      const auto& what = state_->call.what;
      throw Error{ErrorCode::timed_out,
                  to_string(what) + " isn't done after " + std::to_string(limit->count()) +
                      " ms of waiting; it goes on",
                  {},
                  std::string{to_string(what.operation)},
                  what.sequence};
    }
  }
  if (state_->error) std::rethrow_exception(state_->error);
}

bool Work::done() const {
  if (!state_) return true;
  if (state_->pending) return state_->pending->done();
  return state_->done.load(std::memory_order_acquire);
}

std::exception_ptr Work::error() const {
  if (!state_) return nullptr;
  if (state_->pending) return state_->pending->error();
  return state_->done.load(std::memory_order_acquire) ? state_->error : nullptr;
}

void wait_all(std::span<const Work> works) {
  std::exception_ptr first;
  for (const Work& work : works) {
    try {
      work.wait();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

// ---- the queue ----

CallQueue::CallQueue(std::string thread_name, std::function<void(Work::State&)> carry_out)
    : thread_name_{std::move(thread_name)}, carry_out_{std::move(carry_out)} {}

CallQueue::~CallQueue() {
  {
    const std::lock_guard lock{mutex_};
    closing_ = true;
    came_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void CallQueue::push(Job job) {
  const std::lock_guard lock{mutex_};
  if (!thread_.joinable()) {
    try {
      thread_ = quiet_thread([this] { work(); });
    } catch (const Error& e) {
      throw std::runtime_error{std::string{"calls in the background: "} + e.what()};
    }
    ::pthread_setname_np(thread_.native_handle(), thread_name_.substr(0, 15).c_str());
  }
  unfinished_.fetch_add(1, std::memory_order_relaxed);
  jobs_.push_back(std::move(job));
  came_.notify_one();
}

void CallQueue::work() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock{mutex_};
      came_.wait(lock, [this] { return closing_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    std::exception_ptr failure;
    try {
      carry_out_(*job);
    } catch (...) {
      failure = std::current_exception();
    }
    unfinished_.fetch_sub(1, std::memory_order_release);
    job->finish(std::move(failure));
  }
}

}  // namespace acc::runtime
