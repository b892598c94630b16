#pragma once

#include <acc/types.hpp>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace acc::runtime::training {

/// Sums of squares without rounding: each square is an integer times a power of two, and squares of
/// one power are added as integers. So the sum is independent of order and of the split over calls
/// and ranks, unlike rounded additions.
class ExactSquares {
 public:
  /// @param doubles  will there be f64 on any rank? It makes words() longer.
  explicit ExactSquares(bool doubles) : doubles_(doubles ? kDoubleBins : 0) {}

  /// Any floating type; 16 bits count as floats, which they are exactly.
  void add(const void* values, DType type, std::size_t count);

  /// Sums that a kernel made, as runtime/device/bodies.hpp lays them out: of floats by exponent two
  /// words, the sums of lower and upper halves; of doubles four, of words of 32 bits; then how many
  /// infinities and NaNs there were.
  void add_float_sums(std::span<const std::uint64_t> sums);
  void add_double_sums(std::span<const std::uint64_t> sums);

  /// Integers that may be added element by element over up to 2^32 ranks.
  [[nodiscard]] std::vector<std::uint64_t> words() const;
  /// What words() of all ranks added up to.
  void set_words(std::span<const std::uint64_t> words);

  /// NaN if there was one, else infinite if there was one; off by a few units in the last place of
  /// a long double at most, and the same for the same values.
  [[nodiscard]] long double total() const;
  [[nodiscard]] bool finite() const noexcept { return infinities_ == 0 && nans_ == 0; }

 private:
  static constexpr std::size_t kFloatBins = 255;    ///< exponents of finite floats
  static constexpr std::size_t kDoubleBins = 2047;  ///< of finite doubles
  /// 160 bits: 106 of a square of doubles, and 2^54 of them.
  struct Bin {
    std::array<std::uint32_t, 5> limbs{};
    void add(std::uint64_t low, std::uint64_t high) noexcept;
    /// value * 2^(32 * limb)
    void add_from(std::size_t limb, std::uint64_t value) noexcept;
  };
  void add_floats(const float* values, std::size_t count);
  void add_doubles(const double* values, std::size_t count);

  std::vector<Bin> floats_ = std::vector<Bin>(kFloatBins);
  std::vector<Bin> doubles_;
  std::uint64_t nans_ = 0;
  std::uint64_t infinities_ = 0;
};

}  // namespace acc::runtime::training
