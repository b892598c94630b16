// A worker in C++ that needs nothing but the variables: each rank adds up its share of 1 … 1,000,000.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <sstream>

static std::uint64_t number(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) {
    std::cerr << name << " is not set: start this with acc-launch\n";
    std::exit(1);
  }
  return std::strtoull(text, nullptr, 10);
}

int main() {
  const std::uint64_t rank = number("RANK");
  const std::uint64_t world = number("WORLD_SIZE");
  std::uint64_t sum = 0;
  for (std::uint64_t n = 1 + rank; n <= 1'000'000; n += world) sum += n;

  // One write per line: lines of different ranks then never mix.
  std::ostringstream line;
  line << "rank " << rank << " of " << world << ": partial sum " << sum << '\n';
  std::cout << line.str() << std::flush;
}
