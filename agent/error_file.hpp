#pragma once

#include "common/error.hpp"

#include <string>
#include <string_view>

/// Reads what torch's @record decorator leaves in TORCHELASTIC_ERROR_FILE (torch 1.13 to 2.x).
namespace acc::agent {

struct WorkerError {
  std::string message;    ///< "<Type>: <text>", one or more lines
  std::string traceback;  ///< may be empty
  std::string json{};     ///< the file, half pairs of surrogates replaced; empty: not known
};

/// Bytes; a larger file is refused, as it is parsed in the agent's loop.
inline constexpr std::size_t kMaxErrorFile = std::size_t{8} << 20U;
/// Of a longer message or traceback so many bytes at its begin, and as many at its end, are kept.
inline constexpr std::size_t kKeptOfError = std::size_t{128} << 10U;
/// Begins the line that stands for the rest.
inline constexpr std::string_view kErrorGap = "… (";

/// Total: any bytes give an error record or an Error, never an exception.
Result<WorkerError> parse_error_file(std::string_view text);

/// For the launcher's own TORCHELASTIC_ERROR_FILE, as torchrun hands the first failed worker's file
/// on: `json` with message.errorCode, where a message is an object.
/// @param code  the worker's exit code; of one killed by a signal its negative number
[[nodiscard]] std::string with_error_code(const std::string& json, int code);

/// not_found when the worker wrote none.
Result<WorkerError> read_error_file(const std::string& path);

}  // namespace acc::agent
