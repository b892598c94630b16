#pragma once

#include "runtime/bootstrap/store.hpp"

#include <acc/error.hpp>
#include <optional>
#include <string>
#include <vector>

namespace acc::runtime {

/// `size` parties hand each other a text through the store; number 0 collects them. One that brings
/// an error in place of its text ends it for all with that error, without waiting for the others.
/// @param key  fresh. @param what  for messages: "the addresses of the ranks".
/// @return the texts by number.
[[nodiscard]] std::vector<std::string> exchange(Store& store, const std::string& key,
                                                std::size_t number, std::size_t size,
                                                const std::string& text, const std::string& what,
                                                Store::Deadline deadline);
/// Brings the error; doesn't wait.
void exchange_failure(Store& store, const std::string& key, const Error& error) noexcept;

}  // namespace acc::runtime
