#include "runtime/nccl/assembly.hpp"

#include "common/duration.hpp"
#include "runtime/bootstrap/mailbox.hpp"
#include "runtime/nccl/library.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <thread>

namespace acc::runtime::nccl {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

/// What rank 0 may take, beyond the deadline, to tell the others that it is over.
constexpr auto kGrace = 500ms;
constexpr auto kForEver = std::chrono::hours{24 * 365};

std::string dump(const json& fields) {
  return fields.dump(-1, ' ', true, json::error_handler_t::replace);
}

std::string hex(const UniqueId& id) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : id.bytes) {
    text += kDigits[(static_cast<unsigned char>(byte) >> 4) & 15];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

UniqueId unhex(const std::string& text) {
  UniqueId id{};
  if (text.size() != 2 * sizeof id.bytes) throw std::invalid_argument{"length of the id"};
  for (std::size_t i = 0; i < sizeof id.bytes; ++i) {
    id.bytes[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return id;
}

std::string start_key(const GroupFacts& facts) { return facts.key + "/nccl/start"; }
std::string heard_key(const GroupFacts& facts) { return facts.key + "/nccl/start/heard"; }

std::string who(const GroupFacts& facts, int rank) {
  const auto at = static_cast<std::size_t>(rank);
  std::string text = std::to_string(rank);
  if (at < facts.ranks.size() && !facts.ranks[at].host.empty()) {
    text += " (host " + facts.ranks[at].host + ")";
  }
  return text;
}

Mailbox arrivals_of(Store& store, const GroupFacts& facts) {
  return {store, facts.key + "/nccl/arrivals"};
}

Error nobody_came(const GroupFacts& facts, const std::vector<Arrival>& arrivals, Millis limit) {
  std::string joined;
  std::vector<int> missing;
  for (int rank = 0; rank < facts.size; ++rank) {
    if (std::any_of(arrivals.begin(), arrivals.end(),
                    [&](const Arrival& arrival) { return arrival.rank == rank; })) {
      joined += (joined.empty() ? "" : ", ") + who(facts, rank);
    } else {
      missing.push_back(rank);
    }
  }
  return Error{ErrorCode::timed_out,
               "group '" + facts.name + "': " + describe_ranks(missing) + " of " +
                   std::to_string(facts.size) + (missing.size() == 1 ? " has" : " have") +
                   " not joined NCCL after " + describe(limit) + "; joined: " + joined,
               missing};
}

/// Rank 0's part: nothing is wrong, or what is. Heard in the order in which they come, as a rank
/// that failed is no reason to wait for a late one.
std::optional<Error> hear_all(Store& store, const GroupFacts& facts, const Arrival& mine,
                              Clock::time_point deadline, Millis limit) {
  auto mailbox = arrivals_of(store, facts);
  std::vector<Arrival> arrivals{mine};
  while (arrivals.back().trouble.empty() &&
         arrivals.size() < static_cast<std::size_t>(facts.size)) {
    std::string text;
    try {
      text = mailbox.next(deadline);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::timed_out) throw;
      return nobody_came(facts, arrivals, limit);
    }
    auto arrival = parse_arrival(text);
    if (!arrival) {
      return Error{ErrorCode::system, "group '" + facts.name +
                                          "': what a rank wrote into the store for NCCL can't be "
                                          "understood"};
    }
    arrivals.push_back(std::move(*arrival));
  }
  std::sort(arrivals.begin(), arrivals.end(),
            [](const Arrival& a, const Arrival& b) { return a.rank < b.rank; });
  return objection(facts.name, arrivals);
}

/// The store may live in this process and go with it: those who have come are to hear the error.
void await_readers(Store& store, const GroupFacts& facts) {
  const auto came = static_cast<std::int64_t>(arrivals_of(store, facts).look().size());
  const auto deadline = Clock::now() + kGrace;
  while (store.add(heard_key(facts), 0) < came && Clock::now() < deadline) {
    std::this_thread::sleep_for(5ms);
  }
}

UniqueId open_meeting(Store& store, const GroupFacts& facts, const Arrival& mine,
                      Clock::time_point deadline, Millis limit,
                      const std::function<UniqueId()>& make_id) {
  try {
    auto trouble = hear_all(store, facts, mine, deadline, limit);
    if (trouble) throw Error{*trouble};
    const auto id = make_id();
    store.set(start_key(facts), dump({{"id", hex(id)}}));
    return id;
  } catch (const Error& error) {
    store.set(start_key(facts), dump({{"error", to_text(error)}}));
    await_readers(store, facts);
    throw;
  }
}

UniqueId join_meeting(Store& store, const GroupFacts& facts, const Arrival& mine,
                      Clock::time_point deadline, Millis limit) {
  arrivals_of(store, facts).put(to_text(mine));
  std::string text;
  try {
    text = store.get(start_key(facts), deadline + kGrace);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::timed_out) throw;
    throw Error{ErrorCode::timed_out,
                "group '" + facts.name + "': rank " + who(facts, 0) +
                    " has not made an NCCL id after " + describe(limit) +
                    ", as the first rank must; waiting: rank " + std::to_string(mine.rank),
                {0}};
  }
  try {
    const auto start = json::parse(text);
    if (start.contains("id")) return unhex(start.at("id").get<std::string>());
    if (auto told = parse_error(start.at("error").get<std::string>())) {
      (void)store.add(heard_key(facts), 1);
      throw Error{*told};
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
  }
  throw Error{ErrorCode::system,
              "group '" + facts.name + "': what rank 0 wrote into the store can't be understood"};
}

}  // namespace

std::string to_text(const Arrival& arrival) {
  return dump({{"rank", arrival.rank},
               {"version", arrival.version},
               {"device", arrival.device},
               {"machine", arrival.machine},
               {"host", arrival.host},
               {"trouble", arrival.trouble}});
}

std::optional<Arrival> parse_arrival(std::string_view text) {
  try {
    const auto fields = json::parse(text);
    return Arrival{.rank = fields.at("rank").get<int>(),
                   .version = fields.at("version").get<int>(),
                   .device = fields.at("device").get<std::string>(),
                   .machine = fields.at("machine").get<std::string>(),
                   .host = fields.at("host").get<std::string>(),
                   .trouble = fields.at("trouble").get<std::string>()};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::string to_text(const Error& error) {
  return dump({{"code", static_cast<int>(error.code())},
               {"what", error.what()},
               {"ranks", error.ranks()},
               {"operation", error.operation()},
               {"sequence", error.sequence()}});
}

std::optional<Error> parse_error(std::string_view text) {
  try {
    const auto fields = json::parse(text);
    const int code = fields.at("code").get<int>();
    if (code < 0 || code > static_cast<int>(ErrorCode::nccl)) return std::nullopt;
    return Error{static_cast<ErrorCode>(code), fields.at("what").get<std::string>(),
                 fields.at("ranks").get<std::vector<int>>(),
                 fields.at("operation").get<std::string>(),
                 fields.at("sequence").get<std::uint64_t>()};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::optional<Error> objection(const std::string& group, const std::vector<Arrival>& arrivals) {
  for (const auto& arrival : arrivals) {
    if (arrival.trouble.empty()) continue;
    return Error{ErrorCode::nccl,
                 "group '" + group + "': rank " + std::to_string(arrival.rank) + " (host " +
                     arrival.host + ") can't use NCCL: " + arrival.trouble,
                 {arrival.rank}};
  }
  std::map<int, std::vector<int>> versions;
  for (const auto& arrival : arrivals) versions[arrival.version].push_back(arrival.rank);
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
  for (const auto& arrival : arrivals) {
    const auto [at, fresh] = taken.try_emplace({arrival.machine, arrival.device}, arrival.rank);
    if (fresh) continue;
    return Error{ErrorCode::nccl,
                 "group '" + group + "': ranks " + std::to_string(at->second) + " and " +
                     std::to_string(arrival.rank) + " use the same device " + arrival.device +
                     " of host " + arrival.host +
                     ": NCCL wants a device for each rank; start fewer ranks there, or check "
                     "CUDA_VISIBLE_DEVICES and the device that the program chose",
                 {at->second, arrival.rank}};
  }
  return std::nullopt;
}

UniqueId assemble(Store& store, const GroupFacts& facts, const Arrival& mine,
                  std::optional<Clock::time_point> deadline, Millis limit,
                  const std::function<UniqueId()>& make_id) {
  const auto end = deadline.value_or(Clock::now() + kForEver);
  return facts.rank == 0 ? open_meeting(store, facts, mine, end, limit, make_id)
                         : join_meeting(store, facts, mine, end, limit);
}

std::string machine_id() {
  if (const char* id = std::getenv("NCCL_HOSTID"); id != nullptr && *id != '\0') return id;
  std::string id;
  std::ifstream{"/proc/sys/kernel/random/boot_id"} >> id;
  return id;
}

}  // namespace acc::runtime::nccl
