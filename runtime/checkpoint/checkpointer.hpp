#pragma once

#include "runtime/checkpoint/folder.hpp"
#include "runtime/checkpoint/host_state.hpp"
#include "runtime/checkpoint/known_checkpoints.hpp"
#include "runtime/checkpoint/save.hpp"

#include <acc/checkpoint.hpp>
#include <acc/process_group.hpp>
#include <exception>
#include <optional>
#include <set>
#include <thread>

namespace acc::runtime {

class Checkpointer::Impl {
 public:
  /// @param files  outlive this.
  Impl(ProcessGroup group, CheckpointOptions options,
       checkpoint::FileOps& files = checkpoint::FileOps::real());
  ~Impl();

  void save(checkpoint::SavePlan plan, const CheckpointState& state);
  void wait();
  std::optional<Restored> open();
  Restored open_from(const std::filesystem::path& path);
  void fill(const CheckpointState& state, Restored& restored);
  bool unless_removed(const Restored& restored, int reloads, const std::function<void()>& read);
  [[nodiscard]] std::optional<std::uint64_t> newest_number();

  [[nodiscard]] checkpoint::SavePlan plan_for(std::filesystem::path target) const;
  [[nodiscard]] const CheckpointOptions& options() const noexcept { return options_; }
  /// For a numbered checkpoint.
  void guard(checkpoint::SavePlan& plan) noexcept;

 private:
  void write(const checkpoint::SavePlan& plan, const checkpoint::HostState& state,
             const std::optional<Error>& failure);
  void tell(const std::string& what) const noexcept;
  void tell_names_above_all_numbers();

  ProcessGroup group_;  ///< the caller's
  CheckpointOptions options_;
  checkpoint::FileOps& files_;
  ProcessGroup
      writers_;  ///< of the writing thread: separate, as it calls concurrently with the caller
  checkpoint::Snapshot snapshot_;
  std::set<std::uint64_t> known_bad_;
  bool told_names_ = false;
  /// Numbers saved by this object. Nothing: it has loaded, so the whole folder belongs to this run.
  std::optional<std::set<std::uint64_t>> own_ = std::set<std::uint64_t>{};
  checkpoint::FolderLock lock_;
  checkpoint::KnownCheckpoints known_;  ///< of rank 0; written by writing_ while it runs
  std::thread writing_;
  std::exception_ptr failure_;  ///< of writing_, read after it is joined
};

}  // namespace acc::runtime
