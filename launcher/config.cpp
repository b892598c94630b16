#include "launcher/config.hpp"

#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "launcher/config_keys.hpp"
#include "launcher/document.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace acc::launcher {

Environment read_environment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text{*entry};
    const auto equals = text.find('=');
    if (equals != std::string_view::npos)
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

std::string_view variable(const Environment& environment, std::string_view name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string_view{} : found->second;
}

const Value* Config::find(std::string_view key) const {
  const auto found = std::ranges::find(keys, key, &Entry::key);
  return found == keys.end() ? nullptr : &found->value;
}

std::string Config::where(const Value& value) const {
  return value.line == 0 ? path : path + ":" + std::to_string(value.line);
}

static std::string home_folder(const Environment& environment) {
  const auto home = variable(environment, "HOME");
  if (!home.empty()) return std::string{home};
  const auto* user = ::getpwuid(::getuid());
  return user != nullptr && user->pw_dir != nullptr ? user->pw_dir : "";
}

std::string expand_home(std::string path, const Environment& environment) {
  if (path != "~" && !path.starts_with("~/")) return path;
  const auto home = home_folder(environment);
  if (!home.empty()) path.replace(0, 1, home);
  return path;
}

std::string default_config_path(const Environment& environment) {
  std::string base{variable(environment, "HF_HOME")};
  if (base.empty()) {
    base = variable(environment, "XDG_CACHE_HOME");
    base = (base.empty() ? "~/.cache" : base) + "/huggingface";
  }
  return expand_home(base, environment) + "/accelerate/default_config.yaml";
}

static Result<std::string> read_bounded(const std::string& path) {
  // O_NONBLOCK: a named pipe must not make us wait for ever.
  const UniqueFd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) {
    const int reason = errno;
    auto error = system_error(reason, "config file '" + path + "'");
    if (reason == ENOENT) error.what += "; acc-config --config_file FILE asks, and writes one";
    return error;
  }
  if (!S_ISREG(info.st_mode))
    return Error{Errc::bad_config, "config file '" + path + "' is not a regular file"};
  std::string text;
  char buffer[16384];
  for (ssize_t got = 0; (got = ::read(file.get(), buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(got));
    if (text.size() > kMaxConfigBytes) break;  // read_yaml says why
  }
  return text;
}

Result<Config> load_config(const std::string& path) {
  const auto text = read_bounded(path);
  if (!text) return Error{Errc::bad_config, text.error().what};
  return parse_config(*text, path);
}

/// `fp16: true` and a top-level `dynamo_backend:` stem from old versions of the original.
static void translate_old_keys(Map& keys) {
  const auto fp16 = std::ranges::find(keys, "fp16", &Entry::key);
  if (fp16 != keys.end()) {
    const bool has_precision =
        std::ranges::find(keys, "mixed_precision", &Entry::key) != keys.end();
    if (has_precision || !truthy(fp16->value)) {
      keys.erase(fp16);
    } else {
      fp16->key = "mixed_precision";
      fp16->value.data = std::string{"fp16"};
    }
  }
  const auto backend = std::ranges::find(keys, "dynamo_backend", &Entry::key);
  if (backend == keys.end()) return;
  auto value = backend->value;
  keys.erase(backend);
  Map section;
  const auto line = value.line;
  if (python_text(value) != "NO") section.push_back({"dynamo_backend", std::move(value)});
  std::erase_if(keys, [](const Entry& entry) { return entry.key == "dynamo_config"; });
  keys.push_back({"dynamo_config", Value{std::move(section)}});
  keys.back().value.line = line;
}

Result<Config> parse_config(std::string_view text, const std::string& path) {
  auto document = path.ends_with(".json") ? read_json(text, path) : read_yaml(text, path);
  if (!document) return document.error();
  auto& root = document->root;
  if (root.is_none())
    return Error{Errc::bad_config,
                 path + ": the file is empty; it needs at least distributed_type"};
  auto* map = std::get_if<Map>(&root.data);
  if (map == nullptr) {
    return Error{Errc::bad_config, path + ": holds " + std::string{kind_name(root)} +
                                       ", not keys with values (key: value)"};
  }
  Config config{path, std::move(*map), std::move(document->notes)};
  translate_old_keys(config.keys);
  return config;
}

