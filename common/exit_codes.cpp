#include "common/exit_codes.hpp"

namespace acc {

static_assert(to_int(ExitCode::requeue) == 75,
              "EX_TEMPFAIL: what schedulers understand as 'again'");

}  // namespace acc
