#include "runtime/bootstrap/roll.hpp"

#include "common/duration.hpp"
#include "common/text.hpp"
#include "runtime/backend.hpp"
#include "runtime/bootstrap/fields.hpp"
#include "runtime/bootstrap/mailbox.hpp"

#include <sys/random.h>

#include <algorithm>
#include <map>
#include <optional>

namespace acc::runtime {

namespace {

/// Names of ranks in one message, at most.
constexpr std::size_t kNamed = 16;
/// For the others to read why the group doesn't come to be.
constexpr auto kLeaveTime = std::chrono::milliseconds{800};

std::string roll_key(const std::string& key) { return key + "/roll"; }
Mailbox joiners(Store& store, const std::string& key) { return {store, key + "/join"}; }

std::string random_token() {
  unsigned char bytes[16] = {};
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    throw Error{ErrorCode::system, "no random bytes from the kernel"};
  std::string token;
  for (const auto byte : bytes) {
    token += "0123456789abcdef"[byte >> 4];
    token += "0123456789abcdef"[byte & 15];
  }
  return token;
}

std::string to_text(const Roll& roll) {
  std::vector<std::string> fields{"acc-roll", roll.backend, roll.check ? "1" : "0", roll.token};
  for (const auto& member : roll.members) fields.push_back(to_text(member));
  return pack(fields);
}

Roll parse_roll(const std::string& text, const Member& me) {
  if (auto error = parse_error(text)) throw *std::move(error);
  const auto fields = unpack(text);
  Roll roll;
  if (fields && fields->size() == 4 + static_cast<std::size_t>(me.size) &&
      fields->front() == "acc-roll") {
    roll.backend = fields->at(1);
    roll.check = fields->at(2) == "1";
    roll.token = fields->at(3);
    for (auto member = fields->begin() + 4; member != fields->end(); ++member) {
      if (auto parsed = parse_member(*member)) roll.members.push_back(*std::move(parsed));
    }
  }
  if (roll.members.size() != static_cast<std::size_t>(me.size))
    throw Error{ErrorCode::system,
                "rank 0's roll of the group can't be read: the ranks run different versions"};
  return roll;
}

using Joined = std::map<int, Member>;

// Of those that never wrote the roll: rank 0 is stopped, or waits for something else.
Error not_answered(const Member& me, const GroupOptions& options) {
  return {ErrorCode::timed_out,
          "all " + std::to_string(me.size) +
              " ranks have joined, but rank 0 didn't say so within " +
              acc::describe(options.init_timeout.value_or(Millis{0})) + ": is it stopped?",
          {0}};
}

Error not_joined(const Joined& joined, const Member& me, const GroupOptions& options) {
  std::vector<int> missing;
  for (int r = 0; r < me.size; ++r)
    if (!joined.contains(r)) missing.push_back(r);
  if (missing.empty()) return not_answered(me, options);
  std::string who;
  std::size_t named = 0;
  for (const auto& [rank, member] : joined) {
    if (named++ == kNamed) break;
    who += (who.empty() ? "" : ", ") + describe(member);
  }
  if (joined.size() > kNamed) who += " and " + std::to_string(joined.size() - kNamed) + " more";
  return {ErrorCode::timed_out,
          describe_ranks(missing) + " of " + std::to_string(me.size) +
              (missing.size() == 1 ? " has" : " have") + " not joined after " +
              acc::describe(options.init_timeout.value_or(Millis{0})) +
              "; joined: " + (who.empty() ? "none" : who),
          missing};
}

void check_member(const Member& member, const Member& me, const Joined& joined) {
  if (member.size != me.size)
    throw Error{ErrorCode::invalid_argument, "rank " + describe(member) + " has a world size of " +
                                                 std::to_string(member.size) + ", rank " +
                                                 describe(me) + " of " + std::to_string(me.size)};
  if (member.rank < 0 || member.rank >= me.size)
    throw Error{ErrorCode::invalid_argument,
                "there is no rank " + describe(member) + " of " + std::to_string(me.size)};
  const auto same = joined.find(member.rank);
  if (same != joined.end())
    throw Error{
        ErrorCode::invalid_argument,
        "two processes are one rank: " + describe(same->second) + " and " + describe(member)};
}

std::string choose_backend(const Joined& joined) {
  const auto wants = [&](const std::string& what) {
    return std::find_if(joined.begin(), joined.end(),
                        [&](const auto& entry) { return entry.second.backend == what; });
  };
  const auto cpu = wants(kWantsCpu), nccl = wants(kWantsNccl);
  if (cpu != joined.end() && nccl != joined.end())
    throw Error{ErrorCode::invalid_argument, "the ranks ask for different backends: cpu rank " +
                                                 describe(cpu->second) + ", nccl rank " +
                                                 describe(nccl->second)};
  if (nccl != joined.end()) return "nccl";
  const bool all_can = wants(kCannotNccl) == joined.end() && cpu == joined.end();
  return all_can ? "nccl" : "cpu";
}

Roll collect(Store& store, const std::string& key, const Member& me, const GroupOptions& options,
             Store::Deadline deadline) {
  Joined joined{{me.rank, me}};
  auto mail = joiners(store, key);
  while (joined.size() < static_cast<std::size_t>(me.size)) {
    std::string letter;
    try {
      letter = mail.next(deadline);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::timed_out) throw not_joined(joined, me, options);
      throw;
    }
    if (auto error = parse_error(letter)) throw *std::move(error);
    auto member = parse_member(letter);
    if (!member)
      throw Error{ErrorCode::invalid_argument,
                  "a rank's greeting can't be read: the ranks run different versions"};
    if (*member == me) continue;
    check_member(*member, me, joined);
    joined.emplace(member->rank, *std::move(member));
  }
  Roll roll;
  roll.backend = choose_backend(joined);
  roll.check = options.check.value_or(roll.backend == "cpu");
  roll.token = random_token();
  for (auto& [rank, member] : joined) roll.members.push_back(std::move(member));
  return roll;
}

// Whoever isn't rank 0 can look up by itself who is missing: rank 0, perhaps.
Error look_who_joined(Store& store, const std::string& key, const Member& me,
                      const GroupOptions& options) {
  Joined joined{{me.rank, me}};
  for (const auto& letter : joiners(store, key).look()) {
    if (auto member = parse_member(letter)) joined.emplace(member->rank, *std::move(member));
  }
  return not_joined(joined, me, options);
}

}  // namespace

