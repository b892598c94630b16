// Any bytes in a job.json or an exit.json give a record or an error; a record that was read is
// written as what is read again.
#include "agent/daemon/job_record.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace acc::agent::daemon;
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const auto note = decode_exit(text);
  if (note.has_value() && (note->exit_code < 0 || note->exit_code > 255)) std::abort();
  const auto job = decode_job(text);
  if (job.has_error()) {
    if (job.error().what.empty()) std::abort();
    return 0;
  }
  if (!is_job_id(job->id) || job->submission->words.empty()) std::abort();
  const std::string once = encode_job(*job);
  const auto again = decode_job(once);
  if (again.has_error() || encode_job(*again) != once) std::abort();
  return 0;
}
