#pragma once

#include "common/error.hpp"

#include <string>
#include <string_view>

/// The tables in docs/ that are made from the code.
namespace acc::launcher {

/// Markdown of one block; empty text if there is no block of that name.
[[nodiscard]] std::string docs_block(std::string_view name);

/// `page` with all its `<!-- generated: NAME -->` … `<!-- end -->` blocks written anew.
Result<std::string> with_fresh_blocks(std::string_view page);

}  // namespace acc::launcher
