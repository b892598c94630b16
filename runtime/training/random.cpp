#include <acc/error.hpp>
#include <acc/random.hpp>
#include <bit>
#include <charconv>
#include <cmath>

namespace acc::runtime {
namespace {

constexpr std::string_view kName = "xoshiro256++";

}  // namespace

Generator::Generator(std::uint64_t seed, std::uint64_t stream) noexcept {
  Random source{seed, stream};
  for (std::uint64_t& word : words_) word = source.next();
}

std::uint64_t Generator::operator()() noexcept {
  // Blackman and Vigna's xoshiro256++ 1.0.
  auto& s = words_;
  const std::uint64_t made = std::rotl(s[0] + s[3], 23) + s[0];
  const std::uint64_t shifted = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= shifted;
  s[3] = std::rotl(s[3], 45);
  return made;
}

double Generator::uniform() noexcept { return static_cast<double>((*this)() >> 11) * 0x1p-53; }

double Generator::normal() noexcept {
  for (;;) {
    const double x = 2 * uniform() - 1;
    const double y = 2 * uniform() - 1;
    const double r = x * x + y * y;
    // The second number that this gives is left, so that there is no more state than the words.
    if (r < 1 && r > 0) return x * std::sqrt(-2 * std::log(r) / r);
  }
}

std::string Generator::state() const {
  std::string text{kName};
  for (const std::uint64_t word : words_) {
    std::array<char, 16> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), word, 16).ptr;
    text += ' ';
    text.append(digits.data(), end);
  }
  return text;
}

void Generator::restore(std::string_view state) {
  const auto refuse = [] {
    throw Error{ErrorCode::corrupt, "the state of a random generator: not what state() wrote"};
  };
  if (!state.starts_with(kName)) refuse();
  state.remove_prefix(kName.size());
  std::array<std::uint64_t, 4> words;
  std::uint64_t any = 0;
  for (std::uint64_t& word : words) {
    if (!state.starts_with(' ')) refuse();
    state.remove_prefix(1);
    const auto [end, error] = std::from_chars(state.data(), state.data() + state.size(), word, 16);
    if (error != std::errc{} || end == state.data()) refuse();
    state.remove_prefix(static_cast<std::size_t>(end - state.data()));
    any |= word;
  }
  if (!state.empty() || any == 0) refuse();  // zeros would never change
  words_ = words;
}

}  // namespace acc::runtime
