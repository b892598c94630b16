#include "common/error.hpp"

#include <cerrno>
#include <cstring>
#include <ostream>
#include <stdexcept>

namespace acc {

std::ostream& operator<<(std::ostream& out, const Error& e) { return out << e.what; }

void throw_exception_from_error(const Error& e, const boost::source_location&) {
  throw std::runtime_error{e.what};
}

static Errc classify(int errnum) {
  switch (errnum) {
    case ENOENT:
    case ENOTDIR:
      return Errc::not_found;
    case EACCES:
    case EPERM:
    case EROFS:
      return Errc::not_permitted;
    case EAGAIN:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ENOSPC:
      return Errc::exhausted;
    case ETIMEDOUT:
      return Errc::timed_out;
    default:
      return Errc::system;
  }
}

Error system_error(int errnum, std::string attempted) {
  return {classify(errnum), std::move(attempted) + ": " + std::strerror(errnum), errnum};
}

std::string what_of(const std::exception_ptr& failed) {
  try {
    std::rethrow_exception(failed);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception without words";
  }
}

}  // namespace acc
