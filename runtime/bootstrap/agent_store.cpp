#include "runtime/bootstrap/agent_store.hpp"

#include "common/text.hpp"
#include "runtime/bootstrap/fields.hpp"

#include <algorithm>
#include <mutex>
#include <vector>

namespace acc::runtime {

namespace {

/// Of one part of a value.
constexpr std::size_t kPart = worker_socket::kMaxValue - 1;
/// A value begins with what it is; counters (digits) need nothing.
constexpr char kWhole = '.';
constexpr char kInParts = '+';

class AgentStore final : public Store {
 public:
  AgentStore(Contract contract, Millis patience, AgentClient first)
      : contract_{std::move(contract)}, patience_{patience} {
    idle_.push_back(std::move(first));
  }

  [[nodiscard]] std::string kind() const override { return "agent"; }

  void set(const std::string& key, const std::string& value) override {
    auto line = take();
    if (value.size() <= kPart) {
      check(line.set(key, kWhole + value));
    } else {
      std::size_t parts = 0;
      for (std::size_t at = 0; at < value.size(); at += kPart)
        check(line.set(part_key(key, parts++), kWhole + value.substr(at, kPart)));
      check(line.set(key, kInParts + std::to_string(parts)));  // last: who finds it finds all
    }
    give_back(std::move(line));
  }

  [[nodiscard]] std::string get(const std::string& key, Deadline deadline) override {
    auto line = take();
    auto value = check(line.get(key, time_left(deadline)));
    value = whole(line, key, std::move(value));
    give_back(std::move(line));
    return value;
  }

  [[nodiscard]] std::optional<std::string> peek(const std::string& key) override {
    auto line = take();
    auto value = line.get(key);
    if (!value && value.error().code == Errc::not_found) {
      give_back(std::move(line));
      return std::nullopt;
    }
    auto found = whole(line, key, check(std::move(value)));
    give_back(std::move(line));
    return found;
  }

  std::int64_t add(const std::string& key, std::int64_t delta) override {
    auto line = take();
    const auto sum = check(line.add(key, delta));
    give_back(std::move(line));
    return sum;
  }

 private:
  static std::string part_key(const std::string& key, std::size_t part) {
    return key + "#" + std::to_string(part);
  }

  // 0 would mean: answer at once, and `missing` instead of `timed_out`.
  static Millis time_left(Deadline deadline) {
    if (deadline == Deadline::max()) return worker_socket::kLongestWait;
    const auto left = std::chrono::ceil<Millis>(deadline - std::chrono::steady_clock::now());
    return std::clamp(left, Millis{1}, worker_socket::kLongestWait);
  }

  template <class T>
  static T check(Result<T> result) {
    if (!result) {
      const auto code = result.error().code == Errc::timed_out   ? ErrorCode::timed_out
                        : result.error().code == Errc::bad_usage ? ErrorCode::invalid_argument
                                                                 : ErrorCode::system;
      throw Error{code, "the agent's store: " + result.error().what};
    }
    if constexpr (!std::is_void_v<T>) return *std::move(result);
  }

  std::string whole(AgentClient& line, const std::string& key, std::string value) {
    if (value.empty() || (value[0] != kWhole && value[0] != kInParts)) return value;
    if (value[0] == kWhole) return value.substr(1);
    const auto parts = parse_number<std::size_t>(std::string_view{value}.substr(1));
    if (!parts) throw Error{ErrorCode::system, "key '" + key + "' isn't one that we wrote"};
    std::string all;
    for (std::size_t part = 0; part < *parts; ++part)
      all += check(line.get(part_key(key, part))).substr(1);
    return all;
  }

  // A question blocks its line: each thread that asks has one of its own. A line that failed isn't
  // given back.
  AgentClient take() {
    {
      const std::lock_guard lock{mutex_};
      if (!idle_.empty()) {
        auto line = std::move(idle_.back());
        idle_.pop_back();
        return line;
      }
    }
    return check(connect(contract_, patience_));
  }

  void give_back(AgentClient line) {
    const std::lock_guard lock{mutex_};
    idle_.push_back(std::move(line));
  }

 public:
  static Result<AgentClient> connect(const Contract& contract, Millis patience) {
    std::optional<Round> round;
    if (contract.round) round = Round{*contract.round};
    return AgentClient::connect(contract.agent_socket,
                                acc::Rank{static_cast<std::uint32_t>(contract.rank)}, round,
                                patience);
  }

 private:
  Contract contract_;
  Millis patience_;
  std::mutex mutex_;
  std::vector<AgentClient> idle_;
};

}  // namespace

Result<std::shared_ptr<Store>> connect_agent_store(const Contract& contract, Millis patience) {
  auto line = AgentStore::connect(contract, patience);
  if (!line) return line.error();
  return std::shared_ptr<Store>{std::make_shared<AgentStore>(contract, patience, *std::move(line))};
}

}  // namespace acc::runtime
