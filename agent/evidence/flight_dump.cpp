#include "agent/evidence/flight_dump.hpp"

#include "agent/evidence/culprits.hpp"
#include "common/text.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <utility>

namespace acc::agent::evidence {

namespace {

using FlightJson = nlohmann::json;

constexpr std::size_t kMostGroups = 64;
constexpr std::size_t kLongestName = 80;

// Of each process group the first call that isn't completed, and the last one. Keys as torch 2.1 to
// 2.7 write them. A process group is (name, description): each has a name of its own, and all that
// were made without a description have "undefined".
constexpr const char* kReader = R"py(
import json, pickle, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
class Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError("a dump holds no " + module + "." + name)
def shown(text):
    return str(text).split(":", 1)[-1][:80]
def read(path):
    with open(path, "rb") as f:
        dump = Plain(f).load()
    entries = dump["entries"] if isinstance(dump, dict) else dump
    groups = {}
    for one in entries:
        if one.get("is_p2p"):
            continue
        pg = one.get("process_group") or one.get("pg_id", 0)
        name, described = (tuple(pg) + ("", ""))[:2] if isinstance(pg, (tuple, list)) else (pg, "")
        description = "" if described in (None, "undefined") else str(described)[:80]
        number = int(one.get("collective_seq_id", one.get("seq_id", 0)))
        call = {"number": number, "name": shown(one.get("profiling_name", "")), "state": str(one.get("state", ""))[:20]}
        group = groups.setdefault(str(name)[:80], {"description": description, "last": call, "open": None})
        if number >= group["last"]["number"]:
            group["last"] = call
        if call["state"] != "completed" and (group["open"] is None or number < group["open"]["number"]):
            group["open"] = call
    return {"path": path, "groups": groups}
for path in sys.argv[1:]:
    try:
        print(json.dumps(read(path)), flush=True)
    except Exception as wrong:
        print(json.dumps({"path": path, "error": str(wrong)[:200]}), flush=True)
)py";

std::string flight_text(const FlightJson& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? printable(found->get<std::string>(), kLongestName)
                                                   : std::string{};
}

std::optional<FlightCall> call_of(const FlightJson& json) {
  if (!json.is_object() || !json.contains("number") || !json["number"].is_number_unsigned())
    return std::nullopt;
  return FlightCall{json["number"].get<std::uint64_t>(), flight_text(json, "name"),
                    flight_text(json, "state")};
}

// "1:tensor_parallel", "2"
std::string group_words(const FlightGroup& group) {
  return group.name + (group.description.empty() ? "" : ":" + group.description);
}

std::string call_words(const FlightCall& call) {
  return call.name + " #" + std::to_string(call.number);
}

}  // namespace

std::vector<std::string> flight_reader(const std::string& python,
                                       const std::vector<std::string>& dumps) {
  // -I and -S: neither the working directory nor the user's or the site's packages.
  std::vector<std::string> words{python, "-I", "-S", "-c", kReader};
  words.insert(words.end(), dumps.begin(), dumps.end());
  return words;
}

std::vector<FlightDump> decode_flight(std::string_view output) {
  std::vector<FlightDump> dumps;
  for (const auto& line : split(output, '\n')) {
    const auto json = FlightJson::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("groups") || !json["groups"].is_object()) continue;
    FlightDump dump{json.value("path", FlightJson{}).is_string() ? json["path"].get<std::string>()
                                                                 : std::string{},
                    {}};
    for (const auto& [name, group] : json["groups"].items()) {
      if (!group.is_object() || dump.groups.size() == kMostGroups) continue;
      const auto last = call_of(group.value("last", FlightJson{}));
      if (!last) continue;
      dump.groups.push_back({printable(name, kLongestName), *last,
                             call_of(group.value("open", FlightJson{})),
                             flight_text(group, "description")});
    }
    dumps.push_back(std::move(dump));
  }
  return dumps;
}

std::string flight_words(const FlightGroup& group) {
  const auto name = group_words(group);
  if (!group.open) return name + ": has completed " + call_words(group.last);
  std::string text = name + ": in " + call_words(*group.open) + " (" + group.open->state + ")";
  if (group.last.number > group.open->number) text += ", queued up to #" + std::to_string(group.last.number);
  return text;
}

std::vector<std::string> missing_in_flight(const std::vector<RankEvidence>& ranks) {
  struct Found {
    std::string words;
    std::optional<FlightCall> first;  ///< that some wait in
    std::vector<std::pair<std::uint32_t, const FlightGroup*>> members;
  };
  std::map<std::string, Found> by_group;
  for (const auto& rank : ranks) {
    for (const auto& group : rank.flight) {
      auto& found = by_group[group.name];
      if (found.words.empty()) found.words = group_words(group);
      found.members.emplace_back(rank.summary.rank.value(), &group);
      if (group.open && (!found.first || group.open->number < found.first->number))
        found.first = group.open;
    }
  }
  std::vector<std::string> lines;
  for (const auto& [name, found] : by_group) {
    if (!found.first) continue;
    std::vector<std::uint32_t> waiting;
    std::vector<std::uint32_t> missing;
    for (const auto& [rank, group] : found.members) {
      if (group->open && group->open->number == found.first->number) waiting.push_back(rank);
      if (group->last.number < found.first->number) missing.push_back(rank);
    }
    if (missing.empty()) continue;
    const auto who = name_ranks(missing) + (missing.size() == 1 ? " hasn't" : " haven't");
    lines.push_back("torch's flight recorder: " + who + " come to " + call_words(*found.first) +
                    " of " + found.words + ", in which " + name_ranks(waiting) +
                    (waiting.size() == 1 ? " waits" : " wait"));
  }
  return lines;
}

}  // namespace acc::agent::evidence
