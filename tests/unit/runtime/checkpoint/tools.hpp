#pragma once

#include "runtime/checkpoint/checkpointer.hpp"
#include "runtime/checkpoint/file_ops.hpp"

#include <acc/checkpoint.hpp>
#include <acc/process_group.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace acc::testing {

namespace fs = std::filesystem;
using namespace acc::runtime;

/// Gone with its contents at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const fs::path& path() const noexcept { return path_; }
  [[nodiscard]] fs::path operator/(std::string_view name) const { return path_ / name; }

 private:
  fs::path path_;
};

[[nodiscard]] std::string contents_of(const fs::path& path);
void put_contents(const fs::path& path, std::string_view text);
/// Changes these bits of a byte, and nothing else.
void flip(const fs::path& path, std::uint64_t at, unsigned bits);
/// Names in a folder, sorted.
[[nodiscard]] std::vector<std::string> names_in(const fs::path& folder);
/// Those of temporary folders.
[[nodiscard]] std::vector<std::string> leftovers_in(const fs::path& folder);
[[nodiscard]] std::string first_line_of_command(const std::string& command, int& status);

/// A file operation that is about to happen.
struct FileEvent {
  std::string_view operation;
  fs::path path;
  std::size_t number = 0;  ///< from 1, over all threads
};

/// The real operations, each announced first. What the listener throws happens instead.
class WatchedFileOps : public checkpoint::FileOps {
 public:
  using Listener = std::function<void(const FileEvent&)>;
  explicit WatchedFileOps(Listener before) : before_{std::move(before)} {}

  UniqueFd create(const fs::path& path) override;
  /// Announced twice, as "write" and, when half of it is done, as "half".
  void write(int fd, std::span<const std::byte> bytes, std::uint64_t at,
             const fs::path& path) override;
  void sync(int fd, const fs::path& path) override;
  void make_folder(const fs::path& path) override;
  void rename(const fs::path& from, const fs::path& to) override;
  bool exchange(const fs::path& one, const fs::path& other) override;
  void remove(const fs::path& path) override;
  void sync_folder(const fs::path& path) override;

  bool can_exchange = true;
  [[nodiscard]] std::size_t count() const noexcept { return count_; }

 private:
  void announce(std::string_view operation, const fs::path& path);

  Listener before_;
  std::mutex guard_;
  std::size_t count_ = 0;  ///< guarded
};

/// One rank of a small training run, with something of everything that a checkpoint holds.
struct SmallRun {
  int rank, ranks;
  std::vector<float> weights;       ///< replicated
  std::vector<std::int64_t> steps;  ///< replicated, a scalar
  std::vector<float> momentum;      ///< this rank's piece of kMomentum elements
  std::vector<BFloat16> second;     ///< this rank's rows of a [kRows, 3] tensor
  StateTexts shared, per_rank;

  static constexpr std::size_t kMomentum = 1000;
  static constexpr std::size_t kRows = 7;

  /// All of it made of `seed`, which is how a state is known again.
  SmallRun(int of_rank, int of_ranks, int seed);
  /// Nothing in it yet: to be filled by load.
  SmallRun(int of_rank, int of_ranks) : SmallRun{of_rank, of_ranks, -1} {}
  [[nodiscard]] CheckpointState state();
  friend bool operator==(const SmallRun&, const SmallRun&) = default;
};

[[nodiscard]] CheckpointOptions quiet_options(const fs::path& folder);
[[nodiscard]] Checkpointer checkpointer_with(ProcessGroup group, CheckpointOptions options,
                                             checkpoint::FileOps& files);
/// What a fresh run of `ranks` threads finds: the seed of its state, on all ranks the same and
/// whole; nothing: no checkpoint.
[[nodiscard]] std::optional<int> loaded_seed(const fs::path& folder, int ranks,
                                             std::vector<std::string>* told = nullptr);
/// Loads, so that what is there is this run's to remove.
void go_on(Checkpointer& checkpoints, ProcessGroup& group);
/// Saves SmallRun{seed} under this number with `ranks` threads; with a limit it goes on from what
/// is there.
void save_seed(const fs::path& folder, int ranks, std::uint64_t number, int seed,
               int keep_last = 0);

}  // namespace acc::testing
