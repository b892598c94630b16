#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <string>

/// A folder with all that is in it, where a user may change it meanwhile: by descriptor, through no
/// link, onto no other file system or mount.
namespace acc::agent::daemon {

/// Removes `name` below `parent`. What is nested deeply costs no more descriptors. As root it
/// empties, below each entry of `name`, only folders of that entry's owner: what else a user moved
/// there, and couldn't remove, stays with EPERM. What is mounted there is detached, by root, or
/// stays with EXDEV.
[[nodiscard]] Result<void> remove_tree(int parent, const std::string& name);
/// What it takes on the disk; it stops counting after some hundred thousand files.
[[nodiscard]] std::uint64_t bytes_of_tree(int parent, const std::string& name);

}  // namespace acc::agent::daemon
