#include "common/text.hpp"
#include "runtime/net/store.hpp"

#include <condition_variable>
#include <map>
#include <mutex>

namespace acc::runtime {

namespace {

class MemoryStore final : public Store {
 public:
  [[nodiscard]] std::string kind() const override { return "memory"; }

  void set(const std::string& key, const std::string& value) override {
    {
      const std::lock_guard lock{mutex_};
      values_.insert_or_assign(key, value);
    }
    changed_.notify_all();
  }

  [[nodiscard]] std::string get(const std::string& key, Deadline deadline) override {
    std::unique_lock lock{mutex_};
    const auto there = [&] { return values_.contains(key); };
    if (deadline == Deadline::max()) {  // glibc overflows on it
      changed_.wait(lock, there);
    } else if (!changed_.wait_until(lock, deadline, there)) {
      throw Error{ErrorCode::timed_out,
                  "key '" + key + "' was not set in time in the memory store"};
    }
    return values_.at(key);
  }

  [[nodiscard]] std::optional<std::string> peek(const std::string& key) override {
    const std::lock_guard lock{mutex_};
    const auto found = values_.find(key);
    if (found == values_.end()) return std::nullopt;
    return found->second;
  }

  std::int64_t add(const std::string& key, std::int64_t delta) override {
    std::int64_t sum = 0;
    {
      const std::lock_guard lock{mutex_};
      auto& value = values_[key];
      const auto before = value.empty() ? 0 : parse_number<std::int64_t>(value);
      if (!before) throw Error{ErrorCode::invalid_argument, "key '" + key + "' holds no number"};
      sum = *before + delta;
      value = std::to_string(sum);
    }
    changed_.notify_all();
    return sum;
  }

  void remove(const std::string& key) override {
    const std::lock_guard lock{mutex_};
    values_.erase(key);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace

std::shared_ptr<Store> make_memory_store() { return std::make_shared<MemoryStore>(); }

}  // namespace acc::runtime
