#include "agent/preload/preload_course.hpp"

#include "common/text.hpp"

#include <array>
#include <cstdio>
#include <utility>

namespace acc::agent::preload {

namespace {

// It does nothing between rounds, so all it gains are a few pages of its interpreter.
constexpr std::uint64_t kMayGrow = std::uint64_t{64} << 20U;
constexpr std::string_view kCold = ": the workers start cold";

std::string in_seconds(double seconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f s", seconds);
  return text.data();
}

std::string ended(const ExitStatus& status) {
  return (std::holds_alternative<Signaled>(status) ? "was " : "") + describe(status);
}

}  // namespace

void PreloadCourse::begin(Instant now) {
  phase_ = Phase::importing;
  began_ = now;
  is_prepared_ = false;
  module_.clear();
}

PreloadCourse::Next PreloadCourse::off(std::string why) {
  phase_ = Phase::off;
  warning_ = "--preload: " + std::move(why) + std::string{kCold};
  return Next::drop;
}

PreloadCourse::Next PreloadCourse::replace_or_off(const std::string& why) {
  if (replaced_ == kReplacements) return off(why + ", again");
  ++replaced_;
  phase_ = Phase::importing;  // of the one that follows
  warning_ = "--preload: " + why + ": another preloader is started";
  return Next::replace;
}

PreloadCourse::Next PreloadCourse::on(const Message& message) {
  if (phase_ != Phase::importing) return on_nonsense();
  if (std::holds_alternative<Started>(message)) {
    is_prepared_ = true;
  } else if (const auto* importing = std::get_if<Importing>(&message)) {
    module_ = importing->module;
  } else if (const auto* unsafe = std::get_if<Unsafe>(&message)) {
    return off(unsafe->module.empty() ? unsafe->reason
                                      : in_quotes(unsafe->module) + ' ' + unsafe->reason);
  } else if (const auto* ready = std::get_if<Ready>(&message)) {
    if (ready->modules.empty())
      return off("the script imports no installed package at its top level");
    phase_ = Phase::ready;
    resident_bytes_ = ready->resident_bytes;
    if (!std::exchange(was_ready_, true))
      note_ = "preloaded " + ready->modules + " in " + in_seconds(ready->seconds) +
              "; workers are forked from that process";
  } else {
    return on_nonsense();
  }
  return Next::nothing;
}

PreloadCourse::Next PreloadCourse::on_exit(const ExitStatus& status,
                                           const std::string& last_words) {
  if (!has_process()) return Next::nothing;
  const std::string said = last_words.empty() ? "" : " (" + printable(last_words) + ")";
  if (phase_ != Phase::importing) return replace_or_off("the preloader " + ended(status));
  if (!is_prepared_)
    return off("the interpreter can't run the preloader: it " + ended(status) + said);
  const auto where = module_.empty() ? "" : " while it imported " + in_quotes(module_);
  return off("the preloader " + ended(status) + where + said);
}

PreloadCourse::Next PreloadCourse::on_refused(std::string why) { return off(std::move(why)); }

PreloadCourse::Next PreloadCourse::on_time_out() {
  if (phase_ != Phase::importing) return Next::nothing;
  const auto what = module_.empty() ? "the start of the preloader"
                                    : "the import of " + in_quotes(module_);
  return off(what + " was not over after " + describe(patience_) + " (--preload_timeout)");
}

PreloadCourse::Next PreloadCourse::on_nonsense() {
  return off("the preloader sent an unexpected message");
}

PreloadCourse::Next PreloadCourse::end_round(std::uint64_t resident_bytes) {
  phase_ = Phase::ready;
  if (resident_bytes <= resident_bytes_ + kMayGrow) return Next::nothing;
  return replace_or_off("the preloader has grown from " + std::to_string(resident_bytes_ >> 20U) +
                        " MiB to " + std::to_string(resident_bytes >> 20U) + " MiB");
}

PreloadCourse::Next PreloadCourse::fail_round(std::string why) {
  const auto next = replace_or_off("the workers could not be forked: " + std::move(why));
  if (warning_ && next == Next::replace) *warning_ += "; in this round they start cold";
  return next;
}

PreloadCourse::Next PreloadCourse::on_lease_over() {
  if (phase_ == Phase::off) return Next::nothing;
  phase_ = Phase::postponed;
  return Next::postpone;
}

PreloadCourse::Next PreloadCourse::fail_cancelled(const std::string& why) {
  return replace_or_off("a cancelled start of workers was not cleaned up: " + why);
}

std::optional<std::string> PreloadCourse::take_warning() {
  return std::exchange(warning_, std::nullopt);
}

std::optional<std::string> PreloadCourse::take_note() {
  return std::exchange(note_, std::nullopt);
}

}  // namespace acc::agent::preload
