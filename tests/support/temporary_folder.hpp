#pragma once

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace acc::testing {

/// Gone with its contents at the end.
class TestFolder {
 public:
  TestFolder() {
    auto name = (std::filesystem::temp_directory_path() / "acc-test-XXXXXX").native();
    if (::mkdtemp(name.data()) == nullptr) throw std::system_error{errno, std::generic_category()};
    path_ = name;
  }
  ~TestFolder() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const {
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace acc::testing
