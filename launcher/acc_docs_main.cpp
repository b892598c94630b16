#include "launcher/docs_tables.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace fs = std::filesystem;

/// acc-docs [--check] DIR: writes the generated tables of DIR/*.md anew, or says which are out of
/// date.
int main(int argc, char** argv) {
  const bool check = argc == 3 && std::string{argv[1]} == "--check";
  if (argc != (check ? 3 : 2)) {
    std::fputs("usage: acc-docs [--check] DIR\n", stderr);
    return 2;
  }
  bool good = true;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator{argv[argc - 1], error}) {
    if (entry.path().extension() != ".md") continue;
    std::ifstream in{entry.path(), std::ios::binary};
    const std::string page{std::istreambuf_iterator<char>{in}, {}};
    const auto fresh = acc::launcher::with_fresh_blocks(page);
    if (!fresh) {
      std::fprintf(stderr, "acc-docs: %s: %s\n", entry.path().c_str(), fresh.error().what.c_str());
      good = false;
    } else if (*fresh != page && check) {
      std::fprintf(stderr, "acc-docs: %s is out of date: run acc-docs %s\n", entry.path().c_str(),
                   argv[argc - 1]);
      good = false;
    } else if (*fresh != page) {
      std::ofstream{entry.path(), std::ios::binary} << *fresh;
    }
  }
  if (error) std::fprintf(stderr, "acc-docs: %s: %s\n", argv[argc - 1], error.message().c_str());
  return good && !error ? 0 : 1;
}
