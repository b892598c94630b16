#pragma once

#include <acc/gradient_state.hpp>
#include <acc/prefetch.hpp>
#include <acc/process_group.hpp>
#include <acc/sampler.hpp>
#include <acc/sharding.hpp>
#include <acc/wire.hpp>
#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace acc::runtime {

/// A dataset with random access.
template <class Sample>
struct Dataset {
  std::size_t size = 0;
  /// Called concurrently by several threads if the loader has several workers.
  std::function<Sample(std::size_t index)> get = {};
};

/// A dataset that is read sequentially. Every rank opens it and must see the same ones in the same
/// order; with dispatch_batches rank 0 alone does.
template <class Sample>
struct StreamDataset {
  std::function<Stream<Sample>(std::uint64_t epoch)> open = {};
  std::optional<std::size_t> size = {};  ///< if known beforehand
};

struct LoaderOptions {
  std::size_t batch_size = 1;  ///< of each rank; with split_batches of all together
  bool shuffle = false;        ///< by RandomSampler; not for streams
  std::uint64_t seed = 0;      ///< the same on every rank
  /// Another order than shuffle's; the same on every rank.
  std::shared_ptr<const Sampler> sampler{};
  bool drop_last = false;
  bool split_batches = false;
  bool even_batches = true;
  /// Rank 0 reads for all and sends each rank its part: for data that only it can access, or that
  /// is expensive to read. Samples must be Wired.
  bool dispatch_batches = false;
  std::size_t skip_batches = 0;  ///< of each rank, at the beginning of each epoch
  unsigned workers = 0;          ///< threads that read ahead; 0: none. Streams use one at most
  std::size_t prefetch = 2;      ///< batches read ahead, per worker
  std::chrono::milliseconds timeout{std::chrono::minutes{30}};  ///< of one batch; 0: none
  std::shared_ptr<GradientState> gradient_state{};  ///< learns which loader is iterated over
  std::string name = "loader";                      ///< in messages

  [[nodiscard]] BatchRules rules() const {
    return {batch_size, drop_last, split_batches, even_batches};
  }
};

/// Position of a loader: all that is needed to continue with the next batch. Counted in samples
/// over all ranks, so another number of ranks or another batch size continues after the same ones.
struct LoaderState {
  std::uint64_t epoch = 0;
  std::uint64_t seed = 0;
  std::uint64_t samples = 0;  ///< of this epoch, taken by all ranks together
  bool finished = false;      ///< the last batch of this epoch was taken
  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};
/// "epoch=3 seed=42 samples=512 finished=0"
[[nodiscard]] std::string to_string(const LoaderState& state);
/// @throws Error corrupt
[[nodiscard]] LoaderState parse_loader_state(std::string_view text);

/// What loaders of all sample types have in common.
class LoaderBase {
 public:
  /// Batches of this rank an epoch, as Accelerate's len() says it: for streams it may be wrong, see
  /// announced_of_stream. Nothing: a stream of unknown length.
  /// @throws Error invalid_argument  more batches are skipped than there are
  [[nodiscard]] std::optional<std::size_t> length() const;
  [[nodiscard]] const LoaderStatus& status() const noexcept { return status_; }
  [[nodiscard]] std::uint64_t epoch() const noexcept { return at_->state.epoch; }
  /// The next iteration is over this epoch, from its beginning.
  /// Before a save, behind a loop that was left: a run that goes on from there does the same.
  /// Iterators that still live no longer move the position.
  void set_epoch(std::uint64_t epoch) noexcept;
  /// Position of the iterator that was moved last. A batch counts as done once it was taken from
  /// the iterator (*it): in the body of a range-for the current one does, and behind ++it the next
  /// one doesn't yet. Of a loop that was left (break) it is the position behind the last batch,
  /// while the next loop begins the epoch again: taken there, and not followed by set_epoch() or
  /// restore(), it brings a warning on stderr of rank 0, once.
  [[nodiscard]] const LoaderState& state() const noexcept {
    if (at_->left.loops == 0) at_->left.is_saved = true;
    return at_->state;
  }
  /// The next iteration goes on from there; if that was the end of an epoch it has no batches: see
  /// DataLoader::peek(). One that asks for its first batch only doesn't use it up, unless the
  /// program trains with that batch, or Accelerator::save_state() follows. state() behind it has
  /// the batch. The seed of `shuffle` is the state's from now on.
  /// Iterators that still live no longer move the position.
  /// @throws Error invalid_argument  options().sampler has another seed; or the position is beyond
  ///   the samples of an epoch: the data set has shrunk since
  void restore(const LoaderState& state);
  [[nodiscard]] const LoaderOptions& options() const noexcept { return options_; }
  /// As LoaderOptions::gradient_state; not while it is iterated over.
  void set_gradient_state(std::shared_ptr<GradientState> state) noexcept {
    options_.gradient_state = std::move(state);
  }
  /// What must be the same on every rank, in words: "1000 samples in batches of 32, shuffled by
  /// seed 7". Where rank 0 reads for all, the others needn't have the samples.
  [[nodiscard]] std::string description() const;
  /// Total time that the loop has waited for data.
  [[nodiscard]] std::chrono::nanoseconds waited() const noexcept { return waited_; }

