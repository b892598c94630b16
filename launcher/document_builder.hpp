#pragma once

#include "launcher/document.hpp"

#include <optional>
#include <string>
#include <vector>

namespace acc::launcher {

/// Collects the events of a parser into one value, within the limits of document.hpp.
class DocumentBuilder {
 public:
  /// What would break a limit or can't be a config; the first one is kept and everything later is
  /// ignored.
  void refuse(std::uint32_t line, std::string what);
  [[nodiscard]] bool refused() const { return refusal_.has_value(); }
  [[nodiscard]] const std::string& refusal() const { return *refusal_; }

  void add(Value value);
  void begin(bool is_map, std::uint32_t line);
  void key(std::string name) { open_.back().key = std::move(name); }
  /// The finished list or mapping, which was also added to its parent.
  Value end();
  [[nodiscard]] bool in_map() const { return !open_.empty() && open_.back().is_map; }
  [[nodiscard]] bool awaits_key() const { return in_map() && !open_.back().key; }
  [[nodiscard]] std::size_t depth() const { return open_.size(); }

  /// The whole document; `name` is the file's.
  [[nodiscard]] Document take(const std::string& name);

 private:
  struct Open {
    bool is_map = false;
    std::uint32_t line = 0;
    List list;
    Map map;
    std::optional<std::string> key;
    std::vector<std::string> merged;  ///< keys of map that stem from a merge key: own ones win
  };
  struct Duplicate {
    std::string key;
    std::uint32_t first = 0;
    std::uint32_t last = 0;
  };
  bool count(const Value& value);
  static void merge(Open& into, const Map& map, std::vector<std::string>& earlier);

  std::vector<Open> open_;
  Value root_;
  std::vector<Duplicate> duplicates_;
  std::size_t values_ = 0;
  std::optional<std::string> refusal_;
};

}  // namespace acc::launcher
