#include "runtime/group/group.hpp"
#include "runtime/timeout.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace acc::runtime {

namespace {

struct Wish {
  std::int64_t color = -1;
  std::int64_t key = 0;
};

std::vector<Wish> gather_wishes(Group& group, Wish mine, const CallOptions& how) {
  group.require_no_coalesce("split");
  std::vector<Wish> wishes(static_cast<std::size_t>(group.facts().size));
  Call call;
  call.what.operation = Operation::all_gather;
  call.what.dtype = DType::i64;
  call.what.count = 2;
  call.send = &mine;
  call.recv = wishes.data();
  group.run(call, how);
  return wishes;
}

}  // namespace

std::shared_ptr<Group> Group::split(int color, int key, std::string name, const CallOptions& how) {
  const auto wishes = gather_wishes(*this, {color, key}, how);
  ++children_;
  if (color < 0) return nullptr;
  std::vector<int> members;
  for (int r = 0; r < facts_.size; ++r)
    if (wishes[static_cast<std::size_t>(r)].color == color) members.push_back(r);
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return wishes[static_cast<std::size_t>(a)].key < wishes[static_cast<std::size_t>(b)].key;
  });
  return make(std::move(members), std::move(name), color, how);
}

std::shared_ptr<Group> Group::sub_group(std::span<const int> ranks, std::string name,
                                        const CallOptions& how) {
  std::vector<int> members{ranks.begin(), ranks.end()};
  auto sorted = members;
  std::sort(sorted.begin(), sorted.end());
  const bool twice = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  if (twice || (!sorted.empty() && (sorted.front() < 0 || sorted.back() >= facts_.size)))
    throw Error{ErrorCode::invalid_argument,
                "sub_group of group '" + facts_.name + "': " + describe_ranks(ranks) +
                    (twice ? ": one is there twice"
                           : ": it has ranks 0 to " + std::to_string(facts_.size - 1) + " only"),
                {},
                "split"};
  // Ranks outside take part too: sub-groups are numbered alike everywhere, and a rank with another
  // list is detected.
  const auto mine = std::find(members.begin(), members.end(), facts_.rank);
  const auto place = mine == members.end() ? -1 : mine - members.begin();
  const auto wishes = gather_wishes(*this, {place < 0 ? -1 : 0, place}, how);
  ++children_;
  for (int r = 0; r < facts_.size; ++r) {
    const auto& wish = wishes[static_cast<std::size_t>(r)];
    const auto at = std::find(members.begin(), members.end(), r);
    const std::int64_t expected = at == members.end() ? -1 : at - members.begin();
    if (wish.key == expected) continue;
    const Error cause{ErrorCode::mismatch,
                      "sub_group of group '" + facts_.name + "': rank " + std::to_string(r) +
                          " was called with another list than rank " + std::to_string(facts_.rank),
                      {r},
                      "split",
                      numbers_.sequence};
    backend_->abort(cause);
    break_with(cause);
    throw cause;
  }
  if (place < 0) return nullptr;
  return make(std::move(members), std::move(name), 0, how);
}

std::shared_ptr<Group> Group::make(std::vector<int> members, std::string name, int color,
                                   const CallOptions& how) {
  if (!maker_)
    throw Error{ErrorCode::invalid_argument, "group '" + facts_.name + "' can't be split"};
  const auto number = std::to_string(children_);
  SubGroup plan;
  plan.rank =
      static_cast<int>(std::find(members.begin(), members.end(), facts_.rank) - members.begin());
  plan.members = std::move(members);
  plan.name =
      name.empty() ? facts_.name + "/" + number + "." + std::to_string(color) : std::move(name);
  if (how.timeout) plan.limit = checked_timeout(*how.timeout, "timeout");
  plan.key = facts_.key + "/" + number + "." + std::to_string(color);
  return maker_(*this, std::move(plan));
}

}  // namespace acc::runtime
