#pragma once

#include "agent/watch/hang_detector.hpp"

#include <string>

namespace acc::agent {

/// What --hang_timeout auto has learned, one small file for each name of a job in
/// $XDG_STATE_HOME/acc/hang (else ~/.local/state/acc/hang).
[[nodiscard]] std::string learned_times_file(const std::string& job);
/// None, if there is no file or it can't be read.
[[nodiscard]] LearnedTimes read_learned_times(const std::string& file);
/// Replaces the file in one step. A failure costs no more than what was learned.
void write_learned_times(const std::string& file, const LearnedTimes& times);

}  // namespace acc::agent
