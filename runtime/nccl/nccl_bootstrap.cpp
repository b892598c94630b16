#include "runtime/nccl/nccl_bootstrap.hpp"

#include "common/text.hpp"
#include "runtime/nccl/library.hpp"
#include "runtime/net/fields.hpp"
#include "runtime/net/gather.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>

namespace acc::runtime::nccl {
namespace {

std::string who(const GroupFacts& facts, int rank) {
  const auto at = static_cast<std::size_t>(rank);
  std::string text = std::to_string(rank);
  if (at < facts.ranks.size() && !facts.ranks[at].host.empty()) {
    text += " (host " + facts.ranks[at].host + ")";
  }
  return text;
}

}  // namespace

std::string to_text(const RankSetup& setup) {
  return pack({std::to_string(setup.rank), std::to_string(setup.version), setup.device,
               setup.machine, setup.host, setup.trouble});
}

std::optional<RankSetup> parse_setup(std::string_view text) {
  const auto fields = unpack(text);
  if (!fields || fields->size() != 6) return std::nullopt;
  const auto rank = parse_number<int>(fields->at(0));
  const auto version = parse_number<int>(fields->at(1));
  if (!rank || !version) return std::nullopt;
  return RankSetup{.rank = *rank,
                   .version = *version,
                   .device = fields->at(2),
                   .machine = fields->at(3),
                   .host = fields->at(4),
                   .trouble = fields->at(5)};
}

std::optional<Error> incompatibility(const std::string& group,
                                     const std::vector<RankSetup>& setups) {
  for (const auto& setup : setups) {
    if (setup.trouble.empty()) continue;
    return Error{ErrorCode::nccl,
                 "group '" + group + "': rank " + std::to_string(setup.rank) + " (host " +
                     setup.host + ") can't use NCCL: " + setup.trouble,
                 {setup.rank}};
  }
  std::map<int, std::vector<int>> versions;
  for (const auto& setup : setups) versions[setup.version].push_back(setup.rank);
  if (versions.size() > 1) {
    std::string text = "group '" + group + "': the ranks have different versions of NCCL";
    const auto common = std::max_element(
        versions.begin(), versions.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    std::vector<int> odd;
    const char* separator = ": ";
    for (const auto& [version, ranks] : versions) {
      text += separator + describe_ranks(ranks) + ": " + describe_version(version);
      separator = ", ";
      if (version != common->first) odd.insert(odd.end(), ranks.begin(), ranks.end());
    }
    std::sort(odd.begin(), odd.end());
    return Error{ErrorCode::nccl, text + ": install one version everywhere", odd};
  }
  std::map<std::pair<std::string, std::string>, int> taken;
  for (const auto& setup : setups) {
    const auto [at, fresh] = taken.try_emplace({setup.machine, setup.device}, setup.rank);
    if (fresh) continue;
    return Error{ErrorCode::nccl,
                 "group '" + group + "': ranks " + std::to_string(at->second) + " and " +
                     std::to_string(setup.rank) + " use the same device " + setup.device +
                     " of host " + setup.host +
                     ": NCCL wants a device for each rank; start fewer ranks there, or check "
                     "CUDA_VISIBLE_DEVICES and the device that the program chose",
                 {at->second, setup.rank}};
  }
  return std::nullopt;
}

UniqueId bootstrap(Store& store, const GroupFacts& facts, const RankSetup& mine,
                   std::optional<Clock::time_point> deadline, Millis limit,
                   const std::function<UniqueId()>& make_id,
                   const std::function<void()>& check_parties) {
  const auto late = [&](const Gather::Texts& sent) {
    const auto error = not_joined(sent, facts.size, "joined NCCL", limit,
                                  [&](int rank, const std::string&) { return who(facts, rank); });
    return Error{error.code(), "group '" + facts.name + "': " + error.what(), error.ranks()};
  };
  const auto refuse = [&](const std::vector<RankSetup>& setups) {
    if (auto error = incompatibility(facts.name, setups)) throw *std::move(error);
  };
  // A rank that can't take part ends it without waiting for late ones.
  const auto check = [&](int, const std::string& text) {
    if (const auto setup = parse_setup(text); setup && !setup->trouble.empty()) refuse({*setup});
  };
  const auto answer = [&](const Gather::Texts& texts) {
    std::vector<RankSetup> setups;
    for (const auto& [rank, text] : texts) {
      auto setup = parse_setup(text);
      if (!setup)
        throw Error{ErrorCode::invalid_argument,
                    "group '" + facts.name + "': what rank " + std::to_string(rank) +
                        " tells of its NCCL can't be read: the ranks run different versions"};
      setups.push_back(*std::move(setup));
    }
    refuse(setups);
    const auto id = make_id();
    return std::string{id.bytes, sizeof id.bytes};
  };
  const auto end = deadline.value_or(Clock::time_point::max());
  Gather gather{store, {facts.key + "/nccl", facts.rank, facts.size, end, late, check_parties}};
  std::string id;
  try {
    id = gather.run(to_text(mine), {check, answer});
  } catch (const Error&) {
    // Rank 0's process may serve the store: the others are to read the cause before it ends.
    if (store.kind() == "tcp") gather.await_readers();
    throw;
  }
  UniqueId made{};
  if (id.size() != sizeof made.bytes)
    throw Error{ErrorCode::system, "group '" + facts.name +
                                       "': the NCCL id of rank 0 can't be read: the ranks run "
                                       "different versions"};
  id.copy(made.bytes, sizeof made.bytes);
  return made;
}

std::string machine_id() {
  if (const char* id = std::getenv("NCCL_HOSTID"); id != nullptr && *id != '\0') return id;
  std::string id;
  std::ifstream{"/proc/sys/kernel/random/boot_id"} >> id;
  return id;
}

}  // namespace acc::runtime::nccl
