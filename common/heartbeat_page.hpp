#pragma once

#include "common/error.hpp"
#include "common/heartbeat_slot.hpp"
#include "common/unique_fd.hpp"

#include <cstddef>
#include <cstdint>

namespace acc::heartbeat {

/// A page in this process, mapped until it ends.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  /// A fresh page in memory of its own, that no folder shows.
  static Result<Mapping> make(std::uint32_t slots, std::uint64_t round);
  /// From a descriptor of such a page; read-only users get a copy of it at best.
  static Result<Mapping> open(int fd);

  [[nodiscard]] explicit operator bool() const { return memory_ != nullptr; }
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] std::uint32_t slots() const { return slots_; }
  [[nodiscard]] Slot& slot(std::uint32_t index) const;

 private:
  UniqueFd fd_;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint32_t slots_ = 0;
};

}  // namespace acc::heartbeat
