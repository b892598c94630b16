#include "runtime/bootstrap/manifest.hpp"

#include "common/text.hpp"
#include "runtime/backend.hpp"
#include "runtime/net/fields.hpp"
#include "runtime/net/gather.hpp"

#include <sys/random.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

namespace acc::runtime {

namespace {

/// Characters of a group's name in a message.
constexpr std::size_t kShown = 80;

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

std::string to_text(const GroupManifest& manifest) {
  std::vector<std::string> fields{"acc-manifest", manifest.backend, manifest.check ? "1" : "0",
                                  manifest.token};
  for (const auto& member : manifest.members) fields.push_back(to_text(member));
  return pack(fields);
}

GroupManifest parse_manifest(const std::string& text, const Member& me) {
  const auto fields = unpack(text);
  GroupManifest manifest;
  if (fields && fields->size() == 4 + static_cast<std::size_t>(me.size) &&
      fields->front() == "acc-manifest") {
    manifest.backend = fields->at(1);
    manifest.check = fields->at(2) == "1";
    manifest.token = fields->at(3);
    for (auto member = fields->begin() + 4; member != fields->end(); ++member) {
      if (auto parsed = parse_member(*member)) manifest.members.push_back(*std::move(parsed));
    }
  }
  if (manifest.members.size() != static_cast<std::size_t>(me.size))
    throw Error{ErrorCode::system,
                "rank 0's manifest of the group can't be read: the ranks run different versions"};
  return manifest;
}

using Joined = std::map<int, Member>;

Member parsed(const std::string& text) {
  if (auto member = parse_member(text)) return *std::move(member);
  throw Error{ErrorCode::invalid_argument,
              "a rank's greeting can't be read: the ranks run different versions"};
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

/// Compared when all have joined, so that all receive the error; the store may be rank 0's own.
std::optional<Error> difference_of_names(const Joined& joined) {
  if (joined.empty()) return std::nullopt;
  const auto& [rank, first] = *joined.begin();
  const auto other = std::find_if(joined.begin(), joined.end(), [&](const auto& entry) {
    return entry.second.group != first.group;
  });
  if (other == joined.end()) return std::nullopt;
  std::vector<int> like_first, like_other;
  for (const auto& [number, member] : joined) {
    if (member.group == first.group) like_first.push_back(number);
    if (member.group == other->second.group) like_other.push_back(number);
  }
  const auto form = [](const std::vector<int>& ranks, const Member& member) {
    return describe_ranks(ranks) + (ranks.size() == 1 ? " forms" : " form") + " group '" +
           printable(member.group, kShown) + "'";
  };
  return Error{ErrorCode::mismatch,
               form(like_first, first) + ", " + form(like_other, other->second) +
                   ": every rank must form the same groups in the same order",
               like_other};
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

/// Rank 0's, if all ranks mean the same.
bool choose_check(const Joined& joined, bool by_default) {
  const auto check = [&](const Member& member) { return member.check.value_or(by_default); };
  const auto& first = joined.begin()->second;
  for (const auto& [rank, member] : joined) {
    if (check(member) == check(first)) continue;
    const auto& on = check(member) ? member : first;
    const auto& off = check(member) ? first : member;
    throw Error{ErrorCode::mismatch,
                "rank " + describe(on) + " compares the ranks' calls, rank " + describe(off) +
                    " doesn't: GroupOptions::check and ACC_CHECK must be the same on all ranks",
                {first.rank, member.rank}};
  }
  return check(first);
}

GroupManifest make_manifest(const Joined& joined) {
  if (auto difference = difference_of_names(joined)) throw *std::move(difference);
  GroupManifest manifest;
  manifest.backend = choose_backend(joined);
  manifest.check = choose_check(joined, manifest.backend == "cpu");
  manifest.token = random_token();
  for (const auto& [rank, member] : joined) manifest.members.push_back(member);
  return manifest;
}

Gather gather_of(Store& store, const std::string& key, int rank, int size = 1,
                 Store::Deadline deadline = {},
                 std::function<Error(const Gather::Texts&)> late = {},
                 std::function<void()> check_parties = {}) {
  return {store,
          {key + "/members", rank, size, deadline, std::move(late), std::move(check_parties)}};
}

}  // namespace

std::vector<int> GroupManifest::local_ranks(int rank) const {
  std::vector<int> found;
  for (const auto& member : members) {
    if (member.host.key == members[static_cast<std::size_t>(rank)].host.key)
      found.push_back(member.rank);
  }
  return found;
}

bool GroupManifest::one_host() const { return local_ranks(0).size() == members.size(); }

GroupManifest gather_members(Store& store, const std::string& key, const Member& me,
                             const GroupOptions& options, Store::Deadline deadline,
                             std::function<void()> check_parties) {
  const auto describe_text = [](int rank, const std::string& text) {
    const auto member = parse_member(text);
    return member ? describe(*member) : std::to_string(rank);
  };
  const auto late = [&](const Gather::Texts& sent) {
    Joined present;
    for (const auto& [rank, text] : sent)
      if (auto member = parse_member(text)) present.emplace(rank, *std::move(member));
    if (auto difference = difference_of_names(present)) return *std::move(difference);
    return not_joined(sent, me.size, "joined", options.init_timeout.value_or(Millis{0}),
                      describe_text);
  };
  Joined joined;
  const auto check = [&](int, const std::string& text) {
    auto member = parsed(text);
    check_member(member, me, joined);
    joined.emplace(member.rank, std::move(member));
  };
  const auto answer = [&](const Gather::Texts&) { return to_text(make_manifest(joined)); };
  auto gather = gather_of(store, key, me.rank, me.size, deadline, late, std::move(check_parties));
  return parse_manifest(gather.run(to_text(me), {check, answer}), me);
}

void report_failure(Store& store, const std::string& key, const Member& me,
                    const Error& why) noexcept {
  try {
    const auto text = (me.rank == 0 ? "" : "rank " + describe(me) + ": ") + why.what();
    gather_of(store, key, me.rank).report_failure({why.code(), text, why.ranks()});
  } catch (const std::exception&) {
    return;  // no memory for the text: the others time out
  }
}

void await_readers(Store& store, const std::string& key, int rank) noexcept {
  gather_of(store, key, rank).await_readers();
}

}  // namespace acc::runtime
