#pragma once

#include <acc/loader.hpp>
#include <algorithm>

/// One pass over a DataLoader: what stands behind its iterator.
namespace acc::runtime {

/// Things that are made ahead, each with whether it is the last. Where their number is known that
/// costs nothing; else each waits until the one behind it is there, as in the original.
template <class Unit>
class UnitsAhead {
 public:
  UnitsAhead(std::function<std::optional<Unit>(std::size_t)> make, std::optional<std::size_t> count,
             PrefetchOptions options)
      : queue_{std::move(make), std::move(options)}, count_{count} {}

  std::optional<Unit> next(bool& last) {
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    auto unit = ahead_ ? std::exchange(ahead_, std::nullopt) : queue_.next();
    if (!unit) return std::nullopt;
    ++taken_;
    if (count_) {
      last = taken_ == *count_;
      return unit;
    }
    try {
      ahead_ = queue_.next();
      last = !ahead_;
    } catch (...) {  // its turn comes with the next call
      failure_ = std::current_exception();
      last = false;
    }
    return unit;
  }
  [[nodiscard]] std::chrono::nanoseconds waited() const noexcept { return queue_.waited(); }

 private:
  Prefetcher<Unit> queue_;
  std::optional<std::size_t> count_;
  std::optional<Unit> ahead_;
  std::exception_ptr failure_;
  std::size_t taken_ = 0;
};

template <class Sample, class Batch>
class Epoch : public LoaderPass {
  using Loader = DataLoader<Sample, Batch>;
  using Samples = std::vector<Sample>;

 public:
  explicit Epoch(Loader& loader) : LoaderPass{loader}, loader_{loader} {
    // Rank 0 opens a dispatched epoch with its first step, so that a failure is sent to all ranks.
    if (has_more() && !dispatching()) loader_.stream_ ? open_share_of_stream() : open_share();
  }
  ~Epoch() {
    if (batches_) loader_.waited_ += batches_->waited();
    if (steps_ahead_) loader_.waited_ += steps_ahead_->waited();
  }
  Epoch(const Epoch&) = delete;
  Epoch& operator=(const Epoch&) = delete;

  std::optional<Batch> next() {
    std::optional<Batch> batch;
    bool last = false;
    if (has_more()) {
      ask();  // also if reading it fails
      batch = dispatching() ? dispatched(last) : batches_->next(last);
    }
    batch ? found(last) : end();
    return batch;
  }

 private:
  /// A dispatched step as rank 0 made it: a message a rank, but for their heads.
  struct Step {
    std::size_t samples = 0;
    Samples own;
    std::vector<std::string> messages;
  };

  [[nodiscard]] bool dispatching() const { return loader_.options_.dispatch_batches; }

  // -- every rank reads its share --
  void open_share() {
    auto rules = loader_.options_.rules();
    // Alone nothing needs to be even: the last batch is as short as it is.
    if (loader_.ranks_ == 1) rules.even_batches = false;
    auto order = loader_.options_.sampler->order(epoch());
    loader_.require_in_dataset(order);  // all ranks know it: none waits for another
    auto shard = std::make_shared<BatchSamplerShard>(std::move(order), rules, loader_.rank_,
                                                     loader_.ranks_, from());
    const std::size_t count = shard->size();
    batches_.emplace(
        [this, shard, count](std::size_t number) -> std::optional<Batch> {
          if (number >= count) return std::nullopt;
          return loader_.collate_(read((*shard)[number]));
        },
        count, loader_.prefetch_options());
  }
  void open_share_of_stream() {
    auto samples = loader_.open_(epoch());
    if (ranks() == 1) {
      pass_over(samples);
    } else {
      auto shard = std::make_shared<IterableDatasetShard<Sample>>(
          std::move(samples), loader_.options_.rules(), loader_.rank_, loader_.ranks_, from());
      samples = [shard] { return shard->next(); };
    }
    batches_.emplace(
        [this, samples = std::move(samples),
         ended = false](std::size_t) mutable -> std::optional<Batch> {
          auto batch = take(samples, loader_.shape_.batch, ended);
          if (batch.empty() || (batch.size() < loader_.shape_.batch && loader_.options_.drop_last))
            return std::nullopt;
          return loader_.collate_(std::move(batch));
        },
        std::nullopt, one_worker());
  }

