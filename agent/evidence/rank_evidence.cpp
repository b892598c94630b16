#include "agent/evidence/rank_evidence.hpp"

#include <nlohmann/json.hpp>

#include <utility>

namespace acc::agent::evidence {

using Json = nlohmann::json;

namespace {

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json json_of(const RankSummary& s) {
  Json json{{"rank", s.rank.value()},
            {"local_rank", s.local_rank.value()},
            {"node", s.node},
            {"pid", s.pid},
            {"state", std::string(1, s.state)},
            {"silent", s.is_silent},
            {"beaten", s.has_beaten},
            {"step", s.step},
            {"collectives", s.collectives},
            {"inside", s.is_inside},
            {"operation", s.operation},
            {"waits", nullptr},
            {"stack", s.stack_key},
            {"at", s.at}};
  if (s.waits_for_others) json["waits"] = *s.waits_for_others;
  return json;
}

RankSummary summary_of(const Json& json) {
  RankSummary s;
  s.rank = Rank{json.at("rank").get<std::uint32_t>()};
  s.local_rank = LocalRank{json.at("local_rank").get<std::uint32_t>()};
  s.node = json.at("node").get<std::string>();
  s.pid = json.at("pid").get<pid_t>();
  const auto state = json.at("state").get<std::string>();
  s.state = state.empty() ? '?' : state.front();
  s.is_silent = json.at("silent").get<bool>();
  s.has_beaten = json.at("beaten").get<bool>();
  s.step = json.at("step").get<std::uint64_t>();
  s.collectives = json.at("collectives").get<std::uint64_t>();
  s.is_inside = json.at("inside").get<bool>();
  s.operation = json.at("operation").get<std::string>();
  if (json.at("waits").is_boolean()) s.waits_for_others = json.at("waits").get<bool>();
  s.stack_key = json.at("stack").get<std::string>();
  s.at = json.at("at").get<std::string>();
  return s;
}

Json json_of(const std::vector<RankSummary>& ranks) {
  Json json = Json::array();
  for (const auto& rank : ranks) json.push_back(json_of(rank));
  return json;
}

std::vector<RankSummary> summaries_of(const Json& json) {
  std::vector<RankSummary> ranks;
  for (const auto& one : json) ranks.push_back(summary_of(one));
  return ranks;
}

// Bytes of another process: anything may be in them.
template <class Read>
auto total(std::string_view text, Read read) -> Result<decltype(read(Json{}))> {
  try {
    return read(Json::parse(text));
  } catch (const Json::exception& e) {
    return Error{Errc::malformed, std::string{"evidence: "} + e.what()};
  }
}

}  // namespace

std::string encode(const Request& r) {
  Json json{{"job", r.facts.job},     {"node", r.facts.node}, {"round", r.facts.round},
            {"why", r.facts.why},     {"when", r.facts.when}, {"page", r.has_page},
            {"limit_ms", r.limit_ms}, {"file", r.file},       {"workers", Json::array()}};
  for (const auto& worker : r.workers)
    json["workers"].push_back({{"rank", worker.rank.value()},
                               {"local_rank", worker.local_rank.value()},
                               {"pid", worker.pid},
                               {"silent", worker.is_silent}});
  return dump(json);
}

Result<Request> decode_request(std::string_view text) {
  return total(text, [](const Json& json) {
    Request r;
    r.facts.job = json.at("job").get<std::string>();
    r.facts.node = json.at("node").get<std::string>();
    r.facts.round = json.at("round").get<std::uint64_t>();
    r.facts.why = json.at("why").get<std::string>();
    r.facts.when = json.at("when").get<std::string>();
    r.has_page = json.at("page").get<bool>();
    r.limit_ms = json.at("limit_ms").get<std::int64_t>();
    r.file = json.at("file").get<std::string>();
    for (const auto& one : json.at("workers"))
      r.workers.push_back({Rank{one.at("rank").get<std::uint32_t>()},
                           LocalRank{one.at("local_rank").get<std::uint32_t>()},
                           one.at("pid").get<pid_t>(), one.at("silent").get<bool>()});
    return r;
  });
}

std::string encode(const Answer& a) {
  return dump(Json{{"text", a.text}, {"ranks", json_of(a.ranks)}, {"file", a.file}});
}

Result<Answer> decode_answer(std::string_view text) {
  return total(text, [](const Json& json) {
    return Answer{json.at("text").get<std::string>(), summaries_of(json.at("ranks")),
                  json.at("file").get<std::string>()};
  });
}

std::string encode(const std::vector<RankSummary>& ranks) { return dump(json_of(ranks)); }

Result<std::vector<RankSummary>> decode_ranks(std::string_view text) {
  return total(text, [](const Json& json) { return summaries_of(json); });
}

}  // namespace acc::agent::evidence
