#include "common/duration.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace acc {

namespace {

struct Unit {
  std::string_view name;
  double millis;
};
constexpr Unit kUnits[] = {{"", 1e3}, {"s", 1e3}, {"ms", 1}, {"m", 6e4}, {"min", 6e4}, {"h", 36e5}};
constexpr double kLongest = 1e13;  // milliseconds: about 300 years, far from overflow

}  // namespace

Result<Millis> parse_duration(std::string_view text) {
  const std::string copy{text};
  const auto bad = [&] {
    return Error{Errc::bad_config,
                 "'" + copy + "' is not a duration: write 15, 0.5s, 250ms, 2m or 1h"};
  };
  if (copy.empty() || !(copy[0] == '.' || (copy[0] >= '0' && copy[0] <= '9'))) return bad();
  if (copy.size() > 1 && (copy[1] == 'x' || copy[1] == 'X'))
    return bad();  // strtod would read 0x10
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  for (const auto& unit : kUnits) {
    if (unit.name != end) continue;
    const double millis = number * unit.millis;
    if (!std::isfinite(millis) || millis > kLongest) return bad();
    // 0 means 'none' or 'no limit' in many places: what is more isn't rounded to it.
    return Millis{millis > 0 ? std::max(1LL, std::llround(millis)) : 0};
  }
  return bad();
}

std::string describe(Millis d) {
  const auto ms = d.count();
  char text[64];
  if (ms < 1000) {
    std::snprintf(text, sizeof text, "%lld ms", static_cast<long long>(ms));
  } else if (ms < 60'000) {
    std::snprintf(text, sizeof text, "%.3g s", static_cast<double>(ms) / 1e3);
  } else if (ms < 3'600'000) {
    const auto seconds = ms % 60'000 / 1000;
    if (seconds == 0) {
      std::snprintf(text, sizeof text, "%lld min", static_cast<long long>(ms / 60'000));
    } else {
      std::snprintf(text, sizeof text, "%lld min %lld s", static_cast<long long>(ms / 60'000),
                    static_cast<long long>(seconds));
    }
  } else {
    std::snprintf(text, sizeof text, "%lld h %lld min", static_cast<long long>(ms / 3'600'000),
                  static_cast<long long>(ms % 3'600'000 / 60'000));
  }
  return text;
}

}  // namespace acc
