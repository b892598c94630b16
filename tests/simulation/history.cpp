#include "tests/simulation/history.hpp"

#include <cstdio>

namespace acc::simulation {

void History::add(Time now, const std::string& who, const std::string& what) {
  if (!on_) return;
  char begin[48];
  std::snprintf(begin, sizeof begin, "%12.6f  %-9s ", static_cast<double>(now.count()) * 1e-9,
                who.c_str());
  lines_.push_back(begin + what);
  if (lines_.size() <= kLines) return;
  lines_.pop_front();
  ++dropped_;
}

void History::print(std::ostream& out) const {
  if (dropped_ > 0) out << "  (" << dropped_ << " earlier lines)\n";
  for (const auto& line : lines_) out << line << '\n';
}

}  // namespace acc::simulation