namespace {

bool is_config_key(std::string_view name) {
  if (section_of(name) != Place::nowhere) return true;
  const auto* row = find_key(name);
  return row != nullptr && row->place == Place::top;
}

std::vector<std::string_view> config_key_names() {
  std::vector<std::string_view> names;
  for (const auto& row : key_rows()) {
    if (row.place == Place::top) names.push_back(row.name);
    const auto section = section_name(row.place);
    if (!section.empty() && std::ranges::find(names, section) == names.end())
      names.push_back(section);
  }
  return names;
}

/// Keys of a job on SageMaker, which the original's config file holds beside ours.
bool is_of_sagemaker(std::string_view key) {
  constexpr std::string_view kKeys[] = {"additional_args",
                                        "aws_access_key_id",
                                        "aws_secret_access_key",
                                        "base_job_name",
                                        "ec2_instance_type",
                                        "iam_role_name",
                                        "image_uri",
                                        "profile",
                                        "py_version",
                                        "pytorch_version",
                                        "region",
                                        "sagemaker_inputs_file",
                                        "sagemaker_metrics_file",
                                        "transformers_version"};
  return std::ranges::find(kKeys, key) != std::end(kKeys);
}

struct Advice {
  std::string text;
  std::string meant;  ///< a key of the file; empty if none is near
};

Advice advice_for(std::string_view key) {
  if (key == "cpu") return {" (did you mean use_cpu?)", "use_cpu"};
  const auto* row = find_key(key);
  if (row != nullptr && !section_name(row->place).empty())
    return {" (it belongs into the section " + std::string{section_name(row->place)} + ")", {}};
  if (row != nullptr && row->group == Group::processes)
    return {" (a flag only: distributed_type chooses the mode)", "distributed_type"};
  if (row != nullptr)
    return {" (a flag only, not a key of the file: --" + std::string{key} + ")", {}};
  const auto names = config_key_names();
  const std::string known{nearest(key, names)};
  if (known.empty()) return {};
  return {" (did you mean " + known + "?)", known};
}

void check_names(const Config& config, KeyCheck& check) {
  std::vector<const Entry*> unknown;
  // Then the whole file is refused for it (merge.cpp).
  const auto* kind = config.find("compute_environment");
  const bool is_for_sagemaker = kind != nullptr && python_text(*kind) == "AMAZON_SAGEMAKER";
  for (const auto& entry : config.keys) {
    if (was_removed(entry.key)) {
      check.notes.push_back(config.where(entry.value) + ": '" + entry.key +
                            "' has no effect: it was removed from Accelerate, delete it");
    } else if (is_of_sagemaker(entry.key)) {
      if (is_for_sagemaker) continue;
      check.complaints.push_back(
          {Errc::bad_config, config.where(entry.value) + ": '" + entry.key +
                                 "' is for SageMaker, whose jobs this launcher doesn't start: "
                                 "delete it, or start the job with `accelerate launch`"});
    } else if (!is_config_key(entry.key)) {
      unknown.push_back(&entry);
    }
  }
  std::ranges::sort(unknown, {}, [](const Entry* entry) { return std::string_view{entry->key}; });
  for (const auto* entry : unknown) {
    auto advice = advice_for(entry->key);
    check.complaints.push_back({Errc::bad_config, config.where(entry->value) + ": unknown key '" +
                                                      printable(entry->key) + "'" + advice.text});
    if (!advice.meant.empty()) check.meant.push_back(std::move(advice.meant));
  }
}

}  // namespace

bool was_removed(std::string_view key) {
  constexpr std::string_view kRemoved[] = {"ipex_config"};
  return std::ranges::find(kRemoved, key) != std::end(kRemoved);
}

KeyCheck check_config_keys(const Config& config) {
  KeyCheck check;
  check_names(config, check);
  for (const auto& entry : config.keys) {
    const bool is_section = section_of(entry.key) != Place::nowhere;
    if (is_section && entry.value.map() == nullptr && !entry.value.is_none()) {
      check.complaints.push_back(
          {Errc::bad_config, config.where(entry.value) + ": " + entry.key +
                                 " must be a mapping (indented `key: value` lines), not " +
                                 std::string{kind_name(entry.value)}});
    }
  }
  const bool is_misspelled =
      std::ranges::find(check.meant, "distributed_type") != check.meant.end();
  if (config.find("distributed_type") == nullptr && !is_misspelled) {
    check.complaints.push_back(
        {Errc::bad_config,
         config.path + ": distributed_type is missing: write distributed_type: 'NO' for one plain "
                       "process, MULTI_GPU, MULTI_CPU, FSDP, DEEPSPEED or MEGATRON_LM"});
    check.meant.emplace_back("distributed_type");
  }
  return check;
}

}  // namespace acc::launcher
