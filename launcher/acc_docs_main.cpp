#include "launcher/completions.hpp"
#include "launcher/docs_tables.hpp"
#include "launcher/man_page.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fs = std::filesystem;

namespace {

std::string read_all(std::istream& in) { return {std::istreambuf_iterator<char>{in}, {}}; }

/// Of the packages: what the programs' own tables and help texts make.
std::optional<std::string> file_of_package(const std::vector<std::string>& words) {
  if (words.size() == 1 && words[0] == "man") return acc::launcher::launch_man_page();
  if (words.size() == 3 && words[0] == "man")
    return acc::launcher::man_page_from_help(words[1], words[2], read_all(std::cin));
  if (words.size() != 1) return std::nullopt;
  if (words[0] == "bash") return acc::launcher::bash_completion();
  if (words[0] == "zsh") return acc::launcher::zsh_completion();
  if (words[0] == "fish") return acc::launcher::fish_completion();
  return std::nullopt;
}

int print(const std::vector<std::string>& words) {
  const auto text = file_of_package(words);
  if (!text) {
    std::fputs("acc-docs: --print man | man PROGRAM SUMMARY <HELP | bash | zsh | fish\n", stderr);
    return 2;
  }
  return std::fputs(text->c_str(), stdout) >= 0 && std::fflush(stdout) == 0 ? 0 : 1;
}

/// False: a page is out of date, or broken.
bool refresh(const fs::path& path, bool check, const char* folder) {
  std::ifstream in{path, std::ios::binary};
  const std::string page = read_all(in);
  const auto fresh = acc::launcher::with_fresh_blocks(page);
  if (!fresh) {
    std::fprintf(stderr, "acc-docs: %s: %s\n", path.c_str(), fresh.error().what.c_str());
    return false;
  }
  if (*fresh == page) return true;
  if (check) {
    std::fprintf(stderr, "acc-docs: %s is out of date: run acc-docs %s\n", path.c_str(), folder);
    return false;
  }
  std::ofstream{path, std::ios::binary} << *fresh;
  return true;
}

}  // namespace

/// acc-docs [--check] DIR: writes the generated tables of DIR/*.md anew, or says which are out of
/// date. acc-docs --print WHAT: a manual page or a shell's completions, for the packages.
int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words[0] == "--print") return print({words.begin() + 1, words.end()});
  const bool check = words.size() == 2 && words[0] == "--check";
  if (words.size() != (check ? 2 : 1)) {
    std::fputs("usage: acc-docs [--check] DIR | --print WHAT\n", stderr);
    return 2;
  }
  bool good = true;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator{words.back(), error}) {
    if (entry.path().extension() != ".md") continue;
    good = refresh(entry.path(), check, words.back().c_str()) && good;
  }
  if (error)
    std::fprintf(stderr, "acc-docs: %s: %s\n", words.back().c_str(), error.message().c_str());
  return good && !error ? 0 : 1;
}
