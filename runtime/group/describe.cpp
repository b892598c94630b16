#include "common/enum_names.hpp"
#include "runtime/backend.hpp"

#include <algorithm>
#include <utility>

namespace acc::runtime {

std::string_view to_string(Operation operation) noexcept {
  static constexpr EnumNames<Operation, Operation::allocate> kNames{
      {"none", "all_reduce", "reduce", "broadcast", "all_gather", "gather", "scatter",
       "reduce_scatter", "all_to_all", "barrier", "send", "recv", "split", "allocate"}};
  return kNames[operation];
}

namespace {

bool reduces(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce ||
         operation == Operation::reduce_scatter;
}
bool has_data(Operation operation) {
  return operation != Operation::none && operation != Operation::barrier &&
         operation != Operation::split;
}

// The description of a call after its operation; `unlike`: only what differs from it.
std::string words(const Descriptor& what, const Descriptor* unlike) {
  std::string text;
  const auto add = [&](bool differs, const std::string& word) {
    if (unlike == nullptr || differs) text += (text.empty() ? "" : " ") + word;
  };
  if (what.operation == Operation::allocate) {
    add(unlike != nullptr && what.count != unlike->count, std::to_string(what.count) + " bytes");
  } else if (has_data(what.operation)) {
    const bool by_pairs = what.operation == Operation::all_to_all && what.digest != 0;
    add(unlike != nullptr && what.dtype != unlike->dtype, std::string{to_string(what.dtype)});
    add(unlike != nullptr && (what.count != unlike->count || by_pairs),
        by_pairs ? "with counts" : "x" + std::to_string(what.count));
    if (unlike != nullptr && what.count == unlike->count && !by_pairs)
      add(what.digest != unlike->digest, "other counts");
  }
  if (reduces(what.operation))
    add(unlike != nullptr && what.reduce != unlike->reduce, std::string{to_string(what.reduce)});
  if (what.root >= 0)
    add(unlike != nullptr && what.root != unlike->root, "root " + std::to_string(what.root));
  add(unlike != nullptr && what.sequence != unlike->sequence, "#" + std::to_string(what.sequence));
  if (const auto user = to_string(what.within); !user.empty())
    add(unlike != nullptr && what.within != unlike->within, "(in " + std::string{user} + ")");
  else if (unlike != nullptr && !may_meet(what.within, unlike->within))
    text += (text.empty() ? "" : " ") + std::string{"(called directly)"};
  return text;
}

struct Camp {
  Descriptor what;
  std::vector<int> ranks;
};

}  // namespace

std::string to_string(const Descriptor& what) {
  return std::string{to_string(what.operation)} + " " + words(what, nullptr);
}

std::string have(std::span<const int> ranks) { return ranks.size() == 1 ? "has" : "have"; }

std::string describe_ranks(std::span<const int> ranks) {
  std::vector<int> sorted{ranks.begin(), ranks.end()};
  std::sort(sorted.begin(), sorted.end());
  std::string text = sorted.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < sorted.size();) {
    std::size_t last = i;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) ++last;
    if (i > 0) text += ",";
    text += std::to_string(sorted[i]);
    if (last > i) text += (last == i + 1 ? "," : "-") + std::to_string(sorted[last]);
    i = last + 1;
  }
  return text;
}

Error mismatch(std::span<const Descriptor> of_ranks, std::string_view group) {
  std::vector<Camp> camps;
  for (std::size_t r = 0; r < of_ranks.size(); ++r) {
    auto camp = std::find_if(camps.begin(), camps.end(),
                             [&](const Camp& c) { return c.what == of_ranks[r]; });
    if (camp == camps.end()) camp = camps.insert(camp, Camp{of_ranks[r], {}});
    camp->ranks.push_back(static_cast<int>(r));
  }
  // Of equally common calls that of the lowest rank counts as the common one.
  std::stable_sort(camps.begin(), camps.end(),
                   [](const Camp& a, const Camp& b) { return a.ranks.size() > b.ranks.size(); });
  const Descriptor common = camps.empty() ? Descriptor{} : camps.front().what;
  std::vector<int> unlike;
  std::string text;
  const Descriptor* shown = nullptr;  // in full
  const auto tell = [&](const Camp& camp) {
    if (!text.empty()) text += ", ";
    text += describe_ranks(camp.ranks) + ": ";
    if (shown != nullptr && shown->operation == camp.what.operation) {
      text += words(camp.what, shown);
    } else {
      text += to_string(camp.what);
      shown = &camp.what;
    }
  };
  for (std::size_t i = 1; i < camps.size(); ++i) {
    tell(camps[i]);
    unlike.insert(unlike.end(), camps[i].ranks.begin(), camps[i].ranks.end());
  }
  if (!camps.empty()) tell(camps.front());
  // If each of several ranks calls something else, none is the common one.
  if (camps.size() > 2 && camps.size() == of_ranks.size()) unlike.push_back(camps.front().ranks[0]);
  std::sort(unlike.begin(), unlike.end());
  return Error{ErrorCode::mismatch,
               "the ranks of group '" + std::string{group} + "' called different things: " + text,
               std::move(unlike), std::string{to_string(common.operation)}, common.sequence};
}

Error pair_mismatch(std::string_view title, int from, std::size_t sent, int to,
                    std::size_t expected) {
  return Error{ErrorCode::mismatch,
               std::string{title} + ": rank " + std::to_string(from) + " sends " +
                   std::to_string(sent) + " elements to rank " + std::to_string(to) +
                   ", which expects " + std::to_string(expected) + " of it",
               {from, to}};
}

}  // namespace acc::runtime
