#include "tests/golden/sharding/row.hpp"
#include "tests/golden/sharding/vocabulary.hpp"

#include <acc/operations.hpp>
#include <algorithm>
#include <array>
#include <string_view>

/// The rows of collectives.json.
namespace acc::golden {

using namespace acc::runtime;  // NOLINT: its tests

namespace {

/// The arguments of a row.
class Arguments {
 public:
  explicit Arguments(const json& args) : args_{args} {}
  [[nodiscard]] std::string word(const std::string& key) const {
    const auto& value = field(args_, key);
    if (!value.is_string()) throw Malformed{"'" + key + "' is not text"};
    return value;
  }
  [[nodiscard]] int number(const std::string& key) const {
    const auto& value = field(args_, key);
    if (!value.is_number_integer() || value < -1'000'000 || value > 1'000'000)
      throw Malformed{"'" + key + "' is not a number, or too large"};
    return value;
  }
  [[nodiscard]] double real(const std::string& key) const {
    const auto& value = field(args_, key);
    if (!value.is_number()) throw Malformed{"'" + key + "' is not a number"};
    return value;
  }
  [[nodiscard]] bool flag(const std::string& key) const {
    const auto& value = field(args_, key);
    if (!value.is_boolean()) throw Malformed{"'" + key + "' is not true or false"};
    return value;
  }
  [[nodiscard]] HostTensor tensor(int rank) const { return rank_tensor(word("rank_tensor"), rank); }
  /// The objects of a list, as text.
  [[nodiscard]] std::vector<std::string> objects(int rank) const {
    std::vector<std::string> texts;
    for (const auto& object : rank_object(word("rank_object"), rank))
      texts.push_back(object.dump());
    return texts;
  }

 private:
  const json& args_;
};

json parse_all(const std::vector<std::string>& texts) {
  json all = json::array();
  for (const auto& text : texts) all.push_back(json::parse(text));
  return all;
}

json trigger(ProcessGroup& group) {
  Trigger flag;
  json seen = json::array();
  seen.push_back(flag.check(group));
  if (group.rank() == group.size() - 1) flag.set();
  seen.push_back(flag.check(group));
  seen.push_back(flag.check(group));
  return seen;
}

int root(const Arguments& args, int world) {
  const int from = args.number("from_process");
  if (from < 0 || from >= world) throw Malformed{"'from_process' is not one of the world"};
  return from;
}

/// What a rank does in a row. Everything is read beforehand, so that a row that is malformed is so
/// before any rank starts.
OnRank work_of(const std::string& op, const Arguments& args, int world) {
  if (op == "trigger") {
    if (args.word("note") != "only the last rank sets it; check before, after, again")
      throw Malformed{"a note on the trigger that is not known: '" + args.word("note") + "'"};
    return trigger;
  }
  if (op == "is_main_local_last") {
    return [](ProcessGroup& group) -> json {
      return {group.rank() == 0, group.local_rank() == 0, group.rank() == group.size() - 1,
              group.rank(),      group.local_rank(),      group.size()};
    };
  }
  if (op == "gather_object") {
    (void)args.objects(0);
    return [=](ProcessGroup& group) {
      return parse_all(gather_object(group, args.objects(group.rank())));
    };
  }
  if (op == "broadcast_object_list") {
    (void)args.objects(0);
    return [=, from = root(args, world)](ProcessGroup& group) {
      return parse_all(broadcast_object_list(group, args.objects(group.rank()), from));
    };
  }
  constexpr std::array<std::string_view, 4> kOfTensors{"gather", "broadcast", "reduce",
                                                       "pad_across_processes"};
  if (std::find(kOfTensors.begin(), kOfTensors.end(), op) == kOfTensors.end())
    throw Malformed{"an operation that is not known: '" + op + "'"};
  for (int rank = 0; rank < world; ++rank) (void)args.tensor(rank);
  if (op == "gather") {
    return [=](ProcessGroup& group) {
      auto mine = args.tensor(group.rank());
      return describe(gather(group, mine.view()));
    };
  }
  if (op == "broadcast") {
    return [=, from = root(args, world)](ProcessGroup& group) {
      auto mine = args.tensor(group.rank());
      return describe(broadcast(group, mine.view(), from));
    };
  }
  if (op == "reduce") {
    (void)args.real("scale");  // no effect in the original: ours has none
    return [=, how = parse_reduction(args.word("reduction"))](ProcessGroup& group) {
      auto mine = args.tensor(group.rank());
      return describe(reduce(group, mine.view(), how));
    };
  }
  return [=, dim = args.number("dim"), fill = args.real("pad_index"),
          first = args.flag("pad_first")](ProcessGroup& group) {
    auto mine = args.tensor(group.rank());
    return describe(pad_across_processes(group, mine.view(), dim, fill, first));
  };
}

}  // namespace

Differences check_collective(const json& row) {
  const auto& op = field(row, "op");
  const auto& world = field(row, "world");
  const auto& out = field(row, "out");
  if (!op.is_string()) throw Malformed{"'op' is not text"};
  if (!world.is_number_integer() || world < 1 || world > 64)
    throw Malformed{"'world' is not a number from 1 to 64"};
  const int ranks = world;
  if (!out.is_array() || static_cast<int>(out.size()) != ranks)
    throw Malformed{"'out' has not one element a process"};

  OnRank work;
  try {
    work = work_of(op, Arguments{field(row, "args")}, ranks);
  } catch (const Error& refused) {  // a word that only the library knows
    throw Malformed{refused.what()};
  }
  const auto outcomes = on_ranks(ranks, work);
  Differences differences;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto& ours = outcomes[static_cast<std::size_t>(rank)];
    const auto& recorded = out[static_cast<std::size_t>(rank)];
    const std::string what = "rank " + std::to_string(rank);
    if (recorded.is_string()) {  // the name of the original's exception
      if (ours.error.empty())
        differences.push_back(what + ": ours is no error: " + ours.value.dump());
    } else if (!ours.error.empty()) {
      differences.push_back(what + ": " + ours.error);
    } else {
      compare(what, recorded, ours.value, differences);
    }
  }
  return differences;
}

}  // namespace acc::golden
