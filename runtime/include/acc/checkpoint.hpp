#pragma once

#include <acc/error.hpp>
#include <acc/process_group.hpp>
#include <acc/safetensors.hpp>
#include <acc/types.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Checkpoints of a training run: complete or absent, never partial.
namespace acc::runtime {

enum class Placement : std::uint8_t {
  replicated,  ///< the same on every rank; rank 0 writes it
  /// Every rank holds a piece: the tensor is the pieces one behind the other in the order of the
  /// ranks, along the first dimension (a piece may be empty, the other dimensions agree). Leave
  /// padding out of the view. It is split anew if another number of ranks loads it.
  sharded,
};

struct StateTensor {
  std::string name = {};  ///< used once in a part
  /// Read by save, filled by load; host or CUDA memory, which waits for all work of its device.
  TensorView view = {};
  Placement placement = Placement::replicated;
  /// Names its files, <part>.safetensors: letters, digits, '_' and '-'.
  std::string part = "model";
};

/// Name → JSON text.
using StateTexts = std::map<std::string, std::string>;

struct CheckpointState {
  std::vector<StateTensor> tensors = {};
  /// The same on every rank, rank 0's is written: position in the data, scaler.
  StateTexts shared = {};
  StateTexts per_rank = {};  ///< each rank's own: generators of random numbers
};

/// A tensor of a checkpoint, all its pieces together.
struct StoredTensor {
  std::string name;
  std::string part;
  DType dtype = DType::f32;
  Shape shape;
  Placement placement = Placement::replicated;
};

/// A complete checkpoint, open for reading.
/// @throws Error from all: corrupt (says file and place), system, invalid_argument (no such name,
///   another type or shape).
class Checkpoint {
 public:
  /// Reads the manifest, and checks that all files exist with their size.
  explicit Checkpoint(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const noexcept;
  [[nodiscard]] std::uint64_t number() const noexcept;
  [[nodiscard]] int ranks() const noexcept;  ///< number of ranks that wrote it
  [[nodiscard]] std::span<const StoredTensor> tensors() const noexcept;
  [[nodiscard]] const StoredTensor* find(std::string_view part,
                                         std::string_view name) const noexcept;
  /// Reads every byte and compares the checksums. Of `of` readers this is number `share`: each
  /// takes its part of the bytes.
  void verify(int share = 0, int of = 1, int threads = 2) const;

  [[nodiscard]] StateTexts shared() const;
  /// Empty for a rank that wasn't there.
  [[nodiscard]] StateTexts of_rank(int rank) const;

  [[nodiscard]] HostTensor read(std::string_view part, std::string_view name) const;
  /// Rows `first_row` … along the first dimension, as many as `into` has. Device memory is filled
  /// when all work of the device is done.
  void read(std::string_view part, std::string_view name, std::int64_t first_row,
            const TensorView& into) const;

  struct Contents;

 private:
  std::shared_ptr<const Contents> contents_;
};

/// What load found.
struct Restored {
  Checkpoint checkpoint;
  StateTexts shared;
  StateTexts per_rank;               ///< this rank's; empty where the checkpoint has fewer ranks
  std::vector<std::string> unused;   ///< tensors of the checkpoint that weren't asked for
  std::vector<std::string> skipped;  ///< newer checkpoints that were skipped, and why
};

struct CheckpointOptions {
  /// Holds checkpoint_<number> for each. One that all ranks see (the same disk).
  std::filesystem::path folder = "checkpoints";
  /// The oldest beyond so many are removed, once the new one is complete; never one of a higher
  /// number, nor, before this object has loaded, one that it didn't save. 0: all stay.
  int keep_last = 0;
  std::uint64_t max_shard_bytes = 10'000'000'000;  ///< as Accelerate's save_model
  /// save() copies the state and returns; a thread writes. One at a time: the next save waits.
  bool async = false;
  /// Threads of a rank that write and check.
  int threads = 2;
  /// Receives warnings: a checkpoint that was skipped, or can't be removed. Called on rank 0, also
  /// from the writing thread. Default: a line on stderr.
  std::function<void(const std::string& what)> tell = {};
  /// Called on rank 0 when a checkpoint is complete, also from the writing thread.
  std::function<void(std::uint64_t number, const std::filesystem::path& path)> saved = {};
};

/// Saves and loads the state of a group's ranks. Every call but the destructor is collective, and
/// so is construction.
///
/// A checkpoint is written to a temporary folder (`.tmp-checkpoint_…`), checksummed, synced to disk
/// and then renamed: whenever a rank, the job or the machine dies, checkpoint_<N> is complete or
/// absent, and older ones are untouched.
///
/// While it saves numbered checkpoints it holds a lock of their folder (`.lock` in it), so that two
/// jobs don't replace and remove each other's: the second one's save() is refused. So is one in a
/// folder where another run, or another Checkpointer, has written since this one loaded or asked
/// for newest_number().
///
/// When one rank fails (a full disk, for example) the call throws on all: system with the path, or
/// invalid_argument for a state that can't be written. The group and this object stay usable then.
class Checkpointer {
 public:
  explicit Checkpointer(ProcessGroup group, CheckpointOptions options = {});
  /// Waits for a save in flight; an error not yet thrown is reported as a warning.
  ~Checkpointer();
  Checkpointer(Checkpointer&&) noexcept;
  Checkpointer& operator=(Checkpointer&&) noexcept;