 protected:
  LoaderBase(LoaderOptions options, ProcessGroup group, std::optional<std::size_t> samples,
             bool stream);
  /// @throws Error invalid_argument  batches are to be dispatched, and samples can't be sent
  void require_wire(bool wired) const;
  /// @throws Error invalid_argument  there is nothing to read samples with, where they are read
  void require_source(bool given) const;
  [[nodiscard]] PrefetchOptions prefetch_options() const;
  /// @throws Error invalid_argument  the sampler names a sample that the dataset hasn't
  void require_in_dataset(const IndexOrder& order) const;
  /// @throws Error invalid_argument  the position is beyond the samples of an epoch
  void require_in_epoch(const LoaderState& state) const;
  [[noreturn]] void refuse_peek() const;

  LoaderOptions options_;
  ProcessGroup group_;  ///< none: alone
  int rank_ = 0;
  int ranks_ = 1;
  StepShape shape_;
  std::optional<std::size_t> samples_;
  std::size_t dataset_size_;  ///< where it isn't a stream
  bool stream_;
  LoaderStatus status_;
  std::chrono::nanoseconds waited_{0};
  bool counts_itself_ = false;  ///< the program, how many batches of the first epoch are done

  /// As a copy of this loader that is to have the same position.
  void share_position(const LoaderBase& loader) noexcept { at_.share(loader.at_); }
  void keep_silent() noexcept { at_->left.is_told = true; }

 private:
  friend class Accelerator;
  friend class LoaderPass;
  /// state(), not for a checkpoint.
  [[nodiscard]] const LoaderState& position() const noexcept { return at_->state; }
  /// position() is in a checkpoint, also if it was taken within the loop, where a program may have
  /// state() only shown. On all ranks alike.
  void note_saved() const noexcept { at_->left.is_saved = at_->left.in_checkpoint = true; }
  [[nodiscard]] bool used_up_restored() const noexcept;
  /// Sets position() to where the next pass begins.
  void begin_pass() noexcept;
  void tell_begins_again(const LoaderState& left) noexcept;
  /// LoaderStatus::remainder before the first batch.
  [[nodiscard]] std::int64_t remainder(std::size_t from) const noexcept;
  /// Orders are of the seed that another loader with this position restored.
  void follow_seed();
  /// The end of an epoch was restored, and the program says that it has done less of this one.
  void begin_counted_epoch() noexcept;

  /// Whether the position is in a checkpoint at which a loop was left.
  struct LeftLoop {
    int loops = 0;                 ///< that are running
    bool is_saved = false;         ///< the position: since the last batch, on this rank at least
    bool in_checkpoint = false;    ///< likewise, by note_saved(): on all ranks
    bool is_told = false;          ///< that the epoch begins again
    std::uint64_t current = 0;     ///< number of the pass that Position::state is of, while it runs
    std::uint64_t trainings = 0;   ///< when that one began
    std::uint64_t superseded = 0;  ///< number of a pass that was saved, and then another began
  };
  struct Position {
    LoaderState state;
    LeftLoop left;
    std::optional<LoaderState> begin_at;  ///< restored, until used_up_restored() or a second batch
    std::uint64_t passes = 0;             ///< that have begun
    std::uint64_t edition = 0;            ///< of state: calls of set_epoch() and restore()
  };
  /// A loader's own, but for loaders by skip_first_batches().
  class SharedPosition {
   public:
    SharedPosition() = default;
    ~SharedPosition() = default;
    SharedPosition(const SharedPosition& other)
        : position_{std::make_shared<Position>(*other.position_)} {}
    // A loader that was moved from has a position still.
    // NOLINTNEXTLINE(performance-move-constructor-init)
    SharedPosition(SharedPosition&& other) noexcept : position_{other.position_} {}
    SharedPosition& operator=(const SharedPosition& other) {
      if (this != &other) position_ = std::make_shared<Position>(*other.position_);
      return *this;
    }
    SharedPosition& operator=(SharedPosition&& other) noexcept {
      position_ = other.position_;
      return *this;
    }
    void share(const SharedPosition& other) noexcept { position_ = other.position_; }
    Position* operator->() const noexcept { return position_.get(); }