  // -- rank 0 reads for all --
  void open_dispatched_stream() {
    auto first = std::make_shared<Samples>();  // what the epoch began with, to fill up the end
    auto stream = loader_.open_(epoch());
    Stream<Sample> samples = [this, first, stream = std::move(stream)] {
      auto sample = stream();
      if (sample && first->size() < ranks()) first->push_back(*sample);
      return sample;
    };
    pass_over(samples);
    steps_ahead_.emplace(
        [this, first, samples = std::move(samples),
         ended = false](std::size_t) mutable -> std::optional<Step> {
          return make_step(take(samples, loader_.shape_.global, ended),
                           [&](std::size_t i) { return (*first)[i % first->size()]; });
        },
        std::nullopt, one_worker());
  }
  void open_dispatched() {
    const auto order = loader_.options_.sampler->order(epoch());
    loader_.require_in_dataset(order);
    BatchRules rules{loader_.shape_.global, loader_.options_.drop_last, false, false};
    auto steps = std::make_shared<BatchSamplerShard>(order, rules, 0, 1, from());
    const std::size_t count = steps->size();
    const std::size_t fill = std::min(order.size(), ranks());
    steps_ahead_.emplace(
        [this, order, steps, count, fill](std::size_t number) -> std::optional<Step> {
          if (number >= count) return std::nullopt;
          return make_step(read((*steps)[number]),
                           [&](std::size_t i) { return loader_.get_(order[i % fill]); });
        },
        count, loader_.prefetch_options());
  }
  std::optional<Step> make_step(Samples samples, const auto& filler) {
    if (samples.empty() || (samples.size() < loader_.shape_.global && loader_.options_.drop_last))
      return std::nullopt;
    Step step;
    step.samples = samples.size();
    const std::size_t batch = dispatched_batch(samples.size(), loader_.ranks_);
    for (std::size_t i = 0; samples.size() < batch * ranks(); ++i) samples.push_back(filler(i));
    step.messages.resize(ranks());
    if constexpr (Wired<Sample>) {
      for (std::size_t at = batch; at < samples.size(); ++at)
        Wire<Sample>::write(step.messages[at / batch], samples[at]);
    }
    samples.erase(samples.begin() + static_cast<std::ptrdiff_t>(batch), samples.end());
    step.own = std::move(samples);
    return step;
  }
  std::optional<Batch> dispatched(bool& last) {
    Samples samples;
    const auto head = loader_.rank_ == 0 ? send_step(samples) : receive_step(samples);
    if (head.kind == DispatchMessage::Kind::end) return std::nullopt;
    last = head.kind == DispatchMessage::Kind::last;
    if (last) set_remainder(static_cast<std::int64_t>(head.samples));
    return loader_.collate_(std::move(samples));
  }
  DispatchMessage send_step(Samples& own) {
    DispatchMessage head;
    std::optional<Step> step;
    std::exception_ptr failure;
    std::string words;
    bool last = false;
    try {
      if (!steps_ahead_) loader_.stream_ ? open_dispatched_stream() : open_dispatched();
      step = steps_ahead_->next(last);
      if (step)
        head = {
            last ? DispatchMessage::Kind::last : DispatchMessage::Kind::batch, step->samples, {}};
    } catch (const std::exception& thrown) {
      failure = std::current_exception();
      words = thrown.what();
      head.kind = DispatchMessage::Kind::failure;
    } catch (...) {
      failure = std::current_exception();
      words = "an exception of an unknown type";
      head.kind = DispatchMessage::Kind::failure;
    }
    if (ranks() > 1) {
      auto messages = step ? std::move(step->messages) : std::vector<std::string>(ranks(), words);
      for (auto& message : messages) message.insert(0, head.head());
      (void)loader_.group_.scatter_object(messages, 0);
    }
    if (failure) std::rethrow_exception(failure);
    if (step) own = std::move(step->own);
    return head;
  }
  DispatchMessage receive_step(Samples& own) {
    const auto message = loader_.group_.scatter_object({}, 0);
    auto head = DispatchMessage::read(message, loader_.options_.name);
    if constexpr (Wired<Sample>) {
      while (!head.rest.empty()) own.push_back(Wire<Sample>::read(head.rest));
    }
    head.rest = {};
    return head;
  }

  // -- reading --
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(loader_.ranks_); }
  [[nodiscard]] PrefetchOptions one_worker() const {
    auto options = loader_.prefetch_options();
    options.workers = std::min(options.workers, 1U);
    return options;
  }
  void pass_over(const Stream<Sample>& stream) const {
    for (std::size_t i = 0; i < from() && stream(); ++i) {
    }
  }
  Samples read(const std::vector<std::size_t>& indices) const {
    Samples samples;
    samples.reserve(indices.size());
    for (const auto index : indices) samples.push_back(loader_.get_(index));
    return samples;
  }
  /// Up to `count`; `ended` once the stream is, or has thrown: then it is not asked again.
  static Samples take(const Stream<Sample>& stream, std::size_t count, bool& ended) {
    Samples samples;
    while (!ended && samples.size() < count) {
      ended = true;
      auto sample = stream();
      ended = !sample;
      if (sample) samples.push_back(*std::move(sample));
    }
    return samples;
  }

  Loader& loader_;
  // Destroyed first: their threads use what stands above.
  std::optional<UnitsAhead<Batch>> batches_;
  std::optional<UnitsAhead<Step>> steps_ahead_;
};

}  // namespace acc::runtime
