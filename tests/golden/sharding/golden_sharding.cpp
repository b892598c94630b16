/// golden-sharding [--threads] DIR: holds every *.json file of a folder, in the format of the
/// recorded sharding cases, against the runtime. Names each row that differs; the last line is "N
/// passed, M failed". Ranks are processes, or threads of this one. Ends with 0: none differ, 1:
/// some do, 2: a file can't be understood.
#include "tests/golden/sharding/row.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>

namespace acc::golden {

namespace {

namespace fs = std::filesystem;

struct Schema {
  std::string_view inputs;  ///< as the note names them
  Differences (*check)(const Inputs&, const json&);
};

constexpr std::array kSchemas{
    Schema{"dataset length, batch_size, num_processes, drop_last, split_batches, even_batches",
           check_batch_sampler_shard},
    Schema{"dataset length, batch_size, num_processes, drop_last, split_batches",
           check_iterable_dataset_shard},
    Schema{"num_processes, dataset length, batch_size, drop_last, split_batches, even_batches, "
           "dispatch_batches, iterable dataset",
           check_gather_for_metrics},
    Schema{"num_processes, length, apply_padding, kind", check_split_between_processes},
    Schema{"num_processes, dataset length, batch_size, batches to skip", check_skip_first_batches},
    Schema{"batches per epoch, gradient accumulation steps, sync_with_dataloader",
           check_accumulate},
};

std::vector<std::string> names_in(std::string_view list) {
  std::vector<std::string> names;
  for (;;) {
    const auto comma = list.find(", ");
    names.emplace_back(list.substr(0, comma));
    if (comma == std::string_view::npos) return names;
    list.remove_prefix(comma + 2);
  }
}

/// The words between "in = [" and "]" of a note.
std::optional<std::string> inputs_of(const std::string& note) {
  constexpr std::string_view kBefore = "in = [";
  const auto begin = note.find(kBefore);
  const auto end = note.find(']', begin == std::string::npos ? 0 : begin);
  if (begin == std::string::npos || end == std::string::npos) return std::nullopt;
  return note.substr(begin + kBefore.size(), end - begin - kBefore.size());
}

struct Tally {
  std::size_t passed = 0;
  std::size_t failed = 0;
};

void tell(const std::string& name, const json& row, const Differences& differences, Tally& tally) {
  if (differences.empty()) {
    ++tally.passed;
    return;
  }
  ++tally.failed;
  json id = json::object();
  for (const auto* key : {"in", "op", "world", "args"}) {
    if (row.contains(key)) id[key] = row[key];
  }
  std::printf("%s differs: %s\n", name.c_str(), id.dump().c_str());
  for (const auto& difference : differences) std::printf("  %s\n", difference.c_str());
}

void check_file(const fs::path& path, Tally& tally) {
  std::ifstream file{path, std::ios::binary};
  if (!file) throw Malformed{"can't be opened"};
  const auto text = std::string{std::istreambuf_iterator<char>{file}, {}};
  json document;
  try {
    document = json::parse(text);
  } catch (const json::parse_error& error) {
    throw Malformed{std::string{"is not JSON: "} + error.what()};
  }
  const auto& note = field(document, "note");
  const auto& cases = field(document, "cases");
  if (!note.is_string() || !cases.is_array())
    throw Malformed{"'note' is not text or 'cases' is not a list"};

  const auto inputs = inputs_of(note);
  const auto* const schema = std::find_if(kSchemas.begin(), kSchemas.end(), [&](const auto& one) {
    return inputs && one.inputs == *inputs;
  });
  if (inputs && schema == kSchemas.end())
    throw Malformed{"a schema that is not known: in = [" + *inputs + "]"};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string name = path.filename().string() + " case " + std::to_string(i);
    try {
      const auto differences =
          inputs ? schema->check(Inputs{names_in(*inputs), field(cases[i], "in")}, cases[i])
                 : check_collective(cases[i]);
      tell(name, cases[i], differences, tally);
    } catch (const Malformed& fault) {
      throw Malformed{"case " + std::to_string(i) + ": " + fault.what()};
    }
  }
}

int run(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code failure;
  for (fs::directory_iterator entry{folder, failure}, end; !failure && entry != end;
       entry.increment(failure)) {
    if (entry->path().extension() == ".json") files.push_back(entry->path());
  }
  if (failure || files.empty()) {
    std::fprintf(stderr, "golden-sharding: %s: %s\n", folder.c_str(),
                 failure ? failure.message().c_str() : "no *.json file in it");
    return 2;
  }
  std::sort(files.begin(), files.end());
  Tally tally;
  for (const auto& path : files) {
    try {
      check_file(path, tally);
    } catch (const Malformed& fault) {
      std::fprintf(stderr, "golden-sharding: %s: %s\n", path.c_str(), fault.what());
      return 2;
    }
  }
  std::printf("%zu passed, %zu failed\n", tally.passed, tally.failed);
  return tally.failed == 0 ? 0 : 1;
}

}  // namespace

const json& field(const json& row, const std::string& key) {
  if (!row.is_object() || !row.contains(key)) throw Malformed{"there is no '" + key + "'"};
  return row[key];
}

Inputs::Inputs(const std::vector<std::string>& names, const json& values) {
  if (!values.is_array() || values.size() != names.size()) {
    throw Malformed{"'in' has not the " + std::to_string(names.size()) +
                    " values that the note names"};
  }
  for (std::size_t i = 0; i < names.size(); ++i) values_.emplace(names[i], values[i]);
}

const json& Inputs::at(const std::string& name) const { return values_.at(name); }

std::size_t Inputs::number(const std::string& name) const {
  const auto& value = at(name);
  if (!value.is_number_integer() || value < 0 || value > 10'000'000)
    throw Malformed{"'" + name + "' is " + value.dump() + ": not a number from 0 to 10 million"};
  return value;
}

std::size_t Inputs::positive(const std::string& name) const {
  const auto value = number(name);
  if (value == 0) throw Malformed{"'" + name + "' is 0"};
  return value;
}

bool Inputs::flag(const std::string& name) const {
  const auto value = number(name);
  if (value > 1) throw Malformed{"'" + name + "' is " + std::to_string(value) + ": not 0 or 1"};
  return value == 1;
}

std::string Inputs::word(const std::string& name) const {
  const auto& value = at(name);
  if (!value.is_string()) throw Malformed{"'" + name + "' is not text"};
  return value;
}

void compare(const std::string& what, const json& recorded, const json& ours,
             Differences& differences) {
  if (recorded != ours)
    differences.push_back(what + ": recorded " + recorded.dump() + ", ours " + ours.dump());
}

}  // namespace acc::golden

int main(int argc, char** argv) {
  const bool threads = argc > 1 && std::string_view{argv[1]} == "--threads";
  if (argc != (threads ? 3 : 2)) {
    std::fprintf(stderr, "usage: golden-sharding [--threads] DIR\n");
    return 2;
  }
  try {
    acc::golden::ranks_are_threads(threads);
    return acc::golden::run(argv[argc - 1]);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "golden-sharding: %s\n", failure.what());
    return 2;
  }
}
