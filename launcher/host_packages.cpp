#include "common/text.hpp"
#include "launcher/host_probes.hpp"
#include "launcher/program.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace acc::launcher {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxSiteFile = 256 * 1024;  // bytes of a .pth, a pyvenv.cfg

std::string own_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string{} : value;
}

std::string program_of(const std::string& interpreter) {
  return find_program(interpreter, {{"PATH", own_variable("PATH")}});
}

/// A virtual environment has the system's and the user's packages only if it was made so.
bool sees_others(const fs::path& program) {
  const auto settings =
      beginning_of_script(program.parent_path().parent_path() / "pyvenv.cfg", kMaxSiteFile);
  for (const auto& line : split(settings, '\n')) {
    const auto equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::string_view text{line};
    if (trim(text.substr(0, equals)) == "include-system-site-packages")
      return to_lower(trim(text.substr(equals + 1))) == "true";
  }
  return true;
}

/// Where Python would look for an installed module: best effort, from the files that `site` reads.
class Packages {
 public:
  explicit Packages(const std::string& interpreter) {
    for (const auto& part : split(own_variable("PYTHONPATH"), ':'))
      if (!part.empty()) folders_.emplace_back(part);
    const auto found = program_of(interpreter);
    if (found.empty()) return;
    std::error_code ignored;
    const auto real = fs::canonical(found, ignored);
    // A virtual environment's python is a link to the system's: its own prefix counts first, then
    // where it leads.
    add_prefix(fs::path{found}.parent_path().parent_path(), {});
    if (sees_others(found)) {
      if (own_variable("PYTHONNOUSERSITE").empty()) add_user_site(real.filename());
      add_prefix(real.parent_path().parent_path(), {});
    }
    for (const auto& folder : std::vector{sites_}) read_site(folder);
  }

  [[nodiscard]] bool is_empty() const { return sites_.empty(); }

  /// Of the module, without its own name; empty: it isn't installed.
  [[nodiscard]] fs::path place_of(std::string_view module) const {
    std::error_code ignored;
    for (const auto& folder : folders_)
      if (fs::exists(folder / module / "__init__.py", ignored)) return folder;
    for (const auto& finder : finders_) {  // MAPPING: dict[str, str] = {'deepspeed': '/src/ds'}
      const auto start = in_quotes(module) + ": '";
      const auto at = finder.find(start);
      if (at == std::string::npos) continue;
      const auto begin = at + start.size();
      const fs::path folder{finder.substr(begin, finder.find('\'', begin) - begin)};
      if (fs::exists(folder / "__init__.py", ignored)) return folder.parent_path();
    }
    return {};
  }

  [[nodiscard]] const std::vector<fs::path>& folders() const { return folders_; }

 private:
  /// {site,dist}-packages in PREFIX/lib/pythonX.Y, and Debian's /usr/lib/python3/dist-packages.
  /// @param only  a version, as "python3.11"; empty: any
  void add_prefix(const fs::path& prefix, const std::string& only) {
    std::error_code ignored;
    for (const auto& lib : {prefix / "lib", prefix / "local" / "lib", prefix / "lib64"}) {
      for (const auto& version : fs::directory_iterator{lib, ignored}) {
        const auto name = version.path().filename().string();
        if (!name.starts_with("python3") || (!only.empty() && name != only)) continue;
        for (const auto* packages : {"site-packages", "dist-packages"})
          add_site(version.path() / packages);
      }
    }
  }

  /// Of `pip install --user`.
  void add_user_site(const std::string& version) {
    const auto base = own_variable("PYTHONUSERBASE");
    const Environment home{{"HOME", own_variable("HOME")}};
    const bool is_exact = version.starts_with("python3.");
    add_prefix(expand_home(base.empty() ? "~/.local" : base, home),
               is_exact ? version : std::string{});
  }

  void add_site(const fs::path& folder) {
    std::error_code ignored;
    const bool is_known = std::ranges::find(sites_, folder) != sites_.end();
    if (is_known || !fs::is_directory(folder, ignored)) return;
    sites_.push_back(folder);
    folders_.push_back(folder);
  }