  /// Saves as checkpoint_<number>. One that is there under this number is replaced.
  /// @throws Error  also invalid_argument: the number is above kMaxCheckpointNumber; another run
  ///   has written here since the load
  /// async: throws what the save before failed with, before anything else is done.
  /// @return its folder; with async it isn't there yet.
  std::filesystem::path save(std::uint64_t number, const CheckpointState& state);
  /// Saves under this path, in place of the checkpoint or the empty folder that is there, or where
  /// a link to a folder leads; nothing older is removed.
  /// @throws Error  also invalid_argument, and nothing is removed: the path is that of a file, of a
  ///   folder with other files than a checkpoint's (also next to one's), of the working directory
  ///   or a folder above it
  void save_as(const std::filesystem::path& path, const CheckpointState& state);
  /// Until the save in flight is complete. @throws Error what it failed with, once.
  void wait();

  /// Fills the tensors of `state` from the newest checkpoint that is whole on every rank; its texts
  /// come with the result. One that is torn or corrupt is skipped with a warning.
  /// @return nothing: there is no checkpoint.
  /// @throws Error corrupt: there are some, and none is whole; system: one can't be read, which
  /// isn't
  ///   evidence of damage; invalid_argument: a tensor isn't in it, or of another type or shape.
  ///   `state` is unspecified then.
  std::optional<Restored> load(const CheckpointState& state);
  /// Of this number. @throws Error as above; system: it isn't there.
  Restored load(std::uint64_t number, const CheckpointState& state);
  Restored load_from(const std::filesystem::path& path, const CheckpointState& state);

  /// The two halves of load: the checkpoint can be inspected before it is loaded. After open()
  /// `shared`, `per_rank` and `unused` are empty.
  std::optional<Restored> open();
  Restored open_from(const std::filesystem::path& path);
  void fill(const CheckpointState& state, Restored& restored);
  /// Opens the newest checkpoint and calls `read`, which reads from it, by fill() for instance. If
  /// the run that saves here removes it meanwhile, `read` is called again with a newer one. `read`
  /// throws an Error on all ranks, or on none.
  /// @return as load(). @throws Error  as load(); of `read`; system: removed five times in a row,
  /// or none is left.
  std::optional<Restored> read_newest(const std::function<void(Restored&)>& read);

  /// The highest number in the folder that any rank sees, whole or not.
  [[nodiscard]] std::optional<std::uint64_t> newest_number();

  [[nodiscard]] const CheckpointOptions& options() const noexcept;

  class Impl;  // runtime/checkpoint/checkpointer.hpp
  explicit Checkpointer(std::unique_ptr<Impl> impl) noexcept;

 private:
  std::unique_ptr<Impl> impl_;
};

/// The highest number of a checkpoint. A folder with a higher one, which no number might follow, is
/// no checkpoint: it is never loaded, counted or removed, and reported once.
inline constexpr std::uint64_t kMaxCheckpointNumber = 9'223'372'036'854'775'807;

/// "checkpoint_7", as Accelerate's automatic naming.
[[nodiscard]] std::string checkpoint_name(std::uint64_t number);
/// The numbers of the checkpoints in a folder, the newest first, whole or not; none if it isn't
/// there.
[[nodiscard]] std::vector<std::uint64_t> list_checkpoints(const std::filesystem::path& folder);

}  // namespace acc::runtime

namespace acc {
using runtime::Checkpoint;
using runtime::Checkpointer;
using runtime::CheckpointOptions;
using runtime::CheckpointState;
using runtime::Placement;
using runtime::Restored;
using runtime::StateTensor;
using runtime::StateTexts;
using runtime::StoredTensor;
}  // namespace acc
