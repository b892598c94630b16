#pragma once

#include "runtime/net/store.hpp"

#include <memory>
#include <mutex>
#include <set>
#include <string>

namespace acc::runtime {

/// A store that remembers which keys one rank of a group has written, so that a group that ends
/// leaves none behind.
class RecordedStore final : public Store {
 public:
  explicit RecordedStore(std::shared_ptr<Store> store) : store_{std::move(store)} {}

  [[nodiscard]] std::string kind() const override { return store_->kind(); }
  void set(const std::string& key, const std::string& value) override;
  [[nodiscard]] std::string get(const std::string& key, Deadline deadline) override {
    return store_->get(key, deadline);
  }
  [[nodiscard]] std::string get_looking(const std::string& key, Deadline deadline,
                                        const Look& look) override {
    return store_->get_looking(key, deadline, look);
  }
  [[nodiscard]] std::optional<std::string> peek(const std::string& key) override {
    return store_->peek(key);
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override;
  void remove(const std::string& key) override { store_->remove(key); }

  /// This rank of `size` uses the keys no longer. The last rank to say so removes those of all: a
  /// rank that is slow may still be reading. Doesn't wait for the others, and fails silently, as
  /// the store may have ended with rank 0.
  /// @param key  prefix of the group's keys
  void leave(const std::string& key, int rank, int size) noexcept;

 private:
  void note(const std::string& key);

  std::shared_ptr<Store> store_;
  std::mutex mutex_;
  std::set<std::string> written_;
};

}  // namespace acc::runtime
