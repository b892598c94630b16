#pragma once

#include "common/duration.hpp"

#include <string>

namespace acc::agent {

/// Whether the file system of `path`, or of the nearest folder above it that is there, answers. A
/// call to one that doesn't, as its server is away (NFS) or its process is stopped (FUSE), would
/// hold up the loop for as long: then no heartbeat is sent, and no Ctrl-C is heeded.
///
/// Of the loop's thread alone. It blocks for 2 s at most, and not at all while an earlier question
/// about that path is still open, which gives false; local file systems are asked once. True where
/// no thread can be made to ask. One that waits for a FUSE file system ends with that, and this
/// process with it.
/// @param patience  in place of the 2 s
[[nodiscard]] bool file_system_answers(const std::string& path, Millis patience = Millis{2'000});

}  // namespace acc::agent
