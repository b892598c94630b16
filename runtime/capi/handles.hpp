#pragma once

#include <acc/acc.h>

#include <acc/error.hpp>
#include <acc/process_group.hpp>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// What the opaque handles of acc.h hold.

struct acc_comm {
  explicit acc_comm(acc::runtime::ProcessGroup joined)
      : group{std::move(joined)}, backend{group.backend()} {}
  acc::runtime::ProcessGroup group;
  std::string backend;
};
struct acc_work {
  acc::runtime::Work work;
};
struct acc_buffer {
  acc::runtime::SharedBuffer buffer;
};
struct acc_objects {
  std::vector<std::string> values;
};

namespace acc::capi {

/// Keeps an error for acc_last_error of this thread. Never throws.
acc_status keep(const runtime::Error& error) noexcept;
acc_status keep(acc_status status, std::string_view what) noexcept;

/// No exception crosses into C.
template <class Body>
acc_status guarded(Body&& body) noexcept {
  try {
    body();
    return ACC_OK;
  } catch (const runtime::Error& e) {
    return keep(e);
  } catch (const std::bad_alloc&) {
    return keep(ACC_SYSTEM, "out of memory");
  } catch (const std::exception& e) {
    return keep(ACC_INTERNAL, e.what());
  } catch (...) {
    return keep(ACC_INTERNAL, "something unknown was thrown");
  }
}

[[noreturn]] inline void refuse(const std::string& why) {
  throw runtime::Error{runtime::ErrorCode::invalid_argument, why};
}

template <class T>
T& given(T* pointer, const char* name) {
  if (pointer == nullptr) refuse(std::string{name} + " is a null pointer");
  return *pointer;
}

/// As guarded; `*out` is what `body` returns, nullptr when it fails.
template <class Handle, class Body>
acc_status made(Handle** out, Body&& body) noexcept {
  return guarded([&] {
    given(out, "the place for the handle") = nullptr;  // before anything is begun
    *out = body();
  });
}

/// nullptr for no group.
inline acc_comm* new_comm(runtime::ProcessGroup group) {
  return group ? new acc_comm{std::move(group)} : nullptr;
}

// Invalid numbers become a type that the checks of the group refuse.
inline runtime::DType to_dtype(acc_dtype number) {
  return static_cast<runtime::DType>(number < 0 || number > ACC_BF16 ? 255 : number);
}
inline runtime::ReduceOp to_op(acc_op number) {
  return static_cast<runtime::ReduceOp>(number < 0 || number > ACC_AVG ? 255 : number);
}

runtime::GroupOptions to_options(const acc_config* config);
runtime::CallOptions to_call(const acc_call* call);

}  // namespace acc::capi
