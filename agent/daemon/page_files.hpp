#pragma once

#include <span>
#include <string_view>

namespace acc::agent::daemon {

/// A file of the status page, as agent/daemon/page has it; part of the program.
struct PageFile {
  std::string_view name;  ///< its path behind "/"; empty: the page itself
  std::string_view content_type;
  std::string_view etag;  ///< of its bytes, with the quotes
  std::string_view bytes;
};

[[nodiscard]] std::span<const PageFile> page_files();

}  // namespace acc::agent::daemon
