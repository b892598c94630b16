#pragma once

#include "runtime/net/store.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace acc::runtime {

/// One of the processes that form groups as one rank in one attempt of the job, one after the
/// other: a worker may be a script that runs two programs. The store of the agent outlives each of
/// them, and so do the entries of a process that has ended. Its groups therefore meet under the
/// process's number, which all ranks count alike: the second program of a rank meets the second
/// ones of the others, and nothing that the first has left.
///
///   PREFIX/made/<process> += 1             groups of this process, also of a second copy of the
///                                          library in it
///   PREFIX/processes/<rank> += 1           the number of this process
///   PREFIX/process/<rank>/<number>         its identity (a second one at once: the first's)
///   PREFIX/number/<process>                its number, for its further groups
class RankProcess {
 public:
  /// @param store, prefix  of this attempt; the store outlives this.
  RankProcess(Store& store, std::string prefix, int rank);

  /// Counts a group of this process. To be called once for each, before it is formed.
  void count_group();
  /// Of the group that was counted.
  [[nodiscard]] std::string key() const;
  /// From 0.
  [[nodiscard]] int number() const { return number_; }
  /// An earlier process of this rank that still runs. Two processes at once can't be one rank: the
  /// ranks wouldn't count them in the same order. One in another pid namespace isn't seen.
  /// Waits up to 5 s for the one before to have written its identity.
  /// @return as describe() of its member: "0 (host b, pid 71)"
  [[nodiscard]] std::optional<std::string> running_predecessor();

 private:
  [[nodiscard]] std::string process_key(int number) const;

  Store& store_;
  std::string prefix_;
  int rank_;
  int number_ = 0;
  std::int64_t group_ = 0;
};

}  // namespace acc::runtime
