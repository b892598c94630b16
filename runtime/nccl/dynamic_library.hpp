#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Where to find a shared library that is loaded at run time.
namespace acc::runtime {

struct LibrarySearch {
  std::string what;                ///< "NCCL": for messages
  std::vector<std::string> names;  ///< "libnccl.so.2", the best first
  std::string variable;  ///< environment variable with the path, which is then the only one tried
  std::vector<std::string> wheels;  ///< folders below Python's site-packages: "nvidia/nccl/lib"
  std::string remedy;               ///< end of the message if none is found
};

/// The paths to try, in order, after the variable and what the process has loaded already: by bare
/// name (LD_LIBRARY_PATH, ld.so.cache), below CUDA_HOME and CUDA_PATH, /usr/local/cuda*, and in the
/// active Python environment.
[[nodiscard]] std::vector<std::string> candidates(
    const LibrarySearch& search,
    const std::function<std::optional<std::string>(const char*)>& environment,
    const std::function<std::vector<std::string>(const std::string&)>& glob);

/// A loaded library; it stays loaded until the process ends, as CUDA's own threads run in it.
class DynamicLibrary {
 public:
  /// @throws Error system: one line with what was tried and what to do.
  static DynamicLibrary open(const LibrarySearch& search);

  /// nullptr: no such symbol.
  [[nodiscard]] void* symbol(const char* name) const;
  template <class Function>
  void take(Function*& into, const char* name) const {
    into = reinterpret_cast<Function*>(symbol(name));
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  DynamicLibrary(void* handle, std::string path) : handle_{handle}, path_{std::move(path)} {}
  void* handle_;
  std::string path_;
};

/// The functions of a library as one struct, loaded on first use. Never destroyed: threads of a
/// hung abort may still be in the library when the process ends.
template <class Api>
class LazyLibrary {
 public:
  LazyLibrary(LibrarySearch (*search)(), Api (*read)(const DynamicLibrary&))
      : search_{search}, read_{read} {}

  /// @throws Error as DynamicLibrary::open and `read` do, at each call until it is found
  const Api& api() {
    const std::lock_guard lock{mutex_};
    if (path_.empty()) {
      const auto found = DynamicLibrary::open(search_());
      api_ = read_(found);
      path_ = found.path();
    }
    return api_;
  }
  /// Empty: not loaded yet.
  std::string path() {
    const std::lock_guard lock{mutex_};
    return path_;
  }

 private:
  LibrarySearch (*search_)();
  Api (*read_)(const DynamicLibrary&);
  std::mutex mutex_;
  Api api_{};
  std::string path_;
};

}  // namespace acc::runtime
