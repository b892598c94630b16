#pragma once

#include "launcher/config_keys.hpp"

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace acc::launcher {

/// All spellings of all flags. A word with both _ and - (--num_pro-cesses) is in neither form, so
/// it is unknown.
class Spellings {
 public:
  Spellings();

  /// By the whole word, dashes included; nullptr if there is no such flag.
  [[nodiscard]] const KeyRow* find(std::string_view spelled) const;
  /// The flag that `spelled` abbreviates as torchrun allows it, nullptr if it is none: a beginning
  /// of one flag alone, and of one that only torchrun has (docs/decisions/0019-abbreviations.md).
  [[nodiscard]] const KeyRow* find_abbreviated(std::string_view spelled) const;

  struct Meant {
    const KeyRow* row = nullptr;  ///< nullptr: none is near, or several begin like it
    std::string advice;           ///< "did you mean --num_processes?"; empty: none is near
  };
  [[nodiscard]] Meant meant_by(std::string_view spelled) const;

 private:
  void add(const KeyRow& row, std::string_view name);
  /// One spelling a flag.
  [[nodiscard]] std::vector<std::string_view> beginning_with(std::string_view spelled) const;
  /// "--num_processes" for "num_procs"; empty: it is short for none, or for several.
  [[nodiscard]] std::string lengthened(std::string_view word) const;

  std::unordered_map<std::string, const KeyRow*> names_;
};

}  // namespace acc::launcher
