#pragma once

#include <acc/process_group.hpp>
#include <stdexcept>
#include <string>
#include <vector>

/// The checks of acc-test. A check runs on every rank; it returns a description of what passed, or
/// throws Failed (or what a collective throws).
namespace acc::selftest {

struct Failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// RANK, WORLD_SIZE and so on match the group, each rank exists once, ranks of a node are
/// contiguous.
std::string check_rank_facts(runtime::ProcessGroup& group);
std::string check_reductions(runtime::ProcessGroup& group);
std::string check_moves(runtime::ProcessGroup& group);
std::string check_objects(runtime::ProcessGroup& group);
std::string check_sub_groups(runtime::ProcessGroup& group);
/// Every sample where it belongs, by rules stated here once more and otherwise than in the library.
std::string check_sharding(runtime::ProcessGroup& group);
/// gather_for_metrics gives each sample once, whatever the batches.
std::string check_metrics(runtime::ProcessGroup& group);
/// A small model trained by N ranks ends where one rank ends with the same global batches.
std::string check_training(runtime::ProcessGroup& group);
/// What was saved is what is loaded, by all ranks, also after a torn write.
std::string check_checkpoint(runtime::ProcessGroup& group);
/// Different calls on different ranks are reported as a mismatch on every rank.
std::string check_mismatch(runtime::ProcessGroup& group);
/// A rank that does not arrive is named by the others, in time.
std::string check_timeout(runtime::ProcessGroup& group);

}  // namespace acc::selftest
