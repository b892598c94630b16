#pragma once

#include "agent/evidence/rank_evidence.hpp"

#include <optional>
#include <string_view>
#include <vector>

/// Reads the stacks that other programs print (pure, total: any text gives stacks).
namespace acc::agent::evidence {

/// Of "gdb -batch -ex 'thread apply all bt'" and of "eu-stack". The thread `main` (its id is that
/// of the process) is put first.
[[nodiscard]] std::vector<ThreadStack> native_stacks(std::string_view text, pid_t main);
/// Of Python's faulthandler and of "py-spy dump"; the thread that was interrupted first:
/// without frames if faulthandler left it out, as of more than a hundred threads.
[[nodiscard]] std::vector<ThreadStack> python_stacks(std::string_view text);

/// Which of a rank's Python threads is compared with other ranks': the first one, unless that only
/// waits for another thread to end (Thread.join, Future.result), as where the training runs in it.
[[nodiscard]] std::size_t working_thread(const std::vector<ThreadStack>& python);

/// Whether this stack waits for other ranks: in a collective of torch, NCCL, gloo, MPI or ours, or
/// for a GPU, which may be in one.
[[nodiscard]] bool waits_for_others(const ThreadStack& stack);
/// Whether Python's innermost frame may be in a call of a library that only the native stack shows:
/// not where it is one of the standard library.
[[nodiscard]] bool may_be_in_library(const ThreadStack& python);
/// Python's innermost frame is torch's backward, which waits for others in DDP, or computes.
[[nodiscard]] bool is_in_backward(const ThreadStack& stack);
/// A native stack in the end of a Python program, without any Python left to be called: in a C++
/// destructor, or in what a library does at exit.
[[nodiscard]] bool is_past_python(const ThreadStack& native);
/// Equal for stacks that are in the same place of the program: what is called below a wait for
/// other ranks differs from moment to moment and doesn't count.
[[nodiscard]] std::string key_of(const ThreadStack& stack);
/// The innermost frame that isn't one of the system's libraries: "spin (train.cpp:31)".
[[nodiscard]] std::string place_of(const ThreadStack& stack);

}  // namespace acc::agent::evidence
