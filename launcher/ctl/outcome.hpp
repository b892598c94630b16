#pragma once

#include "common/error.hpp"
#include "launcher/ctl/wire.hpp"

#include <string>
#include <string_view>

/// How a command ends: what it prints, and its exit code.
namespace acc::ctl {

/// acc-ctl's own exit codes; submit and attach end with the job's.
enum class CtlExit : int {
  done = 0,
  failed = 1,
  usage = 2,
  no_such_job = 3,
  no_service = 4,
  refused = 5,
};
[[nodiscard]] constexpr int code(CtlExit exit) { return static_cast<int>(exit); }

/// A line of our own, to the standard error.
void tell(const std::string& text);
/// A reader that has seen enough (`| head`) is no failure.
int print(const std::string& text);
/// JSON, perhaps with words of other users, so that nothing in it steers a terminal.
int print_json(std::string_view json);

/// What went wrong, and how a command ends by it.
struct Failure {
  CtlExit exit = CtlExit::failed;
  std::string text;
};
/// An error of a connection, or of looking a job up.
[[nodiscard]] Failure failure_of(const Error& error);
/// What the service said no to, or the node that it was to ask doesn't answer.
[[nodiscard]] Failure failure_of(const Answer& answer);

/// "; warning: …" of one that was carried out; empty: there is none.
[[nodiscard]] std::string warning_in(const Answer& answer);

int fail(CtlExit exit, const std::string& text);
int fail(const Error& error);
int fail(const Answer& answer);

}  // namespace acc::ctl
