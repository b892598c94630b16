#include "runtime/nccl/desync.hpp"

#include "common/duration.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

namespace acc::runtime::nccl {
namespace {

using nlohmann::json;

json to_json(const Descriptor& what) {
  return json::array({what.sequence, what.count, what.digest, what.root,
                      static_cast<int>(what.operation), static_cast<int>(what.dtype),
                      static_cast<int>(what.reduce)});
}

Descriptor descriptor_from(const json& fields) {
  const auto number = [&](std::size_t at, std::int64_t limit) {
    const auto value = fields.at(at).get<std::int64_t>();
    if (value < 0 || value >= limit) throw std::out_of_range{"a field of a descriptor"};
    return value;
  };
  Descriptor what;
  what.sequence = fields.at(0).get<std::uint64_t>();
  what.count = fields.at(1).get<std::uint64_t>();
  what.digest = fields.at(2).get<std::uint64_t>();
  what.root = fields.at(3).get<std::int32_t>();
  what.operation = static_cast<Operation>(number(4, static_cast<int>(Operation::allocate) + 1));
  what.dtype = static_cast<DType>(number(5, kDTypes));
  what.reduce = static_cast<ReduceOp>(number(6, static_cast<int>(ReduceOp::avg) + 1));
  return what;
}

bool is_pairwise(const Descriptor& what) {
  return what.operation == Operation::send || what.operation == Operation::recv;
}

/// "rank 2 (host b, pid 71)".
std::string called(const Stuck& stuck, int rank) {
  std::string text = "rank " + std::to_string(rank);
  if (const auto at = static_cast<std::size_t>(rank);
      at < stuck.ranks.size() && stuck.ranks[at].pid != 0) {
    text += " (host " + stuck.ranks[at].host + ", pid " + std::to_string(stuck.ranks[at].pid) + ")";
  }
  return text;
}

/// What a rank did last, and how far it came: "its last call is all_reduce f32 x8 sum #16, done".
std::string whereabouts(const Position& position) {
  if (position.enqueued.operation == Operation::none) return "it has called nothing yet";
  std::string text = "its last call is " + to_string(position.enqueued);
  text += position.completed == position.enqueued ? ", done"
          : position.started == position.enqueued ? ", begun"
                                                  : ", not begun";
  if (position.completed.operation != Operation::none && position.completed != position.enqueued) {
    text += "; the last one done is " + to_string(position.completed);
  }
  return text;
}

using Views = std::map<std::uint64_t, std::vector<std::pair<int, Descriptor>>>;

/// What each rank called under each sequence number.
Views by_sequence(const std::vector<std::optional<Position>>& positions) {
  Views views;
  for (const auto& position : positions) {
    if (!position) continue;
    for (const auto& what : position->recent) {
      if (!is_pairwise(what)) views[what.sequence].emplace_back(position->rank, what);
    }
  }
  return views;
}

/// The first call under which the ranks did different things.
std::optional<Error> difference(const Stuck& stuck,
                                const std::vector<std::optional<Position>>& positions) {
  for (const auto& [sequence, views] : by_sequence(positions)) {
    std::vector<std::pair<Descriptor, std::vector<int>>> kinds;
    for (const auto& [rank, what] : views) {
      const auto known = std::find_if(kinds.begin(), kinds.end(),
                                      [&](const auto& kind) { return kind.first == what; });
      if (known != kinds.end()) {
        known->second.push_back(rank);
      } else {
        kinds.push_back({what, {rank}});
      }
    }
    if (kinds.size() < 2) continue;
    if (views.size() == positions.size()) {  // by rank, as positions are
      std::vector<Descriptor> of_ranks;
      for (const auto& [rank, what] : views) of_ranks.push_back(what);
      return mismatch(of_ranks, stuck.group);
    }
    std::stable_sort(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) {
      return a.second.size() > b.second.size();
    });
    std::string text = "the ranks of group '" + stuck.group + "' called different things";
    std::vector<int> odd;
    const char* separator = ": ";
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const auto& [what, ranks] = kinds[i];
      text += separator + describe_ranks(ranks) + ": " + to_string(what);
      separator = "; ";
      if (i > 0) odd.insert(odd.end(), ranks.begin(), ranks.end());
    }
    std::sort(odd.begin(), odd.end());
    return Error{ErrorCode::mismatch, text, odd, std::string{to_string(stuck.what.operation)},
                 sequence};
  }
  return std::nullopt;
}

