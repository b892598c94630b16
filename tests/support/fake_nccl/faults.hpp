#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

/// What a fake library is told to do wrong: words of an environment variable, read at each call, so
/// that a test can change its mind: FAKE_NCCL="init=never@1,error=3" or FAKE_CUDA="devices=2".
/// NAME=VALUE@RANK is for one rank only.
namespace acc::fake {

inline std::optional<std::string> fault(const char* variable, std::string_view name,
                                        int rank = -1) {
  const char* all = std::getenv(variable);
  if (all == nullptr) return std::nullopt;
  std::string_view rest{all};
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    auto word = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    if (const auto at = word.find('@'); at != std::string_view::npos) {
      if (std::to_string(rank) != word.substr(at + 1)) continue;
      word = word.substr(0, at);
    }
    const auto equals = word.find('=');
    if (word.substr(0, equals) != name) continue;
    return std::string{equals == std::string_view::npos ? std::string_view{}
                                                        : word.substr(equals + 1)};
  }
  return std::nullopt;
}

}  // namespace acc::fake
