#pragma once

#include <string>

/// What acc-config tells its user.
namespace acc::configure {

/// Each line on stderr, behind the program's name.
void tell(const std::string& text);
/// On the standard output; a reader that has seen enough is no failure. @return the exit code
int print(const std::string& text);

}  // namespace acc::configure
