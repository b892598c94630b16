#pragma once

#include "launcher/ctl/launches.hpp"
#include "launcher/ctl/places.hpp"
#include "launcher/ctl/top/state.hpp"

#include <optional>
#include <string>
#include <vector>

namespace acc::ctl::top {

/// Asks services and agents. Each call blocks until there are answers, or their time is over.
class Source {
 public:
  /// @param at  the other node that --node names, as a path of the API; empty: this one
  Source(Services services, std::string at);

  /// Finds the job that `name` means. not_found, bad_usage, or why none can be found.
  Result<void> look_up(const std::string& name);
  [[nodiscard]] JobsAnswer jobs() const;
  [[nodiscard]] JobAnswer job(const std::string& id);
  [[nodiscard]] LogAnswer log(const std::string& id, const LogPlace& place,
                              std::optional<std::uint64_t> from);
  [[nodiscard]] OrderAnswer carry_out(const Order& order);

 private:
  struct Part {
    std::string node;  ///< as the launch names it; empty: a job on one node
    JobRow row;        ///< without an id: not found yet
    std::string why{};
  };
  struct Target {
    std::string name;  ///< as it was looked up
    JobRow known;
    std::vector<Part> parts;
  };
  static Target target_of(const std::string& name, const LaunchState& launch);
  [[nodiscard]] Result<Target> find(const std::string& name) const;

  Services services_;
  std::string at_;
  std::optional<Target> target_;
};

}  // namespace acc::ctl::top
