#pragma once

#include <span>
#include <string>
#include <string_view>

/// The preloader's Python code, which is part of our program, as an interpreter takes it.
namespace acc::agent::preload {

/// preloader.py and forked_workers.py, from the build.
[[nodiscard]] std::string_view preloader_source();
[[nodiscard]] std::string_view forked_workers_source();

struct PythonModule {
  std::string_view name;
  std::string_view source;
};
/// An uncompressed zip archive, which Python imports from (PYTHONPATH=ARCHIVE) without another
/// module.
[[nodiscard]] std::string make_archive(std::span<const PythonModule> modules);
/// What the first stage expects.
[[nodiscard]] std::string preloader_archive();

/// For `python -c`, before the arguments of the worker's command line: takes the archive as a packet
/// from descriptor 3, and executes the interpreter again, with the worker's command line and
/// the archive first in its PYTHONPATH. That the script isn't run instead is certain then: an
/// interpreter that would ignore PYTHONPATH (-E, -I, -S, also by a wrapper) is found out before.
[[nodiscard]] std::string_view first_stage();

}  // namespace acc::agent::preload
