#include "common/passed_signals.hpp"

#include "common/exit_status.hpp"

#include <string_view>

namespace acc {

std::string passed_signal_names() {
  std::string names;
  for (const int signo : kPassedSignals) {
    const bool is_last = signo == kPassedSignals.back();
    const std::string_view before = names.empty() ? "" : is_last ? " or " : ", ";
    names.append(before).append(signal_name(signo));
  }
  return names;
}

}  // namespace acc
