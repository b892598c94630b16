#include "agent/evidence/rank_evidence.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

namespace acc::agent::evidence {

using Json = nlohmann::json;

namespace {

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

constexpr std::size_t kNodeAt = 2;
constexpr std::size_t kLongestText = 1000;

// Of another node or process: it is shown on terminals. UTF-8 stays, but for controls: U+0080 to
// U+009F are such, too.
std::string shown_text(const Json& json) {
  auto text = json.get<std::string>();
  if (text.size() > kLongestText) text.resize(kLongestText);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_second = i > 0 && text[i - 1] == '\xc2' && byte < 0xa0;
    if (byte < 0x20 || byte == 0x7f || is_second) text[i] = '?';
  }
  return text;
}

std::vector<std::string> shown_texts(const Json& json) {
  std::vector<std::string> texts;
  for (const auto& one : json) texts.push_back(shown_text(one));
  return texts;
}

// A row without names: of a thousand ranks all have to fit into one value of the store.
Json json_of(const RankSummary& s) {
  Json json{s.rank.value(),
            s.local_rank.value(),
            s.node,
            s.pid,
            std::string(1, s.state),
            s.is_silent,
            s.has_beaten,
            s.step,
            s.collectives,
            s.is_inside,
            s.operation,
            s.waits_for_others ? Json(*s.waits_for_others) : Json{},
            s.stack_key,
            s.at,
            s.is_overdue,
            s.is_stuck,
            s.is_starting};
  if (!s.tracer.empty()) json.push_back(s.tracer);
  return json;
}

RankSummary summary_of(const Json& json) {
  RankSummary s;
  s.rank = Rank{json.at(0).get<std::uint32_t>()};
  s.local_rank = LocalRank{json.at(1).get<std::uint32_t>()};
  s.node = shown_text(json.at(kNodeAt));
  s.pid = json.at(3).get<pid_t>();
  const auto state = shown_text(json.at(4));
  s.state = state.empty() ? '?' : state.front();
  s.is_silent = json.at(5).get<bool>();
  s.has_beaten = json.at(6).get<bool>();
  s.step = json.at(7).get<std::uint64_t>();
  s.collectives = json.at(8).get<std::uint64_t>();
  s.is_inside = json.at(9).get<bool>();
  s.operation = shown_text(json.at(10));
  if (json.at(11).is_boolean()) s.waits_for_others = json.at(11).get<bool>();
  s.stack_key = shown_text(json.at(12));
  s.at = shown_text(json.at(13));
  s.is_overdue = json.at(14).get<bool>();
  s.is_stuck = json.at(15).get<bool>();
  s.is_starting = json.at(16).get<bool>();
  if (json.size() > 17) s.tracer = shown_text(json.at(17));
  return s;
}

// "TITLE", then a function and a place for each frame.
Json json_of(const std::vector<ThreadStack>& stacks) {
  Json json = Json::array();
  for (const auto& stack : stacks) {
    Json words = Json::array({stack.title});
    for (const auto& frame : stack.frames) {
      words.push_back(frame.function);
      words.push_back(frame.place);
    }
    json.push_back(std::move(words));
  }
  return json;
}

std::vector<ThreadStack> stacks_of(const Json& json) {
  std::vector<ThreadStack> stacks;
  for (const auto& words : json) {
    ThreadStack stack{shown_text(words.at(0)), {}};
    for (std::size_t i = 1; i < words.size(); i += 2)
      stack.frames.push_back({shown_text(words.at(i)), shown_text(words.at(i + 1))});
    stacks.push_back(std::move(stack));
  }
  return stacks;
}

// Only what the text shows of it.
Json json_of(const heartbeat::Beat& beat) {
  return {beat.beats,           beat.time_ns,          beat.step,   beat.checkpoints,
          beat.checkpoint_step, beat.section_since_ns, beat.section};
}

heartbeat::Beat beat_of(const Json& json) {
  heartbeat::Beat beat;
  beat.beats = json.at(0).get<std::uint64_t>();
  beat.time_ns = json.at(1).get<std::uint64_t>();
  beat.step = json.at(2).get<std::uint64_t>();
  beat.checkpoints = json.at(3).get<std::uint64_t>();
  beat.checkpoint_step = json.at(4).get<std::uint64_t>();
  beat.section_since_ns = json.at(5).get<std::uint64_t>();
  beat.section = shown_text(json.at(6));
  return beat;
}

Json json_of(const FlightCall& call) { return {call.number, call.name, call.state}; }

FlightCall flight_call_of(const Json& json) {
  return {json.at(0).get<std::uint64_t>(), shown_text(json.at(1)),
          shown_text(json.at(2))};
}

Json json_of(const std::vector<FlightGroup>& groups) {
  Json json = Json::array();
  for (const auto& group : groups)
    json.push_back({group.name, json_of(group.last), group.open ? json_of(*group.open) : Json{},
                    group.description});
  return json;
}

std::vector<FlightGroup> flight_of(const Json& json) {
  std::vector<FlightGroup> groups;
  for (const auto& one : json) {
    groups.push_back({shown_text(one.at(0)), flight_call_of(one.at(1)), std::nullopt, {}});
    if (!one.at(2).is_null()) groups.back().open = flight_call_of(one.at(2));
    if (one.size() > 3) groups.back().description = shown_text(one.at(3));
  }
  return groups;
}

Json json_of(const RankEvidence& rank) {
  Json json{{"summary", json_of(rank.summary)}};
  if (rank.beat) json["beat"] = json_of(*rank.beat);
  if (rank.seconds_since_beat > 0) json["since_beat"] = rank.seconds_since_beat;
  if (rank.worker_pid != 0) json["worker"] = rank.worker_pid;
  if (!rank.command.empty()) json["command"] = rank.command;
  if (!rank.wait_channel.empty()) json["channel"] = rank.wait_channel;
  if (!rank.system_call.empty()) json["call"] = rank.system_call;
  if (!rank.python.empty()) json["python"] = json_of(rank.python);
  if (!rank.native.empty()) json["native"] = json_of(rank.native);
  if (!rank.notes.empty()) json["notes"] = rank.notes;
  if (!rank.flight.empty()) json["flight"] = json_of(rank.flight);
  return json;
}

RankEvidence rank_of(const Json& json) {
  RankEvidence rank;
  rank.summary = summary_of(json.at("summary"));
  if (json.contains("beat")) rank.beat = beat_of(json.at("beat"));
  rank.seconds_since_beat = json.value("since_beat", 0.0);
  rank.worker_pid = json.value("worker", pid_t{0});
  rank.command = (json.contains("command") ? shown_text(json.at("command")) : std::string{});
  rank.wait_channel = (json.contains("channel") ? shown_text(json.at("channel")) : std::string{});
  rank.system_call = (json.contains("call") ? shown_text(json.at("call")) : std::string{});
  if (json.contains("python")) rank.python = stacks_of(json.at("python"));
  if (json.contains("native")) rank.native = stacks_of(json.at("native"));
  if (json.contains("flight")) rank.flight = flight_of(json.at("flight"));
  if (json.contains("notes")) rank.notes = shown_texts(json.at("notes"));
  return rank;
}

Json json_of(const std::vector<FinishedRank>& finished) {
  Json json = Json::array();
  for (const auto& one : finished) json.push_back({one.rank.value(), one.before.count()});
  return json;
}

std::vector<FinishedRank> finished_of(const Json& json) {
  std::vector<FinishedRank> finished;
  for (const auto& one : json)
    finished.push_back({Rank{one.at(0).get<std::uint32_t>()},
                        Millis{std::max(one.at(1).get<std::int64_t>(), std::int64_t{0})}});
  return finished;
}

Json json_of(const NodeEvidence& evidence) {
  Json json{{"node", evidence.node}, {"tools", evidence.tools}, {"ranks", Json::array()}};
  if (!evidence.finished.empty()) json["finished"] = json_of(evidence.finished);
  if (evidence.lacks_native_tool) json["lacks_native_tool"] = true;
  for (const auto& rank : evidence.ranks) {
    json["ranks"].push_back(json_of(rank));
    auto& name = json["ranks"].back()["summary"][kNodeAt];
    if (rank.summary.node == evidence.node) name = "";
  }
  return json;
}

NodeEvidence node_of(const Json& json) {
  NodeEvidence evidence;
  evidence.node = shown_text(json.at("node"));
  evidence.tools = shown_texts(json.at("tools"));
  evidence.lacks_native_tool = json.value("lacks_native_tool", false);
  if (json.contains("finished")) evidence.finished = finished_of(json.at("finished"));
  for (const auto& one : json.at("ranks")) {
    evidence.ranks.push_back(rank_of(one));
    auto& name = evidence.ranks.back().summary.node;
    if (name.empty()) name = evidence.node;
  }
  return evidence;
}

const char* name_of(Purpose purpose) { return purpose == Purpose::end ? "end" : "look"; }

// A purpose of another version is the one that stops nobody.
Purpose purpose_of(const std::string& name) {
  return name == "end" ? Purpose::end : Purpose::look;
}

void shorten(std::vector<ThreadStack>& stacks, std::size_t threads, std::size_t frames) {
  if (stacks.size() > threads) stacks.resize(threads);
  for (auto& stack : stacks)
    if (stack.frames.size() > frames) stack.frames.resize(frames);
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

bool may_signal(Purpose purpose, const RankSummary& rank) {
  return purpose == Purpose::end || rank.has_beaten;
}

std::string group_key(const RankSummary& rank) {
  const bool is_stopped = rank.state == 'T' || rank.state == 'D';
  return (is_stopped ? std::string(1, rank.state) : std::string{}) + rank.stack_key;
}

std::string encode(const Request& r) {
  Json json{{"job", r.facts.job},
            {"node", r.facts.node},
            {"round", r.facts.round},
            {"why", r.facts.why},
            {"when", r.facts.when},
            {"page", r.has_page},
            {"limit_ms", r.limit_ms},
            {"files", r.files},
            {"workers", Json::array()},
            {"gathered", Json::array()},
            {"missing", r.facts.missing},
            {"purpose", name_of(r.facts.purpose)},
            {"finished", json_of(r.facts.finished)}};
  for (const auto& node : r.gathered) json["gathered"].push_back(json_of(node));
  for (const auto& worker : r.workers)
    json["workers"].push_back({{"rank", worker.rank.value()},
                               {"local_rank", worker.local_rank.value()},
                               {"pid", worker.pid},
                               {"silent", worker.is_silent},
                               {"overdue", worker.is_overdue},
                               {"stuck", worker.is_stuck}});
  return dump(json);
}

Result<Request> decode_request(std::string_view text) {
  return total(text, [](const Json& json) {
    Request r;
    r.facts.job = json.at("job").get<std::string>();
    r.facts.node = json.at("node").get<std::string>();
    r.facts.round = json.at("round").get<std::uint64_t>();
    r.facts.why = json.at("why").get<std::string>();
    r.facts.purpose = purpose_of(json.at("purpose").get<std::string>());
    r.facts.when = json.at("when").get<std::string>();
    r.has_page = json.at("page").get<bool>();
    r.limit_ms = json.at("limit_ms").get<std::int64_t>();
    r.files = json.at("files").get<std::vector<std::string>>();
    r.facts.missing = json.at("missing").get<std::vector<std::string>>();
    r.facts.finished = finished_of(json.at("finished"));
    for (const auto& one : json.at("gathered")) r.gathered.push_back(node_of(one));
    for (const auto& one : json.at("workers"))
      r.workers.push_back({Rank{one.at("rank").get<std::uint32_t>()},
                           LocalRank{one.at("local_rank").get<std::uint32_t>()},
                           one.at("pid").get<pid_t>(), one.at("silent").get<bool>(),
                           one.at("overdue").get<bool>(), one.at("stuck").get<bool>()});
    return r;
  });
}

std::string encode(const Answer& a) {
  return dump(Json{{"text", a.text}, {"evidence", json_of(a.evidence)}, {"file", a.file}, {"not_saved", a.not_saved}});
}

Result<Answer> decode_answer(std::string_view text) {
  return total(text, [](const Json& json) {
    return Answer{json.at("text").get<std::string>(), node_of(json.at("evidence")),
                  json.at("file").get<std::string>(), json.at("not_saved").get<std::string>()};
  });
}

std::string encode(const NodeEvidence& evidence) { return dump(json_of(evidence)); }

Result<NodeEvidence> decode_node(std::string_view text) {
  return total(text, [](const Json& json) { return node_of(json); });
}

std::string encode(const Question& question) {
  return dump(Json{{"why", question.why}, {"purpose", name_of(question.purpose)}});
}

Question decode_question(std::string_view text) {
  auto read = total(text, [](const Json& json) {
    return Question{shown_text(json.at("why")),
                    purpose_of(json.at("purpose").get<std::string>())};
  });
  return read ? std::move(*read) : Question{shown_text(std::string{text}), Purpose::look};
}

void fit(NodeEvidence& evidence, std::size_t bytes) {
  struct Step {
    std::size_t threads;
    std::size_t frames;
  };
  for (const auto& step : {Step{8, 40}, Step{2, 24}, Step{1, 12}, Step{0, 0}}) {
    if (encode(evidence).size() <= bytes) return;
    for (auto& rank : evidence.ranks) {
      shorten(rank.python, step.threads, step.frames);
      shorten(rank.native, step.threads, step.frames);
      if (step.threads > 0) continue;
      RankEvidence bare;
      bare.summary = rank.summary;
      bare.flight = rank.flight;
      rank = std::move(bare);
    }
  }
}

}  // namespace acc::agent::evidence
