#include "launcher/ctl/outcome.hpp"

#include "launcher/ctl/job_list.hpp"

#include <unistd.h>

namespace acc::ctl {

void tell(const std::string& text) { write_out(STDERR_FILENO, "acc-ctl: " + text + "\n", nullptr); }

int print(const std::string& text) {
  write_out(STDOUT_FILENO, text, nullptr);
  return code(CtlExit::done);
}

int fail(CtlExit exit, const std::string& text) {
  tell(text);
  return code(exit);
}

int fail(const Error& error) {
  if (error.code == Errc::bad_usage) return fail(CtlExit::usage, error.what);
  if (error.code == Errc::not_permitted) return fail(CtlExit::refused, error.what);
  return fail(error.code == Errc::malformed ? CtlExit::failed : CtlExit::no_service, error.what);
}

int fail(const Answer& answer) {
  auto why = error_of(answer.body);
  if (why.empty()) why = "acc-agent answers with status " + std::to_string(answer.status);
  if (answer.status == kHttpNotFound) return fail(CtlExit::no_such_job, why);
  if (answer.status == kHttpBadRequest) return fail(CtlExit::usage, why);
  return fail(answer.status >= 500 && answer.status != 503 ? CtlExit::failed : CtlExit::refused,
              why);
}

}  // namespace acc::ctl
