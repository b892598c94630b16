#include "common/version.hpp"

namespace acc {

const char* version() { return ACC_VERSION; }

}  // namespace acc
