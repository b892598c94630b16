#include "runtime/training/exact_squares.hpp"

#include "runtime/training/cast.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace acc::runtime::training {
namespace {

constexpr std::size_t kSquaresBlock = 1024;
constexpr std::size_t kTables =
    4;  ///< so that neighbours of similar size don't wait for each other's addition
/// 2^16 squares of 24 bits fit into 64.
constexpr std::size_t kBeforeOverflow = kTables * 65535;

constexpr int kFloatBias = 127 + 23;  ///< a float is mantissa * 2^(exponent - this)
constexpr int kDoubleBias = 1023 + 52;

using Table = std::array<std::uint64_t, 256>;  ///< by exponent; the last one: not finite

inline void square_into(Table& table, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t exponent = (bits >> 23) & 0xffU;
  const std::uint64_t hidden = exponent != 0 ? 0x800000U : 0U;
  const std::uint64_t mantissa = (bits & 0x7fffffU) | hidden;
  table[exponent] += mantissa * mantissa;
}

}  // namespace

void ExactSquares::Bin::add(std::uint64_t low, std::uint64_t high) noexcept {
  const std::array<std::uint32_t, 4> words{
      static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
      static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)};
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < limbs.size(); ++i) {
    carry += limbs[i];
    if (i < words.size()) carry += words[i];
    limbs[i] = static_cast<std::uint32_t>(carry);
    carry >>= 32;
  }
}

void ExactSquares::Bin::add_from(std::size_t limb, std::uint64_t value) noexcept {
  for (; value != 0 && limb < limbs.size(); ++limb) {
    const std::uint64_t sum = limbs[limb] + (value & 0xffffffffU);
    limbs[limb] = static_cast<std::uint32_t>(sum);
    value = (value >> 32) + (sum >> 32);
  }
}

void ExactSquares::add_float_sums(std::span<const std::uint64_t> sums) {
  for (std::size_t e = 0; e < kFloatBins; ++e)
    for (std::size_t half = 0; half < 2; ++half) floats_[e].add_from(half, sums[2 * e + half]);
  infinities_ += sums[2 * kFloatBins];
  nans_ += sums[2 * kFloatBins + 1];
}

void ExactSquares::add_double_sums(std::span<const std::uint64_t> sums) {
  for (std::size_t e = 0; e < doubles_.size(); ++e)
    for (std::size_t word = 0; word < 4; ++word) doubles_[e].add_from(word, sums[4 * e + word]);
  infinities_ += sums[4 * kDoubleBins];
  nans_ += sums[4 * kDoubleBins + 1];
}

void ExactSquares::add(const void* values, DType type, std::size_t count) {
  if (type == DType::f32) return add_floats(static_cast<const float*>(values), count);
  if (type == DType::f64) return add_doubles(static_cast<const double*>(values), count);
  std::array<float, kSquaresBlock> block;
  const auto* at = static_cast<const std::byte*>(values);
  for (std::size_t done = 0; done < count; done += kSquaresBlock) {
    const std::size_t some = std::min(kSquaresBlock, count - done);
    to_floats(at + done * size_of(type), type, block.data(), some);
    add_floats(block.data(), some);
  }
}

void ExactSquares::add_floats(const float* values, std::size_t count) {
  std::array<Table, kTables> tables;
  while (count > 0) {
    const std::size_t some = std::min(count, kBeforeOverflow);
    for (Table& table : tables) table.fill(0);
    std::size_t i = 0;
    for (; i + kTables <= some; i += kTables) {
      square_into(tables[0], values[i]);
      square_into(tables[1], values[i + 1]);
      square_into(tables[2], values[i + 2]);
      square_into(tables[3], values[i + 3]);
    }
    for (; i < some; ++i) square_into(tables[0], values[i]);
    bool finite = true;
    for (const Table& table : tables) {
      for (std::size_t e = 0; e < kFloatBins; ++e)
        if (table[e] != 0) floats_[e].add(table[e], 0);
      finite &= table[kFloatBins] == 0;
    }
    for (i = 0; !finite && i < some; ++i) {  // rare, so it may take a second look
      nans_ += std::isnan(values[i]) ? 1 : 0;
      infinities_ += std::isinf(values[i]) ? 1 : 0;
    }
    values += some;
    count -= some;
  }
}

void ExactSquares::add_doubles(const double* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint64_t>(values[i]);
    const std::uint64_t exponent = (bits >> 52) & 0x7ffU;
    if (exponent == 0x7ffU) {
      ++(std::isnan(values[i]) ? nans_ : infinities_);
      continue;
    }
    const std::uint64_t mantissa =
        (bits & 0xfffffffffffffULL) | (exponent != 0 ? 1ULL << 52 : 0ULL);
    // mantissa = a * 2^27 + b; its square of 106 bits in two words.
    const std::uint64_t a = mantissa >> 27;
    const std::uint64_t b = mantissa & ((1ULL << 27) - 1);
    const std::uint64_t cross = 2 * a * b;    // times 2^27
    const std::uint64_t square_of_a = a * a;  // times 2^54
    std::uint64_t low = b * b;
    std::uint64_t high = (cross >> 37) + (square_of_a >> 10);
    const auto add_low = [&](std::uint64_t more) {
      low += more;
      high += low < more ? 1 : 0;
    };
    add_low(cross << 27);
    add_low(square_of_a << 54);
    doubles_[exponent].add(low, high);
  }
}

std::vector<std::uint64_t> ExactSquares::words() const {
  std::vector<std::uint64_t> words{nans_, infinities_};
  for (const auto* bins : {&floats_, &doubles_})
    for (const Bin& bin : *bins) words.insert(words.end(), bin.limbs.begin(), bin.limbs.end());
  return words;
}

void ExactSquares::set_words(std::span<const std::uint64_t> words) {
  nans_ = words[0];
  infinities_ = words[1];
  std::size_t at = 2;
  for (auto* bins : {&floats_, &doubles_}) {
    for (Bin& bin : *bins) {
      bin = {};
      std::uint64_t carry = 0;
      for (std::uint32_t& limb : bin.limbs) {
        carry += words[at++];
        limb = static_cast<std::uint32_t>(carry);
        carry >>= 32;
      }
    }
  }
}

long double ExactSquares::total() const {
  if (nans_ > 0) return std::numeric_limits<long double>::quiet_NaN();
  if (infinities_ > 0) return std::numeric_limits<long double>::infinity();
  long double sum = 0;
  const auto take = [&](const std::vector<Bin>& bins, int bias) {
    for (std::size_t e = 0; e < bins.size(); ++e) {
      long double mantissa = 0;
      for (std::size_t i = bins[e].limbs.size(); i-- > 0;)
        mantissa = mantissa * 4294967296.0L + bins[e].limbs[i];
      if (mantissa == 0) continue;
      const int exponent = static_cast<int>(std::max<std::size_t>(e, 1)) - bias;
      sum += std::ldexp(mantissa, 2 * exponent);
    }
  };
  take(floats_, kFloatBias);
  take(doubles_, kDoubleBias);
  return sum;
}

}  // namespace acc::runtime::training
