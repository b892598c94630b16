#include "runtime/bootstrap/rank_process.hpp"

#include "common/text.hpp"
#include "runtime/bootstrap/member.hpp"
#include "runtime/net/fields.hpp"
#include "runtime/shm/process_watch.hpp"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <utility>

namespace acc::runtime {

namespace {

/// For the first group of this process, formed by another thread, to have its number written.
constexpr auto kWriteTime = std::chrono::seconds{60};
/// For a process that has its number to have its identity written; one that was killed in between
/// never has.
constexpr auto kIdentityTime = std::chrono::seconds{5};

/// In clock ticks since the boot: with the pid the identity of a process. Empty: unknown.
std::string start_time_of(pid_t pid) {
  constexpr std::size_t kStartTime = 19;  // field 22; the first after the name is the third
  std::ifstream file{"/proc/" + std::to_string(pid) + "/stat"};
  const std::string stat{std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{}};
  const auto end = stat.rfind(')');
  if (end == std::string::npos) return {};
  const auto fields = split(trim(std::string_view{stat}.substr(end + 1)), ' ');
  return fields.size() > kStartTime ? std::string{fields[kStartTime]} : std::string{};
}

struct Identity {
  HostFacts host = host_facts();
  pid_t pid = ::getpid();
  std::string start_time = start_time_of(::getpid());
};

/// What is set at `key` within kIdentityTime.
std::optional<std::string> identity_at(Store& store, const std::string& key) {
  try {
    return store.get(key, std::chrono::steady_clock::now() + kIdentityTime);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::timed_out) throw;
    return std::nullopt;
  }
}

/// A pid is used again, in a new pid namespace always: the start time is a part of the name.
std::string name_of(const Identity& process) {
  return process.host.key + "/" + std::to_string(process.pid) + "/" + process.start_time;
}

}  // namespace

RankProcess::RankProcess(Store& store, std::string prefix, int rank)
    : store_{store}, prefix_{std::move(prefix)}, rank_{rank} {}

void RankProcess::count_group() {
  const Identity self;
  const auto rank = std::to_string(rank_);
  const auto number_key = prefix_ + "/number/" + name_of(self);
  group_ = store_.add(prefix_ + "/made/" + name_of(self), 1) - 1;
  if (group_ > 0) {
    const auto until = std::chrono::steady_clock::now() + kWriteTime;
    number_ = parse_number<int>(store_.get(number_key, until)).value_or(0);
    return;
  }
  number_ = static_cast<int>(store_.add(prefix_ + "/processes/" + rank, 1) - 1);
  store_.set(process_key(number_),
             pack({self.host.key, self.host.name, std::to_string(self.pid), self.start_time}));
  store_.set(number_key, std::to_string(number_));
}

std::string RankProcess::process_key(int number) const {
  return prefix_ + "/process/" + std::to_string(rank_) + "/" + std::to_string(number);
}

std::string RankProcess::key() const {
  return prefix_ + "/" + std::to_string(number_) + "/" + std::to_string(group_);
}

std::optional<std::string> RankProcess::running_predecessor() {
  if (number_ == 0 || group_ != 0) return std::nullopt;
  const auto text = identity_at(store_, process_key(number_ - 1));
  const auto fields = text ? unpack(*text) : std::nullopt;
  if (!fields || fields->size() != 4 || fields->at(0) != host_facts().key) return std::nullopt;
  const auto pid = parse_number<pid_t>(fields->at(2));
  if (!pid || start_time_of(*pid) != fields->at(3)) return std::nullopt;
  shm::await_end_of_leaver(*pid);  // killed, and not waited for by the one that started us
  if (shm::has_ended(*pid)) return std::nullopt;
  store_.set(process_key(number_), *text);  // the next one looks for it, too
  Member found;
  found.rank = rank_;
  found.pid = *pid;
  found.host.name = fields->at(1);
  return describe(found);
}

}  // namespace acc::runtime
