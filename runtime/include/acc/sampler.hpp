#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace acc::runtime {

/// The generator that shuffles: the same numbers on every rank, machine and compiler, and for ever
/// (a checkpoint says seed and epoch and nothing more). SplitMix64: the state begins at
/// mix(seed) ^ mix(~stream) and grows by 0x9E3779B97F4A7C15 with each number, which is mix(state);
/// mix(z) is z = (z ^ z>>30) * 0xBF58476D1CE4E5B9; z = (z ^ z>>27) * 0x94D049BB133111EB; z ^ z>>31.
class Random {
 public:
  explicit Random(std::uint64_t seed, std::uint64_t stream = 0) noexcept;
  std::uint64_t next() noexcept;
  /// From 0 to bound - 1, each as likely (Lemire: the upper half of next() * bound, drawn again
  /// while the lower half is under 2^64 mod bound). bound 0 counts as 1; for 1 the result is 0, and
  /// no number is drawn.
  std::uint64_t below(std::uint64_t bound) noexcept;
  /// From 0 to under 1, in steps of 2^-53.
  double uniform() noexcept;

 private:
  std::uint64_t state_;
};

/// Beyond it a number of samples is an overflow or a sign that was lost, and memory would end
/// first.
inline constexpr std::size_t kMostSamples = std::size_t{1} << 40;

/// The samples of an epoch in their order. Copies share the memory: 4 bytes a sample, 8 above 2^32
/// samples, none for a sequence.
class IndexOrder {
 public:
  IndexOrder() = default;  ///< of no samples
  /// 0, 1, 2, ...
  [[nodiscard]] static IndexOrder sequential(std::size_t size);
  /// Fisher and Yates: for i from size - 1 down to 1, i changes places with below(i + 1) of
  /// Random{seed, epoch}.
  /// @throws Error invalid_argument  more than kMostSamples
  [[nodiscard]] static IndexOrder shuffled(std::size_t size, std::uint64_t seed,
                                           std::uint64_t epoch);
  /// Any other: a subset, some samples more than once.
  [[nodiscard]] static IndexOrder of(std::vector<std::size_t> indices);

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// The largest index; 0 without samples.
  [[nodiscard]] std::size_t largest() const noexcept { return largest_; }
  /// position < size()
  [[nodiscard]] std::size_t operator[](std::size_t position) const noexcept {
    if (narrow_) return (*narrow_)[position];
    return wide_ ? (*wide_)[position] : position;
  }

 private:
  std::size_t size_ = 0;
  std::size_t largest_ = 0;
  std::shared_ptr<const std::vector<std::uint32_t>> narrow_;
  std::shared_ptr<const std::vector<std::size_t>> wide_;  ///< neither: a sequence
};

/// Decides in which order the samples of a dataset are read. It must say the same on every rank,
/// and name no index that the dataset hasn't: the loader throws invalid_argument, and reads
/// nothing.
class Sampler {
 public:
  virtual ~Sampler() = default;
  /// Samples an epoch.
  [[nodiscard]] virtual std::size_t size() const = 0;
  [[nodiscard]] virtual IndexOrder order(std::uint64_t epoch) const = 0;
  /// What a checkpoint keeps besides the epoch; 0: it has none.
  [[nodiscard]] virtual std::uint64_t seed() const { return 0; }
};

class SequentialSampler : public Sampler {
 public:
  explicit SequentialSampler(std::size_t size) : size_{size} {}
  [[nodiscard]] std::size_t size() const override { return size_; }
  [[nodiscard]] IndexOrder order(std::uint64_t) const override {
    return IndexOrder::sequential(size_);
  }

 private:
  std::size_t size_;
};

/// Another order each epoch, given by (seed, epoch) alone. As Accelerate's SeedableRandomSampler,
/// whose order of seed 1, epoch 1 is that of seed 2, epoch 0, which here it is not.
class RandomSampler : public Sampler {
 public:
  RandomSampler(std::size_t size, std::uint64_t seed) : size_{size}, seed_{seed} {}
  [[nodiscard]] std::size_t size() const override { return size_; }
  [[nodiscard]] IndexOrder order(std::uint64_t epoch) const override {
    return IndexOrder::shuffled(size_, seed_, epoch);
  }
  [[nodiscard]] std::uint64_t seed() const override { return seed_; }

 private:
  std::size_t size_;
  std::uint64_t seed_;
};

}  // namespace acc::runtime

namespace acc {
using runtime::IndexOrder;
using runtime::RandomSampler;
using runtime::Sampler;
using runtime::SequentialSampler;
}  // namespace acc