std::vector<int> Roll::local_ranks(int rank) const {
  std::vector<int> found;
  for (const auto& member : members) {
    if (member.host.key == members[static_cast<std::size_t>(rank)].host.key)
      found.push_back(member.rank);
  }
  return found;
}

bool Roll::one_host() const { return local_ranks(0).size() == members.size(); }

Roll call_the_roll(Store& store, const std::string& key, const Member& me,
                   const GroupOptions& options, Store::Deadline deadline) {
  joiners(store, key).put(to_text(me));  // rank 0's too: the others see that it has come
  if (me.rank == 0) {
    try {
      auto roll = collect(store, key, me, options, deadline);
      store.set(roll_key(key), to_text(roll));
      return roll;
    } catch (const Error& error) {
      excuse(store, key, me, error);
      throw;
    }
  }
  std::string roll;
  try {
    roll = store.get(roll_key(key), deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::timed_out) throw;
    throw look_who_joined(store, key, me, options);
  }
  return parse_roll(roll, me);
}

void excuse(Store& store, const std::string& key, const Member& me, const Error& why) noexcept {
  try {
    if (me.rank == 0) return store.set(roll_key(key), to_text(why));
    joiners(store, key)
        .put(to_text(Error{why.code(), "rank " + describe(me) + ": " + why.what(), why.ranks()}));
  } catch (const std::exception&) {
    return;  // the store is gone: the others see that by themselves
  }
}

void take_leave(Store& store, const std::string& key, int rank) noexcept {
  try {
    Mailbox leaves{store, key + "/leave"};
    if (rank != 0) return leaves.put("rank " + std::to_string(rank));
    const auto until = Clock::now() + kLeaveTime;
    for (auto others = joiners(store, key).look().size(); others > 1; --others)
      (void)leaves.next(until);
  } catch (const std::exception&) {
    return;  // somebody doesn't, or the store is gone
  }
}

}  // namespace acc::runtime