   private:
    std::shared_ptr<Position> position_ = std::make_shared<Position>();
  };
  SharedPosition at_;
};

/// One pass of an iterator over a loader. Each has a position of its own, in the epoch in which it
/// began; the loader's is that of the pass that was moved last. So a loop may stand in another one
/// over the same loader, and an iterator may be replaced while it lives.
class LoaderPass {
 public:
  LoaderPass(const LoaderPass&) = delete;
  LoaderPass& operator=(const LoaderPass&) = delete;
  /// The current batch counts as done from now on.
  void take_batch() noexcept;
  /// There is no batch to take: the iterator is at its end.
  [[noreturn]] void refuse_take() const;

 protected:
  explicit LoaderPass(LoaderBase& loader);
  ~LoaderPass();
  /// The next batch is asked for: those before it are done.
  void ask() noexcept;
  void found(bool last) noexcept;
  void end() noexcept;
  [[nodiscard]] bool has_more() const noexcept { return !ended_ && !is_last_; }
  [[nodiscard]] std::uint64_t epoch() const noexcept { return position_.epoch; }
  /// Samples of the epoch that are passed over.
  [[nodiscard]] std::size_t from() const noexcept { return from_; }
  void set_remainder(std::int64_t samples) noexcept { status_->remainder = samples; }

 private:
  /// position_ behind so many steps is the loader's.
  void move_to(std::size_t steps, bool finished) noexcept;
  void become_current() noexcept;
  void leave() noexcept;

  LoaderBase& pass_of_;
  std::shared_ptr<GradientState> gradient_state_;
  std::shared_ptr<LoaderStatus> status_ = std::make_shared<LoaderStatus>();
  std::uint64_t number_;
  std::uint64_t edition_;
  std::uint64_t trainings_ = 0;  ///< GradientState::trainings() at the beginning
  LoaderState position_;
  std::size_t from_ = 0;
  std::size_t steps_ = 0;  ///< that were asked for
  bool is_last_ = false;   ///< the current one
  bool is_new_ = false;    ///< it wasn't taken yet
  bool ended_ = false;
};

/// What rank 0 sends to each rank in a dispatched step. The first byte of a message: what it is.
struct DispatchMessage {
  enum class Kind : std::uint8_t { batch, last, end, failure };
  Kind kind = Kind::end;
  std::uint64_t samples = 0;  ///< of all ranks, before filling
  std::string_view rest;      ///< the rank's samples; of a failure: what happened
  [[nodiscard]] std::string head() const;
  /// @throws Error mismatch; the failure of rank 0
  [[nodiscard]] static DispatchMessage read(std::string_view message, const std::string& loader);
};

template <class Sample, class Batch>
class Epoch;

/// Hands out batches: this rank's share, in the sampler's order, read ahead by worker threads.
///
///     for (auto& batch : loader) { ... }
///
/// is one epoch; the next loop the next one. Behind a loop that is left early, without restore or
/// set_epoch, the next one begins the same epoch again. One thread; the loader stays where it is
/// meanwhile. An exception of the dataset is thrown by the loop at the batch concerned.
///
/// Iterators are independent of one another, but for the loader's state() and epoch(), which are
/// those of the one that was moved last. A complete loop inside a loop over the same loader doesn't
/// end the outer one's epoch; state() between its end and the outer loop's next batch is behind the
/// inner one's epoch, so save before it. Two iterators that live at once read at once: `get` is
/// called concurrently then, also with one worker.
template <class Sample, class Batch = std::vector<Sample>>
class DataLoader : public LoaderBase {
 public:
  /// Called concurrently by several threads if there are several workers.
  using Collate = std::function<Batch(std::vector<Sample>)>;

