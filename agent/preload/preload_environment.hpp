#pragma once

#include "agent/environment.hpp"

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

/// What a preloader finds in its environment: what all workers of this node have in all rounds
/// (pure). A variable that a rank or a round has otherwise is not there, and an import that asks
/// for one is refused. But for COLUMNS and LINES: an import may read them (menus and progress bars
/// do), and sees those of the rank that has least room; the worker has its own, as they are then.
namespace acc::agent::preload {

class PreloadEnvironment {
 public:
  /// @param workers  of a round, in any order; at least one
  /// @param has_other_nodes  the place among the nodes, too, is another one in each round
  PreloadEnvironment(const std::vector<WorkerEnvironment>& workers, bool has_other_nodes);

  /// "NAME=VALUE", in the order of the first worker.
  [[nodiscard]] const std::vector<std::string>& shared() const { return shared_; }
  /// Variables that ranks or rounds have with a value of their own.
  [[nodiscard]] const std::vector<std::string>& own_names() const { return own_names_; }
  /// The name of a variable that differs between ranks and is read by native libraries while they
  /// are loaded, which nobody can observe; empty: there is none.
  [[nodiscard]] std::string unobservable() const;
  /// A variable, of any value but "false", by which GNU's OpenMP takes cores for its threads while
  /// it is loaded; empty: there is none. In the preloader these are cores of all workers.
  [[nodiscard]] std::string placement() const;
  /// A worker with this environment could be forked: whatever it has otherwise is its own.
  [[nodiscard]] bool fits(const char* const* envp) const;

 private:
  std::vector<std::string> shared_;
  std::vector<std::string> own_names_;
  std::unordered_set<std::string> shared_set_;
  std::unordered_set<std::string> own_set_;
};

}  // namespace acc::agent::preload