  /// Lines of its .pth files: folders, or an import of what `pip install --editable` left there.
  void read_site(const fs::path& site) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator{site, ignored}) {
      if (entry.path().extension() != ".pth") continue;
      for (const auto& raw : split(beginning_of_script(entry.path(), kMaxSiteFile), '\n')) {
        const std::string line{trim(raw)};
        constexpr std::string_view kImport = "import ";
        if (line.empty() || line.starts_with('#')) continue;
        if (!line.starts_with(kImport)) {
          folders_.push_back(site / line);
          continue;
        }
        const auto module = line.substr(kImport.size(), line.find(';') - kImport.size());
        if (module.starts_with("__editable__"))
          finders_.push_back(beginning_of_script(site / (module + ".py"), kMaxSiteFile));
      }
    }
  }

  std::vector<fs::path> folders_;
  std::vector<fs::path> sites_;       ///< of folders_
  std::vector<std::string> finders_;  ///< their texts
};

/// Of "torch-2.4.0.dist-info", "numpy-1.24.2-py3.11.egg-info": what stands behind the first dash.
std::string version_in_name(const fs::path& folder, std::string_view package,
                            std::string_view ending) {
  const auto start = std::string{package} + "-";
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator{folder, ignored}) {
    const auto name = entry.path().filename().string();
    if (!name.starts_with(start) || !name.ends_with(ending)) continue;
    const auto version = name.substr(start.size(), name.size() - start.size() - ending.size());
    return version.substr(0, version.find("-py"));
  }
  return {};
}

/// Of a line `__version__ = '1.13.0a0'`, perhaps with a type, in a file that isn't run.
std::string assigned_version(const fs::path& file) {
  constexpr std::string_view kName = "__version__";
  std::ifstream in{file};
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(kName)) continue;
    const auto equals = line.find('=', kName.size());
    const auto value =
        trim(std::string_view{line}.substr(equals == std::string::npos ? line.size() : equals + 1));
    const bool is_quoted = !value.empty() && (value[0] == '\'' || value[0] == '"');
    const auto end = is_quoted ? value.find(value[0], 1) : std::string_view::npos;
    if (end != std::string_view::npos) return std::string{value.substr(1, end - 1)};
  }
  return {};
}

/// Of the package's dist-info, wherever it is.
std::string version_in_lists(const Packages& packages, std::string_view package) {
  for (const auto& folder : packages.folders())
    if (const auto found = version_in_name(folder, package, ".dist-info"); !found.empty())
      return found;
  return {};
}

}  // namespace

bool has_module(const std::string& interpreter, std::string_view module) {
  return !Packages{interpreter}.place_of(module).empty();
}

bool shows_packages(const std::string& interpreter) {
  const auto program = program_of(interpreter);
  return program.empty() || (is_binary(program) && !Packages{interpreter}.is_empty());
}

std::string installed_version(const std::string& interpreter, std::string_view package) {
  const Packages packages{interpreter};
  const auto folder = packages.place_of(package);
  if (folder.empty()) return {};
  if (const auto found = version_in_name(folder, package, ".dist-info"); !found.empty())
    return found;
  if (const auto found = assigned_version(folder / package / "version.py"); !found.empty())
    return found;
  if (const auto found = version_in_name(folder, package, ".egg-info"); !found.empty())
    return found;
  const auto listed = version_in_lists(packages, package);  // of an editable one
  return listed.empty() ? "0" : listed;
}

std::string listed_version(const std::string& interpreter, std::string_view package) {
  return version_in_lists(Packages{interpreter}, package);
}

std::string file_in_packages(const std::string& interpreter,
                             std::initializer_list<std::string_view> paths) {
  const Packages packages{interpreter};
  std::error_code ignored;
  for (const auto path : paths)
    for (const auto& folder : packages.folders())
      if (fs::exists(folder / path, ignored)) return folder / path;
  return {};
}

}  // namespace acc::launcher
