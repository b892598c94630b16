#pragma once

#include <string>
#include <utility>
#include <vector>

/// acc-test-worker, the program that runs on every rank, asked before any job is started.
namespace acc::check {

/// Beside this program where both were built, else in the folder for programs that nobody types.
[[nodiscard]] std::string find_worker_program();

/// What it finds wrong with its options; empty: nothing. A job would fail with them on every rank.
[[nodiscard]] std::string wrong_options(const std::string& worker_program,
                                        const std::vector<std::string>& options);

/// Variables of ranks, name and value.
using RankVariables = std::vector<std::pair<std::string, std::string>>;

/// What it says about NCCL on this machine.
struct NcclProbe {
  std::string found;        ///< "2.28.9 (/usr/lib/…/libnccl.so.2)"; empty: none found
  std::string error;        ///< why not
  RankVariables variables;  ///< which ranks need to find it, too
};
/// Where the runtime finds none by itself: the one that the packages of this interpreter bring, as
/// `pip install torch` does, unless ACC_NCCL_LIBRARY is set.
[[nodiscard]] NcclProbe probe_nccl(const std::string& worker_program,
                                   const std::string& interpreter);

}  // namespace acc::check
