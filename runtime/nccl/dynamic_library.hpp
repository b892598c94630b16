#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Finds a shared library that is nobody's dependency.
namespace acc::runtime {

struct LibrarySearch {
  std::string what;                 ///< "NCCL": for messages
  std::vector<std::string> names;   ///< "libnccl.so.2", the best first
  std::string variable;             ///< names the file; it and no other is taken then
  std::vector<std::string> wheels;  ///< folders below a Python's site-packages: "nvidia/nccl/lib"
  std::string remedy;               ///< end of the message when there is none
};

/// The paths to try, in order, after the variable and what the process has loaded already: by bare
/// name (LD_LIBRARY_PATH, ld.so.cache), below CUDA_HOME and CUDA_PATH, /usr/local/cuda*, and in the
/// Python environment that is active.
[[nodiscard]] std::vector<std::string> candidates(
    const LibrarySearch& search,
    const std::function<std::optional<std::string>(const char*)>& environment,
    const std::function<std::vector<std::string>(const std::string&)>& glob);

/// A library that was found; it stays loaded until the process ends, as CUDA's own threads run in
/// it.
class DynamicLibrary {
 public:
  /// @throws Error system: one line with what was tried and what to do.
  static DynamicLibrary open(const LibrarySearch& search);

  /// nullptr: it has no such symbol.
  [[nodiscard]] void* symbol(const char* name) const;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  DynamicLibrary(void* handle, std::string path) : handle_{handle}, path_{std::move(path)} {}
  void* handle_;
  std::string path_;
};

}  // namespace acc::runtime
