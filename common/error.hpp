#pragma once

#include <boost/system/result.hpp>

#include <exception>
#include <iosfwd>
#include <string>
#include <vector>

namespace acc {

enum class Errc {
  bad_usage,      ///< the command line can't be parsed
  bad_config,     ///< a value, key or combination is wrong
  not_found,      ///< a file, program or device doesn't exist
  not_permitted,  ///< the system refused
  exhausted,      ///< no descriptors, processes or memory left
  timed_out,      ///< a named wait reached its deadline
  unavailable,    ///< not on this machine or not in this build
  malformed,      ///< bytes of a peer that can't be decoded
  system,         ///< any other failed system call
};

/// `what` says what was attempted, on which object, and what was found; it can be shown to a user
/// unchanged.
struct Error {
  Errc code{Errc::system};
  std::string what;
  int errnum = 0;  ///< of the failed system call; 0: there was none
  friend bool operator==(const Error&, const Error&) = default;
};

template <class T>
using Result = boost::system::result<T, Error>;

/// Several complaints together: a user fixes five typos in one go.
using Complaints = std::vector<Error>;

std::ostream& operator<<(std::ostream&, const Error&);
[[noreturn]] void throw_exception_from_error(const Error&, const boost::source_location&);

/// "open '/x': No such file or directory", classified by errno.
Error system_error(int errnum, std::string attempted);

/// What an exception says of itself, for a log. @param failed  not null
std::string what_of(const std::exception_ptr& failed);

}  // namespace acc
