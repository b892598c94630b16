#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

/// Which job has which slots and GPUs of the node, and who waits (pure). Of the users who wait, the
/// one who has the fewest slots is next; of that user's jobs, the first. Another user's job that fits passes
/// one that doesn't, but only so often, so that a large one isn't starved.
namespace acc::agent::daemon {

struct SlotRequest {
  std::uint32_t slots = 1;
  std::uint32_t gpus = 0;
  std::uint32_t user = 0;  ///< uid
};

class SlotTable {
 public:
  SlotTable(std::uint32_t slots, std::vector<std::uint32_t> gpus);

  /// Could it ever be given?
  [[nodiscard]] bool can_hold(const SlotRequest& request) const;
  /// Would it be given now, behind those that wait?
  [[nodiscard]] bool has_free(const SlotRequest& request) const;
  /// Waits at the end of the queue; take_next() gives. A job that has slots or waits stays as it
  /// is.
  void ask(const std::string& job, const SlotRequest& request);
  /// What a job held before the daemon was restarted: given even beyond what there is, as it runs.
  void restore(const std::string& job, std::uint32_t slots, std::vector<std::uint32_t> gpus,
               std::uint32_t user = 0);
  /// Gives the next that waits what it asked for, if that is free.
  std::optional<std::string> take_next();
  /// Gives back, or leaves the queue.
  void free(const std::string& job);

  [[nodiscard]] bool holds(const std::string& job) const { return held_.contains(job); }
  [[nodiscard]] const std::vector<std::uint32_t>& gpus_of(const std::string& job) const;
  [[nodiscard]] std::uint32_t slots() const { return slots_; }
  [[nodiscard]] std::uint32_t free_slots() const;
  [[nodiscard]] const std::vector<std::uint32_t>& gpus() const { return gpus_; }
  [[nodiscard]] std::vector<std::uint32_t> free_gpus() const;
  [[nodiscard]] std::vector<std::string> holders() const;
  /// Those that may have their turn.
  [[nodiscard]] std::size_t waiting() const;

 private:
  /// So many others pass a job that doesn't fit.
  static constexpr std::uint32_t kMostPasses = 64;
  struct Share {
    std::uint32_t user = 0;
    std::uint32_t slots = 0;
    std::vector<std::uint32_t> gpus;
  };
  struct Waiting {
    std::string job;
    SlotRequest request;
    std::uint32_t passes = 0;
  };
  /// The first waiting job of each user, the user with the fewest slots first. One that asks for
  /// more than the node has, since its settings were changed, holds up no other.
  [[nodiscard]] std::vector<std::size_t> candidates() const;
  [[nodiscard]] bool fits(const SlotRequest& request) const;

  std::uint32_t slots_;
  std::vector<std::uint32_t> gpus_;
  std::map<std::string, Share> held_;
  std::deque<Waiting> queue_;
};

}  // namespace acc::agent::daemon
