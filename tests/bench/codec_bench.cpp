// What a message costs: our binary frames beside length-prefixed JSON, in one run. Figures are
// quoted in docs/decisions/0007-wire-format.md.
//   cmake --build --preset release --target bench-codec && build/release/bin/bench-codec
#include "rendezvous/codec.hpp"
#include "rendezvous/frame_splitter.hpp"
#include "rendezvous/wire.hpp"

#include <nlohmann/json.hpp>

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using namespace acc;
using namespace acc::rendezvous;
using nlohmann::json;

namespace {

constexpr Epoch kEpoch{.term = {.number = 1, .candidate = 0}, .round = Round{3}};
constexpr std::uint32_t kNodes = 10'000;

void keep(const void* result) { asm volatile("" : : "g"(result) : "memory"); }

/// Nanoseconds of processor time that one call takes: the best of 40 series of at least 5 ms each,
/// as others use the machine too.
template <class F>
double cost_ns(F call) {
  const auto now = [] {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
  };
  const auto series = [&](std::size_t calls) {
    const auto begin = now();
    for (std::size_t i = 0; i < calls; ++i) call();
    return now() - begin;
  };
  std::size_t calls = 1;
  while (series(calls) < 5e6) calls *= 2;
  double best = series(calls);
  for (int i = 0; i < 39; ++i) best = std::min(best, series(calls));
  return best / static_cast<double>(calls);
}

RestartLedger ledger() { return {.restarts = 1, .budget_used = 1}; }

Join join() {
  return {
      .job = "night-run",
      .node = {"node-0007", 0x1122334455667788},
      .host = "node-0007.cluster.example",
      .address = "10.0.31.7",
      .listens = 40123,
      .slots = 8,
      .wanted = NodeRank{7},
      .nodes_min = 8,
      .nodes_max = 16,
      .facts = {{"script", "train.py", 1}, {"arguments", "--lr 3e-4", 2}, {"precision", "bf16", 3}},
      .epoch = {},
      .ledger = ledger(),
      .vote = {},
      .policy = {}};
}

Assigned assigned() {
  return {.stamp = 99,
          .node_rank = NodeRank{7},
          .nodes = 16,
          .first_rank = Rank{56},
          .world_size = WorldSize{128},
          .ledger = ledger(),
          .reason = "rank 5 on node-0000 killed by SIGSEGV (11)",
          .standbys = {{"node-0001", NodeRank{1}, {"10.0.31.1", 40123}},
                       {"node-0002", NodeRank{2}, {"10.0.31.2", 40123}},
                       {"node-0003", NodeRank{3}, {"10.0.31.3", 40123}}}};
}

std::vector<Table> whole_table() {
  std::vector<Table> parts;
  for (std::uint32_t node = 0; node < kNodes; ++node) {
    if (node % kMaxTableRows == 0) parts.push_back({.first = node, .nodes = kNodes, .rows = {}});
    char name[16];
    std::snprintf(name, sizeof name, "node-%04u", node);
    parts.back().rows.push_back(
        {name, std::string{name} + ".cluster.example",
         "10.0." + std::to_string(node / 256) + "." + std::to_string(node % 256), Rank{node * 8},
         8});
  }
  return parts;
}

// ---- the same as JSON: type, term and round beside the fields, four bytes of length before ----

std::string framed(const json& body) {
  std::string frame(4, '\0');
  frame += body.dump();
  store(static_cast<std::uint32_t>(frame.size()), frame.data());
  return frame;
}
json head(const char* type) { return {{"type", type}, {"term", 1}, {"candidate", 0}, {"round", 3}}; }
json to_json(const RestartLedger& l) {
  return {{"restarts", l.restarts},
          {"budget_used", l.budget_used},
          {"quick_failures", l.quick_failures},
          {"without_progress", l.without_progress}};
}
RestartLedger ledger_of(const json& j) {
  return {j.at("restarts").get<std::uint32_t>(), j.at("budget_used").get<std::uint32_t>(),
          j.at("quick_failures").get<std::uint32_t>(),
          j.at("without_progress").get<std::uint32_t>()};
}

std::string to_json_frame(const Join& m) {
  auto j = head("join");
  j["version"] = {m.version_major, m.version_minor};
  j["job"] = m.job;
  j["node"] = m.node.name;
  j["incarnation"] = m.node.incarnation;
  j["host"] = m.host;
  j["address"] = m.address;
  j["listens"] = m.listens;
  j["slots"] = m.slots;
  j["wanted"] = m.wanted ? json(m.wanted->value()) : json(nullptr);
  j["nodes_min"] = m.nodes_min;
  j["nodes_max"] = m.nodes_max;
  auto& facts = j["facts"] = json::array();
  for (const auto& fact : m.facts)
    facts.push_back({{"name", fact.name}, {"value", fact.value}, {"hash", fact.hash}});
  j["state"] = m.state;
  j["of_round"] = {m.epoch.term.number, m.epoch.term.candidate, m.epoch.round.value()};
  j["node_rank"] = m.node_rank.value();
  j["first_rank"] = m.first_rank.value();
  j["nodes"] = m.nodes;
  j["ledger"] = to_json(m.ledger);
  j["vote"] = {m.vote.number, m.vote.candidate};
  return framed(j);
}
Join join_of(std::string_view frame) {
  const auto j = json::parse(frame.substr(4));
  Join m;
  m.version_major = j.at("version")[0].get<std::uint16_t>();
  m.version_minor = j.at("version")[1].get<std::uint16_t>();
  m.job = j.at("job").get<std::string>();
  m.node = {j.at("node").get<std::string>(), j.at("incarnation").get<std::uint64_t>()};
  m.host = j.at("host").get<std::string>();
  m.address = j.at("address").get<std::string>();
  m.listens = j.at("listens").get<std::uint16_t>();
  m.slots = j.at("slots").get<std::uint32_t>();
  if (!j.at("wanted").is_null()) m.wanted = NodeRank{j.at("wanted").get<std::uint32_t>()};
  m.nodes_min = j.at("nodes_min").get<std::uint32_t>();
  m.nodes_max = j.at("nodes_max").get<std::uint32_t>();
  for (const auto& fact : j.at("facts"))
    m.facts.push_back({fact.at("name").get<std::string>(), fact.at("value").get<std::string>(),
                       fact.at("hash").get<std::uint64_t>()});
  m.state = j.at("state").get<NodeState>();
  const auto& epoch = j.at("of_round");
  m.epoch = {{epoch[0].get<std::uint32_t>(), epoch[1].get<std::uint32_t>()},
             Round{epoch[2].get<std::uint64_t>()}};
  m.node_rank = NodeRank{j.at("node_rank").get<std::uint32_t>()};
  m.first_rank = Rank{j.at("first_rank").get<std::uint32_t>()};
  m.nodes = j.at("nodes").get<std::uint32_t>();
  m.ledger = ledger_of(j.at("ledger"));
  m.vote = {j.at("vote")[0].get<std::uint32_t>(), j.at("vote")[1].get<std::uint32_t>()};
  return m;
}

std::string to_json_frame(const Assigned& m) {
  auto j = head("assigned");
  j["stamp"] = m.stamp;
  j["spare"] = m.spare;
  j["node_rank"] = m.node_rank.value();
  j["nodes"] = m.nodes;
  j["first_rank"] = m.first_rank.value();
  j["world_size"] = m.world_size.value();
  j["ledger"] = to_json(m.ledger);
  j["reason"] = m.reason;
  auto& standbys = j["standbys"] = json::array();
  for (const auto& one : m.standbys)
    standbys.push_back({{"node", one.node},
                        {"node_rank", one.node_rank.value()},
                        {"host", one.at.host},
                        {"port", one.at.port}});
  return framed(j);
}
Assigned assigned_of(std::string_view frame) {
  const auto j = json::parse(frame.substr(4));
  Assigned m;
  m.stamp = j.at("stamp").get<std::uint64_t>();
  m.spare = j.at("spare").get<bool>();
  m.node_rank = NodeRank{j.at("node_rank").get<std::uint32_t>()};
  m.nodes = j.at("nodes").get<std::uint32_t>();
  m.first_rank = Rank{j.at("first_rank").get<std::uint32_t>()};
  m.world_size = WorldSize{j.at("world_size").get<std::uint32_t>()};
  m.ledger = ledger_of(j.at("ledger"));
  m.reason = j.at("reason").get<std::string>();
  for (const auto& one : j.at("standbys"))
    m.standbys.push_back(
        {one.at("node").get<std::string>(),
         NodeRank{one.at("node_rank").get<std::uint32_t>()},
         {one.at("host").get<std::string>(), one.at("port").get<std::uint16_t>()}});
  return m;
}

std::string to_json_frame(const Table& m) {
  auto j = head("table");
  j["first"] = m.first;
  j["nodes"] = m.nodes;
  auto& rows = j["rows"] = json::array();
  for (const auto& row : m.rows)
    rows.push_back({{"node", row.node},
                    {"host", row.host},
                    {"address", row.address},
                    {"first_rank", row.first_rank.value()},
                    {"slots", row.slots}});
  return framed(j);
}
Table table_of(std::string_view frame) {
  const auto j = json::parse(frame.substr(4));
  Table m;
  m.first = j.at("first").get<std::uint32_t>();
  m.nodes = j.at("nodes").get<std::uint32_t>();
  for (const auto& row : j.at("rows"))
    m.rows.push_back({row.at("node").get<std::string>(), row.at("host").get<std::string>(),
                      row.at("address").get<std::string>(),
                      Rank{row.at("first_rank").get<std::uint32_t>()},
                      row.at("slots").get<std::uint32_t>()});
  return m;
}

void print(const char* what, std::size_t bytes, std::size_t json_bytes, double ours,
           double theirs) {
  const bool is_long = ours > 1e5;
  const double unit = is_long ? 1e6 : 1e3;
  std::printf("%-22s %10zu %10zu %9.2f %-2s %9.2f %-2s %6.1fx\n", what, bytes, json_bytes,
              ours / unit, is_long ? "ms" : "us", theirs / unit, is_long ? "ms" : "us",
              theirs / ours);
}

template <class M, class FromJson>
void compare(const char* name, const std::vector<M>& parts, FromJson from_json) {
  std::vector<Message> messages(parts.begin(), parts.end());
  std::vector<std::string> frames, json_frames;
  std::size_t bytes = 0, json_bytes = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    bytes += frames.emplace_back(encode(kEpoch, messages[i])).size();
    json_bytes += json_frames.emplace_back(to_json_frame(parts[i])).size();
    // What isn't right needs no clock: both ways must end where they began.
    const auto back = decode(frames[i]);
    if (!back || encode(kEpoch, back->message) != frames[i] ||
        encode(kEpoch, Message{from_json(json_frames[i])}) != frames[i])
      std::abort();
  }
  std::string out;
  const auto encode_ns = cost_ns([&] {
    for (const auto& message : messages) {
      out.clear();
      encode(kEpoch, message, out);
      keep(out.data());
    }
  });
  const auto json_encode_ns = cost_ns([&] {
    for (const auto& part : parts) keep(to_json_frame(part).data());
  });
  const auto decode_ns = cost_ns([&] {
    for (const auto& frame : frames) {
      const auto result = decode(frame);
      keep(&result);
    }
  });
  const auto json_decode_ns = cost_ns([&] {
    for (const auto& frame : json_frames) {
      const auto result = from_json(frame);
      keep(&result);
    }
  });
  print((std::string{name} + ", encode").c_str(), bytes, json_bytes, encode_ns, json_encode_ns);
  print((std::string{name} + ", decode").c_str(), bytes, json_bytes, decode_ns, json_decode_ns);
}

void heartbeats() {
  const Message heartbeat = Heartbeat{.heartbeat = 1, .echo = 2};
  std::string stream;
  for (int i = 0; i < 1000; ++i) encode(kEpoch, heartbeat, stream);
  const auto ns = cost_ns([&] {
    FrameSplitter splitter;
    splitter.feed(stream);
    for (;;) {
      const auto frame = splitter.next();
      if (!frame || !*frame) break;
      const auto result = decode(**frame);
      keep(&result);
    }
  });
  std::printf("heartbeat: split and decode %.0f ns each\n", ns / 1000);
}

}  // namespace

int main() {
  std::printf("%-22s %10s %10s %12s %12s %7s\n", "", "bytes", "JSON", "binary", "JSON", "ratio");
  compare("join", std::vector{join()}, join_of);
  compare("assigned", std::vector{assigned()}, assigned_of);
  compare("table of 10,000 rows", whole_table(), table_of);
  heartbeats();
  return 0;
}
