#pragma once

#include "common/error.hpp"
#include "launcher/config.hpp"
#include "launcher/value.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Command lines whose flags have other names than ours.
namespace acc::configure {

/// A command line of another launcher, said with a config file and acc-launch.
struct ForeignLine {
  launcher::Map map;                     ///< of the config file
  std::vector<std::string> flags;        ///< of acc-launch, for what is no key of a file
  std::vector<std::string> command;      ///< the program and its arguments
  std::vector<std::string> notes;        ///< one for each flag without a counterpart
  std::vector<std::string> variables{};  ///< NAME=VALUE, set in front of acc-launch
};

/// The job is started on hosts that the flags name.
[[nodiscard]] bool has_hosts(const ForeignLine& line);

/// NAME=VALUE, or a NAME alone, which holds what it does here. Workers of this machine inherit it.
void set_variable(ForeignLine& line, const std::string& variable);

/// What a line means depends on these, too.
struct LineContext {
  launcher::Map base{};     ///< of the config file that the line reads
  std::string base_path{};  ///< empty: it reads none
  std::uint32_t gpus = 0;   ///< devices here, where the line leaves their number to the launcher
  std::uint32_t cores = 1;  ///< here, where it leaves the number of workers to mpirun
  /// The caller's variables, with those in front of the line.
  launcher::Environment environment{};
  std::function<Result<std::string>(const std::string& path)> read_file;
  /// Whether a name leads to a program by PATH, or a path to one that may be executed.
  std::function<bool(const std::string& name)> is_program;
};

inline constexpr std::string_view kNotBound =
    "workers aren't bound to cores, unless numa_binding is set in the file";

/// A flag of another launcher.
struct OtherFlag {
  std::string_view words;  ///< separated by spaces
  int values;              ///< words that it takes
  /// A key of the file, or "section.key"; with an @ in front a name for the launcher's own reader;
  /// "skip": it changes nothing here; empty: no counterpart, `note` says why.
  std::string_view to;
  std::string_view note;
};

/// A flag with an @, as it was given.
struct SpecialFlag {
  std::string_view to;
  std::string name;    ///< as typed
  std::string value;   ///< empty: it takes none
  std::string second;  ///< of NAME VALUE
};

struct OtherFlags {
  ForeignLine line;  ///< keys, notes and the program; the rest is empty
  std::vector<SpecialFlag> special;
  Complaints complaints;
};

/// Sorts the words behind the launcher's name.
[[nodiscard]] OtherFlags read_mpirun_flags(std::span<const std::string> words);
[[nodiscard]] OtherFlags read_deepspeed_flags(std::span<const std::string> words);

/// The last one that was given; nullptr: none.
[[nodiscard]] const SpecialFlag* last_of(const OtherFlags& flags, std::string_view to);
/// A number from 1 behind the flag `to`; 0: it wasn't given, or wrongly, which is a complaint.
[[nodiscard]] std::int64_t count_of(OtherFlags& flags, std::string_view to);
/// All that is wrong, a line for each.
[[nodiscard]] Error joined(const Complaints& complaints);

}  // namespace acc::configure
