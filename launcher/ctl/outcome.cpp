#include "launcher/ctl/outcome.hpp"

#include "common/plain_text.hpp"
#include "launcher/ctl/job_list.hpp"

#include <nlohmann/json.hpp>

#include <unistd.h>

namespace acc::ctl {

void tell(const std::string& text) { write_out(STDERR_FILENO, "acc-ctl: " + text + "\n", nullptr); }

int print(const std::string& text) {
  write_out(STDOUT_FILENO, text, nullptr);
  return code(CtlExit::done);
}

int print_json(std::string_view json) { return print(safe_json(json)); }

int fail(CtlExit exit, const std::string& text) {
  tell(text);
  return code(exit);
}

Failure failure_of(const Error& error) {
  if (error.code == Errc::bad_usage) return {CtlExit::usage, error.what};
  if (error.code == Errc::not_permitted) return {CtlExit::refused, error.what};
  return {error.code == Errc::malformed ? CtlExit::failed : CtlExit::no_service, error.what};
}

Failure failure_of(const Answer& answer) {
  auto why = error_of(answer.body);
  if (why.empty()) why = "acc-agent answers with status " + std::to_string(answer.status);
  if (answer.status == kHttpNotFound) return {CtlExit::no_such_job, why};
  if (answer.status == kHttpBadRequest) return {CtlExit::usage, why};
  if (is_unanswered(answer.status, answer.body)) return {CtlExit::no_service, why};
  const bool is_failed = answer.status == kHttpInternalError || answer.status > kHttpGatewayTimeout;
  return {is_failed ? CtlExit::failed : CtlExit::refused, why};
}

std::string warning_in(const Answer& answer) {
  const auto warning = text_of(parse_json(answer.body), "warning");
  return warning.empty() ? std::string{} : "; warning: " + printable(warning, 600);
}

int fail(const Error& error) {
  const auto failure = failure_of(error);
  return fail(failure.exit, failure.text);
}

int fail(const Answer& answer) {
  const auto failure = failure_of(answer);
  return fail(failure.exit, failure.text);
}

}  // namespace acc::ctl
