#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <sys/stat.h>

#include <string>
#include <string_view>

namespace acc {

/// A regular file with something else in it: not empty, and its text, without spaces and line ends,
/// doesn't begin with `begin`. Such a file was named by mistake (`--report train.py`), and must not
/// be written over. False where there is no file, or it can't be read.
[[nodiscard]] bool holds_other_text(const std::string& path, std::string_view begin);

/// Whether what lies at `file`, of which `info` tells, may have been put there for us: it is
/// another user's, or has another name elsewhere, in a sticky folder that all may write to, as /tmp
/// is.
[[nodiscard]] bool is_planted(const struct stat& info, const std::string& file);

/// The file that opening a path for writing creates or changes.
struct FileBehindLinks {
  std::string file;
  int error = 0;  ///< errno of a path that must not be followed; then `file` is empty
  /// `file` is a link of /proc, as /dev/stdout leads to one: only the kernel can follow it to what
  /// our caller has opened, which may have no name, and isn't judged.
  bool is_open = false;
};
/// Symbolic links of `path`'s last component are followed, also one to a file that isn't there yet;
/// those of its folders are left to the kernel.
/// @return EACCES: a link, pipe or device that is planted. The kernel refuses to open those, where
/// it is set so (fs.protected_symlinks, protected_fifos). ELOOP: more links than the kernel
/// follows.
[[nodiscard]] FileBehindLinks file_behind_links(const std::string& path);

/// Opens a regular file that is there for writing, without waiting, through links as above; its
/// text stays. Of an open that creates files the kernel refuses more (fs.protected_regular), and so
/// does this.
/// @return EACCES: in a sticky folder that all may write to it is another user's, or has another
/// name elsewhere; EINVAL: no regular file
[[nodiscard]] Result<UniqueFd> open_file_there(const std::string& path);

}  // namespace acc