bool is_behind(const Stuck& stuck, const Position& position) {
  if (is_pairwise(stuck.what)) return false;
  if (!is_pairwise(position.enqueued)) return position.enqueued.sequence < stuck.what.sequence;
  std::uint64_t last = 0;
  for (const auto& what : position.recent) {
    if (!is_pairwise(what)) last = std::max(last, what.sequence);
  }
  return last < stuck.what.sequence;
}

}  // namespace

std::string to_text(const Position& position) {
  json recent = json::array();
  for (const auto& what : position.recent) recent.push_back(to_json(what));
  return json{{"rank", position.rank},
              {"enqueued", to_json(position.enqueued)},
              {"started", to_json(position.started)},
              {"completed", to_json(position.completed)},
              {"recent", std::move(recent)},
              {"trouble", position.trouble}}
      .dump(-1, ' ', true, json::error_handler_t::replace);
}

std::optional<Position> parse_position(std::string_view text) {
  try {
    const auto fields = json::parse(text);
    Position position;
    position.rank = fields.at("rank").get<int>();
    position.enqueued = descriptor_from(fields.at("enqueued"));
    position.started = descriptor_from(fields.at("started"));
    position.completed = descriptor_from(fields.at("completed"));
    for (const auto& what : fields.at("recent")) position.recent.push_back(descriptor_from(what));
    position.trouble = fields.at("trouble").get<std::string>();
    return position;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

Error diagnose(const Stuck& stuck, const std::vector<std::optional<Position>>& positions) {
  if (auto different = difference(stuck, positions)) return std::move(*different);

  std::string text = "group '" + stuck.group + "', rank " + std::to_string(stuck.rank) + ": " +
                     to_string(stuck.what);
  if (stuck.peer >= 0) {
    text += (stuck.what.operation == Operation::send ? " to rank " : " from rank ") +
            std::to_string(stuck.peer);
  }
  text += " did not end within " + describe(stuck.waited);

  std::vector<int> guilty;
  std::vector<int> waiting;
  for (std::size_t at = 0; at < positions.size(); ++at) {
    const int rank = static_cast<int>(at);
    const auto& position = positions[at];
    if (!position) {
      text += "; " + called(stuck, rank) + " does not answer";
      guilty.push_back(rank);
    } else if (is_behind(stuck, *position)) {
      text += "; " + called(stuck, rank) + " has not called it: " + whereabouts(*position);
      guilty.push_back(rank);
    } else {
      if (rank == stuck.peer) text += "; " + called(stuck, rank) + ": " + whereabouts(*position);
      waiting.push_back(rank);
    }
    if (position && !position->trouble.empty()) {
      text += "; " + called(stuck, rank) + ": " + position->trouble;
    }
  }
  if (guilty.empty() && !is_pairwise(stuck.what)) {
    text += "; all ranks have called it, so the devices or the network between them hang";
    for (const auto& position : positions) {
      if (position->started.sequence < stuck.what.sequence) {
        text += "; " + called(stuck, position->rank) +
                "'s device has not begun it: work before it "
                "on the stream is not done";
        guilty.push_back(position->rank);
      }
    }
  } else if (!guilty.empty() && !waiting.empty()) {
    text += "; waiting: " + describe_ranks(waiting);
  }
  if (guilty.empty() && stuck.peer >= 0) guilty.push_back(stuck.peer);
  return Error{ErrorCode::timed_out, text, guilty, std::string{to_string(stuck.what.operation)},
               stuck.what.sequence};
}

}  // namespace acc::runtime::nccl
