#include "runtime/nccl/dynamic_library.hpp"

#include <dlfcn.h>
#include <glob.h>

#include <acc/error.hpp>
#include <cstdlib>

namespace acc::runtime {

std::vector<std::string> candidates(
    const LibrarySearch& search,
    const std::function<std::optional<std::string>(const char*)>& environment,
    const std::function<std::vector<std::string>(const std::string&)>& glob) {
  std::vector<std::string> paths = search.names;
  const auto add_folder = [&](const std::string& folder) {
    for (const auto& name : search.names) {
      for (auto& path : glob(folder + "/" + name)) paths.push_back(std::move(path));
    }
  };
  for (const char* home : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const auto folder = environment(home); folder && !folder->empty()) {
      add_folder(*folder + "/lib64");
      add_folder(*folder + "/lib");
    }
  }
  add_folder("/usr/local/cuda*/lib64");
  add_folder("/usr/local/cuda*/lib");
  for (const char* home : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const auto folder = environment(home);
    if (!folder || folder->empty()) continue;
    for (const auto& wheel : search.wheels) {
      add_folder(*folder + "/lib/python3*/site-packages/" + wheel);
    }
  }
  return paths;
}

namespace {

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::optional<std::string>{value} : std::nullopt;
}

std::vector<std::string> files_like(const std::string& pattern) {
  ::glob_t found{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  ::globfree(&found);
  return paths;
}

/// RTLD_NOW: a missing symbol is detected here, not in the middle of a collective.
constexpr int kHow = RTLD_NOW | RTLD_LOCAL;

std::string last_complaint() {
  const char* text = ::dlerror();
  return text != nullptr ? text : "unknown error";
}

}  // namespace

DynamicLibrary DynamicLibrary::open(const LibrarySearch& search) {
  if (const auto named = environment(search.variable.c_str()); named && !named->empty()) {
    if (void* handle = ::dlopen(named->c_str(), kHow)) return {handle, *named};
    throw Error{ErrorCode::system, search.what + ": " + search.variable + " names '" + *named +
                                       "', which can't be loaded: " + last_complaint()};
  }
  // A copy that the process has loaded (PyTorch brings its own) comes first: two copies would share
  // no communicator and might differ in version.
  for (const auto& name : search.names) {
    if (void* handle = ::dlopen(name.c_str(), kHow | RTLD_NOLOAD)) return {handle, name};
  }
  std::string broken;
  for (const auto& path : candidates(search, environment, files_like)) {
    if (void* handle = ::dlopen(path.c_str(), kHow)) return {handle, path};
    const auto complaint = last_complaint();
    // A bare name that isn't found is normal; an existing file that can't be loaded is a hint.
    if (path.find('/') != std::string::npos && broken.empty()) broken = complaint;
  }
  throw Error{ErrorCode::system, search.what + ": " + search.names.front() + " was not found" +
                                     (broken.empty() ? std::string{} : " (" + broken + ")") + ": " +
                                     search.remedy};
}

void* DynamicLibrary::symbol(const char* name) const { return ::dlsym(handle_, name); }

}  // namespace acc::runtime
