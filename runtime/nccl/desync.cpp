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
                      static_cast<int>(what.reduce), static_cast<int>(what.within)});
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
  if (fields.size() > 7) what.within = static_cast<UserCall>(number(7, 256));
  return what;
}

bool is_pairwise(const Descriptor& what) {
  return what.operation == Operation::send || what.operation == Operation::recv;
}

/// "rank 2 (host b, pid 71)".
std::string called(const OverdueCall& overdue, int rank) {
  std::string text = "rank " + std::to_string(rank);
  if (const auto at = static_cast<std::size_t>(rank);
      at < overdue.ranks.size() && overdue.ranks[at].pid != 0) {
    text +=
        " (host " + overdue.ranks[at].host + ", pid " + std::to_string(overdue.ranks[at].pid) + ")";
  }
  return text;
}

/// A rank's last call and its state: "its last call is all_reduce f32 x8 sum #16, done".
std::string own_progress(const RankProgress& progress) {
  if (progress.enqueued.operation == Operation::none) return "it has called nothing yet";
  std::string text = "its last call is " + to_string(progress.enqueued);
  text += progress.completed == progress.enqueued ? ", done"
          : progress.started == progress.enqueued ? ", begun"
                                                  : ", not begun";
  if (progress.completed.operation != Operation::none && progress.completed != progress.enqueued) {
    text += "; the last one done is " + to_string(progress.completed);
  }
  return text;
}

using Views = std::map<std::uint64_t, std::vector<std::pair<int, Descriptor>>>;

/// The calls of each rank by sequence number.
Views by_sequence(const std::vector<std::optional<RankProgress>>& progress_of) {
  Views views;
  for (const auto& progress : progress_of) {
    if (!progress) continue;
    for (const auto& what : progress->recent) {
      if (!is_pairwise(what)) views[what.sequence].emplace_back(progress->rank, what);
    }
  }
  return views;
}

/// The first sequence number at which the calls of the ranks differ.
std::optional<Error> difference(const OverdueCall& overdue,
                                const std::vector<std::optional<RankProgress>>& progress_of) {
  for (const auto& [sequence, views] : by_sequence(progress_of)) {
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
    if (views.size() == progress_of.size()) {  // by rank, as positions are
      std::vector<Descriptor> of_ranks;
      for (const auto& [rank, what] : views) of_ranks.push_back(what);
      return mismatch(of_ranks, overdue.group);
    }
    std::stable_sort(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) {
      return a.second.size() > b.second.size();
    });
    std::string text = "the ranks of group '" + overdue.group + "' called different things";
    std::vector<int> odd;
    const char* separator = ": ";
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const auto& [what, ranks] = kinds[i];
      text += separator + describe_ranks(ranks) + ": " + to_string(what);
      separator = "; ";
      if (i > 0) odd.insert(odd.end(), ranks.begin(), ranks.end());
    }
    std::sort(odd.begin(), odd.end());
    return Error{ErrorCode::mismatch, text, odd, std::string{to_string(overdue.what.operation)},
                 sequence};
  }
  return std::nullopt;
}

bool is_behind(const OverdueCall& overdue, const RankProgress& progress) {
  if (is_pairwise(overdue.what)) return false;
  if (!is_pairwise(progress.enqueued)) return progress.enqueued.sequence < overdue.what.sequence;
  std::uint64_t last = 0;
  for (const auto& what : progress.recent) {
    if (!is_pairwise(what)) last = std::max(last, what.sequence);
  }
  return last < overdue.what.sequence;
}

}  // namespace

std::string to_text(const RankProgress& progress) {
  json recent = json::array();
  for (const auto& what : progress.recent) recent.push_back(to_json(what));
  return json{{"rank", progress.rank},
              {"enqueued", to_json(progress.enqueued)},
              {"started", to_json(progress.started)},
              {"completed", to_json(progress.completed)},
              {"recent", std::move(recent)},
              {"trouble", progress.trouble}}
      .dump(-1, ' ', true, json::error_handler_t::replace);
}

std::optional<RankProgress> parse_progress(std::string_view text) {
  try {
    const auto fields = json::parse(text);
    RankProgress progress;
    progress.rank = fields.at("rank").get<int>();
    progress.enqueued = descriptor_from(fields.at("enqueued"));
    progress.started = descriptor_from(fields.at("started"));
    progress.completed = descriptor_from(fields.at("completed"));
    for (const auto& what : fields.at("recent")) progress.recent.push_back(descriptor_from(what));
    progress.trouble = fields.at("trouble").get<std::string>();
    return progress;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

Error diagnose(const OverdueCall& overdue,
               const std::vector<std::optional<RankProgress>>& progress_of) {
  if (auto different = difference(overdue, progress_of)) return std::move(*different);

  std::string text = "group '" + overdue.group + "', rank " + std::to_string(overdue.rank) + ": " +
                     to_string(overdue.what);
  if (overdue.peer >= 0) {
    text += (overdue.what.operation == Operation::send ? " to rank " : " from rank ") +
            std::to_string(overdue.peer);
  }
  text += " did not end within " + describe(overdue.waited);

  std::vector<int> guilty;
  std::vector<int> waiting;
  for (std::size_t at = 0; at < progress_of.size(); ++at) {
    const int rank = static_cast<int>(at);
    const auto& progress = progress_of[at];
    if (!progress) {
      text += "; " + called(overdue, rank) + " does not answer";
      guilty.push_back(rank);
    } else if (is_behind(overdue, *progress)) {
      text += "; " + called(overdue, rank) + " has not called it: " + own_progress(*progress);
      guilty.push_back(rank);
    } else {
      if (rank == overdue.peer)
        text += "; " + called(overdue, rank) + ": " + own_progress(*progress);
      waiting.push_back(rank);
    }
    if (progress && !progress->trouble.empty()) {
      text += "; " + called(overdue, rank) + ": " + progress->trouble;
    }
  }
  if (guilty.empty() && !is_pairwise(overdue.what)) {
    text += "; all ranks have called it, so the devices or the network between them hang";
    for (const auto& progress : progress_of) {
      if (progress->started.sequence < overdue.what.sequence) {
        text += "; " + called(overdue, progress->rank) +
                "'s device has not begun it: work before it "
                "on the stream is not done";
        guilty.push_back(progress->rank);
      }
    }
  } else if (!guilty.empty() && !waiting.empty()) {
    text += "; waiting: " + describe_ranks(waiting);
  }
  if (guilty.empty() && overdue.peer >= 0) guilty.push_back(overdue.peer);
  return Error{ErrorCode::timed_out, text, guilty, std::string{to_string(overdue.what.operation)},
               overdue.what.sequence};
}

}  // namespace acc::runtime::nccl
