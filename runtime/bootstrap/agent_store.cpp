#include "runtime/bootstrap/agent_store.hpp"

#include "common/text.hpp"
#include "runtime/net/fields.hpp"

#include <algorithm>
#include <mutex>
#include <vector>

namespace acc::runtime {

namespace {

/// Bytes of one part of a value.
constexpr std::size_t kPart = worker_socket::kMaxValue - 1;
/// First character of a stored value; counters (digits) have none.
constexpr char kWhole = '.';
constexpr char kInParts = '+';

class AgentStore final : public Store {
 public:
  AgentStore(LaunchEnvironment launch, Millis patience, AgentClient first)
      : launch_{std::move(launch)}, patience_{patience} {
    idle_.push_back(std::move(first));
  }

  [[nodiscard]] std::string kind() const override { return "agent"; }

  void set(const std::string& key, const std::string& value) override {
    auto connection = take();
    if (value.size() <= kPart) {
      check(connection.set(key, kWhole + value));
    } else {
      std::size_t parts = 0;
      for (std::size_t at = 0; at < value.size(); at += kPart)
        check(connection.set(part_key(key, parts++), kWhole + value.substr(at, kPart)));
      check(connection.set(
          key, kInParts + std::to_string(parts)));  // last: a reader that finds it finds all parts
    }
    give_back(std::move(connection));
  }

  [[nodiscard]] std::string get(const std::string& key, Deadline deadline) override {
    auto connection = take();
    auto value = check(connection.get(key, time_left(deadline)));
    value = assemble(connection, key, std::move(value));
    give_back(std::move(connection));
    return value;
  }

  [[nodiscard]] std::optional<std::string> peek(const std::string& key) override {
    auto connection = take();
    auto value = connection.get(key);
    if (!value && value.error().code == Errc::not_found) {
      give_back(std::move(connection));
      return std::nullopt;
    }
    auto found = assemble(connection, key, check(std::move(value)));
    give_back(std::move(connection));
    return found;
  }

  std::int64_t add(const std::string& key, std::int64_t delta) override {
    auto connection = take();
    const auto sum = check(connection.add(key, delta));
    give_back(std::move(connection));
    return sum;
  }

  void remove(const std::string& key) override {
    auto connection = take();
    if (const auto value = connection.get(key); value && value->starts_with(kInParts))
      for (std::size_t part = 0; check(connection.remove(part_key(key, part))); ++part) continue;
    (void)check(connection.remove(key));
    give_back(std::move(connection));
  }

 private:
  static std::string part_key(const std::string& key, std::size_t part) {
    return key + "#" + std::to_string(part);
  }

  // At least 1: with 0 the agent answers immediately, `missing` instead of `timed_out`.
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

  std::string assemble(AgentClient& connection, const std::string& key, std::string value) {
    if (value.empty() || (value[0] != kWhole && value[0] != kInParts)) return value;
    if (value[0] == kWhole) return value.substr(1);
    const auto parts = parse_number<std::size_t>(std::string_view{value}.substr(1));
    if (!parts) throw Error{ErrorCode::system, "key '" + key + "' isn't one that we wrote"};
    std::string all;
    for (std::size_t part = 0; part < *parts; ++part)
      all += check(connection.get(part_key(key, part))).substr(1);
    return all;
  }

  // A request blocks its connection, so each thread that asks uses its own. A failed connection is
  // not returned to the pool.
  AgentClient take() {
    {
      const std::lock_guard lock{mutex_};
      if (!idle_.empty()) {
        auto connection = std::move(idle_.back());
        idle_.pop_back();
        return connection;
      }
    }
    return check(connect(launch_, patience_));
  }

  void give_back(AgentClient connection) {
    const std::lock_guard lock{mutex_};
    idle_.push_back(std::move(connection));
  }

 public:
  static Result<AgentClient> connect(const LaunchEnvironment& launch, Millis patience) {
    std::optional<Round> round;
    if (launch.round) round = Round{*launch.round};
    return AgentClient::connect(
        launch.agent_socket, acc::Rank{static_cast<std::uint32_t>(launch.rank)}, round, patience);
  }

 private:
  LaunchEnvironment launch_;
  Millis patience_;
  std::mutex mutex_;
  std::vector<AgentClient> idle_;
};

}  // namespace

Result<std::shared_ptr<Store>> connect_agent_store(const LaunchEnvironment& launch,
                                                   Millis patience) {
  auto connection = AgentStore::connect(launch, patience);
  if (!connection) return connection.error();
  return std::shared_ptr<Store>{
      std::make_shared<AgentStore>(launch, patience, *std::move(connection))};
}

}  // namespace acc::runtime
