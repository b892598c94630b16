#include "runtime/group/arguments.hpp"
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

std::int64_t digest_of_list(const std::vector<int>& members) {
  const std::vector<std::size_t> words{members.begin(), members.end()};
  return static_cast<std::int64_t>(digest_of(words));
}

/// The ranks with another color than most have; of equally many, than the lowest rank has.
std::vector<int> unlike_most(const std::vector<Wish>& wishes) {
  const auto same_as = [&](const Wish& wish) {
    return std::ranges::count(wishes, wish.color, &Wish::color);
  };
  const auto most = std::ranges::max_element(wishes, {}, same_as);  // the first of them
  std::vector<int> unlike;
  for (std::size_t r = 0; r < wishes.size(); ++r)
    if (wishes[r].color != most->color) unlike.push_back(static_cast<int>(r));
  return unlike;
}

}  // namespace

std::shared_ptr<Group> Group::split(int color, int key, std::string name, const CallOptions& how) {
  const InUserCall within{UserCall::split};
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
  const InUserCall within{UserCall::sub_group};
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
  // Lists are compared by a digest, in place of the color.
  const auto wishes = gather_wishes(*this, {digest_of_list(members), place}, how);
  ++children_;
  if (auto unlike = unlike_most(wishes); !unlike.empty()) {
    const Error cause{ErrorCode::mismatch,
                      "sub_group of group '" + facts_.name + "': " + describe_ranks(unlike) + " " +
                          (unlike.size() == 1 ? "was" : "were") +
                          " called with another list than the others",
                      unlike, "split", numbers_.sequence};
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
  plan.backend = how.backend;
  plan.key = facts_.key + "/" + number + "." + std::to_string(color);
  return maker_(*this, std::move(plan));
}

}  // namespace acc::runtime
