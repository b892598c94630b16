#include "runtime/checkpoint/checkpointer.hpp"

#include "common/text.hpp"
#include "runtime/checkpoint/agreement.hpp"
#include "runtime/checkpoint/restore.hpp"
#include "runtime/quiet_thread.hpp"
#include "runtime/user_call.hpp"

#include <acc/error.hpp>
#include <cstdio>
#include <system_error>
#include <utility>

namespace acc::runtime {

namespace fs = std::filesystem;

namespace {

/// Absolute, so that a change of the working directory has no effect.
fs::path absolute_path(const fs::path& path) {
  if (path.empty())
    throw Error{ErrorCode::invalid_argument, "a checkpoint needs a path, and it is empty"};
  std::error_code failed;
  const auto whole = fs::absolute(path, failed);
  if (failed) checkpoint::fail("find from the working directory", path, failed.value());
  return whole.lexically_normal();
}

}  // namespace

Checkpointer::Impl::Impl(ProcessGroup group, CheckpointOptions options, checkpoint::FileOps& files)
    : group_{std::move(group)}, options_{std::move(options)}, files_{files}, writers_{group_} {
  options_.folder = absolute_path(options_.folder);
  if (options_.max_shard_bytes == 0) {
    throw Error{ErrorCode::invalid_argument, "max_shard_bytes is 0"};
  }
  if (options_.keep_last < 0) {
    throw Error{ErrorCode::invalid_argument, "keep_last is " + std::to_string(options_.keep_last) +
                                                 "; it must be 0 (all stay) or above"};
  }
  if (!options_.async) return;
  if (group_.size() > 1) {
    // Calls of two communicators of one device must be enqueued in the same order on all ranks, and
    // the writing threads keep none with the training.
    writers_ = group_.split(0, group_.rank(), group_.name() + " checkpoint",
                            {.backend = BackendKind::cpu});
  } else {
    GroupOptions alone;
    alone.backend = BackendKind::cpu;
    writers_ = ProcessGroup::single(alone);
  }
}

Checkpointer::Impl::~Impl() {
  try {
    wait();
  } catch (const std::exception& error) {
    tell(std::string{"the last save failed: "} + error.what());
  } catch (...) {
    tell("the last save failed");
  }
}

void Checkpointer::Impl::tell(const std::string& what) const noexcept {
  try {
    if (options_.tell) {
      options_.tell(what);
    } else {
      std::fprintf(stderr, "acc: checkpoint: %s\n", what.c_str());
    }
  } catch (...) {
    // The callback for warnings failed: nothing is left to report to.
  }
}

checkpoint::SavePlan Checkpointer::Impl::plan_for(fs::path target) const {
  checkpoint::SavePlan plan;
  plan.target = absolute_path(target);
  if (!plan.target.has_filename()) plan.target = plan.target.parent_path();  // "here/"
  plan.max_shard_bytes = options_.max_shard_bytes;
  plan.threads = options_.threads;
  return plan;
}

void Checkpointer::Impl::guard(checkpoint::SavePlan& plan) noexcept {
  plan.lock = &lock_;
  plan.known = &known_;
}

void Checkpointer::Impl::save(checkpoint::SavePlan plan, const CheckpointState& state) {
  wait();
  if (plan.lock != nullptr) {
    plan.removal.known_bad = known_bad_;
    plan.removal.own = own_;
    if (own_) own_->insert(plan.number);
  }
  checkpoint::HostState host;
  std::optional<Error> failure;
  try {
    host = snapshot_.take(state, group_.rank(), options_.async);
  } catch (...) {
    failure = checkpoint::as_error(std::current_exception());
  }
  if (plan.lock != nullptr) known_bad_.erase(plan.number);
  if (!options_.async) return write(plan, host, failure);
  writing_ = quiet_thread([this, plan = std::move(plan), host = std::move(host),
                           failure = std::move(failure)]() noexcept {
    try {
      write(plan, host, failure);
    } catch (...) {
      failure_ = std::current_exception();
    }
  });
}

void Checkpointer::Impl::write(const checkpoint::SavePlan& plan, const checkpoint::HostState& state,
                               const std::optional<Error>& failure) {
  const InUserCall within{UserCall::checkpoint};
  checkpoint::save(writers_, files_, plan, state, failure,
                   [this](const std::string& what) { tell(what); });
  if (!options_.saved || writers_.rank() != 0) return;
  try {
    options_.saved(plan.number, plan.target);
  } catch (const std::exception& error) {
    // An exception would end rank 0 alone, while the others wait for it.
    tell(std::string{"the program's word for a saved checkpoint failed: "} + error.what());
  }
}

void Checkpointer::Impl::wait() {
  if (writing_.joinable()) writing_.join();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

/// On rank 0, once. No job can have written such a folder, and it does no harm.
void Checkpointer::Impl::tell_names_above_all_numbers() {
  if (group_.rank() != 0 || std::exchange(told_names_, true)) return;
  try {
    const auto names = checkpoint::names_above_all_numbers(options_.folder);
    if (!names.empty())
      tell(join(names, ", ") + " in " + in_quotes(options_.folder.native()) +
           ": no checkpoint, as numbers end at " + std::to_string(kMaxCheckpointNumber) +
           "; ignored");
  } catch (const Error&) {
    // An unreadable folder: the call itself reports it, on all ranks.
  }
}

std::optional<Restored> Checkpointer::Impl::open() {
  const InUserCall within{UserCall::checkpoint};
  wait();
  tell_names_above_all_numbers();
  if (group_.rank() == 0) known_.look(options_.folder);
  auto restored = checkpoint::open_newest(group_, options_.folder, options_.threads, known_bad_,
                                          [this](const std::string& what) { tell(what); });
  own_.reset();
  return restored;
}

Restored Checkpointer::Impl::open_from(const fs::path& path) {
  const InUserCall within{UserCall::checkpoint};
  wait();
  const auto target = plan_for(path).target;
  if (group_.rank() == 0) known_.look(options_.folder);
  auto restored = checkpoint::open_this(group_, target, options_.threads);
  if (target.parent_path() == options_.folder) own_.reset();
  return restored;
}

void Checkpointer::Impl::fill(const CheckpointState& state, Restored& restored) {
  const InUserCall within{UserCall::checkpoint};
  checkpoint::fill(group_, state, restored);
}

bool Checkpointer::Impl::unless_removed(const Restored& restored, int reloads,
                                        const std::function<void()>& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    const bool may_be = error.code() == ErrorCode::system || error.code() == ErrorCode::corrupt;
    const InUserCall within{UserCall::checkpoint};
    if (!checkpoint::was_removed(group_, restored, may_be)) throw;
    if (reloads < checkpoint::kMostReloads) return false;
    throw Error{ErrorCode::system,
                in_quotes(restored.checkpoint.path().native()) +
                    " was removed while it was read, as were those before it: the run that saves "
                    "here keeps too few checkpoints for a reader (total_limit, keep_last)",
                error.ranks(), "checkpoint"};
  }
}

std::optional<std::uint64_t> Checkpointer::Impl::newest_number() {
  const InUserCall within{UserCall::checkpoint};
  wait();
  tell_names_above_all_numbers();
  if (group_.rank() == 0 && !known_.has_looked()) known_.look(options_.folder);
  const auto numbers = checkpoint::candidates(group_, options_.folder);
  if (numbers.empty()) return std::nullopt;
  return numbers.front();
}

Checkpointer::Checkpointer(ProcessGroup group, CheckpointOptions options)
    : impl_{std::make_unique<Impl>(std::move(group), std::move(options))} {}
Checkpointer::Checkpointer(std::unique_ptr<Impl> impl) noexcept : impl_{std::move(impl)} {}
Checkpointer::~Checkpointer() = default;
Checkpointer::Checkpointer(Checkpointer&&) noexcept = default;
Checkpointer& Checkpointer::operator=(Checkpointer&&) noexcept = default;

fs::path Checkpointer::save(std::uint64_t number, const CheckpointState& state) {
  if (number > kMaxCheckpointNumber)
    throw Error{ErrorCode::invalid_argument,
                checkpoint_name(number) + " wasn't saved: numbers end at " +
                    std::to_string(kMaxCheckpointNumber) + ". If a stray " +
                    checkpoint_name(kMaxCheckpointNumber) + " stands in " +
                    in_quotes(impl_->options().folder.native()) + ", rename or remove it"};
  auto plan = impl_->plan_for(impl_->options().folder / checkpoint_name(number));
  plan.number = number;
  plan.removal.keep = impl_->options().keep_last;
  impl_->guard(plan);
  auto target = plan.target;
  impl_->save(std::move(plan), state);
  return target;
}

void Checkpointer::save_as(const fs::path& path, const CheckpointState& state) {
  auto plan = impl_->plan_for(path);
  plan.target = checkpoint::followed(plan.target);
  impl_->save(std::move(plan), state);
}

void Checkpointer::wait() { impl_->wait(); }

std::optional<Restored> Checkpointer::load(const CheckpointState& state) {
  return read_newest([&](Restored& restored) { fill(state, restored); });
}
Restored Checkpointer::load(std::uint64_t number, const CheckpointState& state) {
  return load_from(impl_->options().folder / checkpoint_name(number), state);
}
Restored Checkpointer::load_from(const fs::path& path, const CheckpointState& state) {
  auto restored = impl_->open_from(path);
  impl_->fill(state, restored);
  return restored;
}

std::optional<Restored> Checkpointer::open() { return impl_->open(); }
Restored Checkpointer::open_from(const fs::path& path) { return impl_->open_from(path); }
void Checkpointer::fill(const CheckpointState& state, Restored& restored) {
  impl_->fill(state, restored);
}
std::optional<Restored> Checkpointer::read_newest(const std::function<void(Restored&)>& read) {
  for (int reloads = 0;; ++reloads) {
    auto restored = impl_->open();
    if (!restored && reloads > 0)
      throw Error{ErrorCode::system, "the checkpoints in " +
                                         in_quotes(impl_->options().folder.native()) +
                                         " were removed while they were read: none is left"};
    if (!restored || impl_->unless_removed(*restored, reloads, [&] { read(*restored); }))
      return restored;
  }
}
std::optional<std::uint64_t> Checkpointer::newest_number() { return impl_->newest_number(); }

const CheckpointOptions& Checkpointer::options() const noexcept { return impl_->options(); }

}  // namespace acc::runtime