  /// @param group  whose ranks share the samples; none: this process alone
  /// @throws Error invalid_argument  conflicting options
  DataLoader(Dataset<Sample> dataset, Collate collate, LoaderOptions options,
             ProcessGroup group = {})
      : LoaderBase{std::move(options), std::move(group), dataset.size, false},
        get_{std::move(dataset.get)},
        collate_{std::move(collate)} {
    require_source(get_ != nullptr);
    require_wire(Wired<Sample>);
  }
  DataLoader(StreamDataset<Sample> dataset, Collate collate, LoaderOptions options,
             ProcessGroup group = {})
      : LoaderBase{std::move(options), std::move(group), dataset.size, true},
        open_{std::move(dataset.open)},
        collate_{std::move(collate)} {
    require_source(open_ != nullptr);
    require_wire(Wired<Sample>);
  }
  /// Batches are vectors of samples.
  template <class Data>
  requires std::same_as<Batch, std::vector<Sample>> DataLoader(Data dataset, LoaderOptions options,
                                                               ProcessGroup group = {})
      : DataLoader{std::move(dataset), [](std::vector<Sample> samples) { return samples; },
                   std::move(options), std::move(group)} {}

  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    explicit Iterator(DataLoader& loader)
        : epoch_{std::make_unique<Epoch<Sample, Batch>>(loader)}, batch_{epoch_->next()} {}
    /// The batch counts as done from now on: LoaderBase::state().
    /// @throws Error invalid_argument  the iterator is at its end
    Batch& operator*() {
      if (!batch_) epoch_->refuse_take();
      epoch_->take_batch();
      return *batch_;
    }
    Batch* operator->() { return &**this; }
    Iterator& operator++() {
      batch_ = epoch_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) { return !it.batch_; }

   private:
    std::unique_ptr<Epoch<Sample, Batch>> epoch_;
    std::optional<Batch> batch_;
  };
  Iterator begin() { return Iterator{*this}; }
  std::default_sentinel_t end() const noexcept { return {}; }

  /// The batch with which the next loop begins, as for the shape of the samples before the
  /// training. Where that loop has none, behind a restored end of an epoch, the first one of the
  /// epoch behind it. Nothing moves, state() included, but it is read once more. With
  /// dispatch_batches by all ranks.
  /// @throws Error invalid_argument  epochs have no batches
  [[nodiscard]] Batch peek() const {
    DataLoader looking = *this;
    looking.keep_silent();  // nothing begins again
    looking.options_.workers = std::min(options_.workers, 1U);
    looking.options_.prefetch = 1;
    for (int epoch = 0; epoch < 2; ++epoch) {
      if (auto it = looking.begin(); it != looking.end()) return std::move(*it);
    }
    refuse_peek();
  }

  /// The same loader without the first `batches` of each epoch: as skip_first_batches. Both have
  /// one position: a loop over either is followed by the next epoch in both, and state() of either
  /// is that of the last batch, as behind loops over one loader. Behind a restored end of an epoch
  /// it begins the next one, unless `batches` are all that was taken of it: the program counts.
  [[nodiscard]] DataLoader skip_first_batches(std::size_t batches) const {
    DataLoader skipping = *this;
    skipping.share_position(*this);
    skipping.counts_itself_ = true;
    skipping.options_.skip_batches = batches;
    skipping.status_ = {};
    return skipping;
  }

 private:
  friend class Epoch<Sample, Batch>;
  std::function<Sample(std::size_t)> get_;
  std::function<Stream<Sample>(std::uint64_t)> open_;
  Collate collate_;
};

template <class Sample>
using SampleLoader = DataLoader<Sample, std::vector<Sample>>;

}  // namespace acc::runtime

namespace acc {
using runtime::DataLoader;
using runtime::Dataset;
using runtime::LoaderOptions;
using runtime::LoaderState;
using runtime::SampleLoader;
using runtime::StreamDataset;
}  // namespace acc

#include <acc/detail/epoch.hpp>
