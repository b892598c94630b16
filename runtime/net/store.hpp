#pragma once

#include <acc/process_group.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace acc::runtime {

/// The key-value store of a job, by which its ranks find each other. Calls block; any thread may
/// call. @throws Error timed_out (get: says which key), system (the store is gone).
class Store {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  virtual ~Store() = default;
  /// "agent", "tcp", "memory": for messages.
  [[nodiscard]] virtual std::string kind() const = 0;
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Waits until the key is set.
  [[nodiscard]] virtual std::string get(const std::string& key, Deadline deadline) = 0;
  /// As `get`, with `look` called every kLookInterval while it waits, and once when the time is up:
  /// what it throws ends the wait. By default a series of short gets; a store to which a get costs
  /// round trips asks once.
  using Look = std::function<void()>;
  static constexpr std::chrono::milliseconds kLookInterval{20};
  [[nodiscard]] virtual std::string get_looking(const std::string& key, Deadline deadline,
                                                const Look& look);
  /// nothing: the key isn't set.
  [[nodiscard]] virtual std::optional<std::string> peek(const std::string& key) = 0;
  /// @return the new value; a counter starts at 0.
  virtual std::int64_t add(const std::string& key, std::int64_t delta) = 0;
  /// A key that isn't set stays so.
  virtual void remove(const std::string& key) = 0;
};

/// For threads of one process.
[[nodiscard]] std::shared_ptr<Store> make_memory_store();

}  // namespace acc::runtime
