#pragma once

#include <acc/detail/cxx20.hpp>
#include <acc/sampler.hpp>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace acc::runtime {

/// Random numbers of a training loop (dropout, augmentation), whose state fits into a checkpoint:
/// xoshiro256++. The same numbers on every machine, compiler and version; it works with the
/// distributions of <random>, but those differ between standard libraries, unlike uniform() and
/// normal().
class Generator {
 public:
  using result_type = std::uint64_t;

  /// The four words of state are the first numbers of Random{seed, stream} (acc/sampler.hpp), so
  /// streams of one seed are independent.
  explicit Generator(std::uint64_t seed = 0, std::uint64_t stream = 0) noexcept;

  std::uint64_t operator()() noexcept;
  static constexpr std::uint64_t min() noexcept { return 0; }
  static constexpr std::uint64_t max() noexcept {
    return std::numeric_limits<std::uint64_t>::max();
  }
  /// From 0 to under 1, in steps of 2^-53.
  double uniform() noexcept;
  /// Of mean 0 and variance 1, by Marsaglia's polar method. Takes log: the same on machines that
  /// round it the same way.
  double normal() noexcept;

  /// "xoshiro256++ 1f… … … …", in hex.
  [[nodiscard]] std::string state() const;
  /// @throws Error corrupt: not such a text
  void restore(std::string_view state);
  friend bool operator==(const Generator&, const Generator&) = default;

 private:
  std::array<std::uint64_t, 4> words_;
};

}  // namespace acc::runtime
