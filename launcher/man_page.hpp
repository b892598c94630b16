#pragma once

#include <string>
#include <string_view>

/// Manual pages for the packages, in troff.
namespace acc::launcher {

/// acc-launch(1), from the tables of settings and exit codes.
[[nodiscard]] std::string launch_man_page();

/// A page that shows what `program --help` printed. `summary` is the line of apropos(1).
[[nodiscard]] std::string man_page_from_help(std::string_view program, std::string_view summary,
                                             std::string_view help);

}  // namespace acc::launcher
