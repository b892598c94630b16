#pragma once

#include <cstdint>
#include <string_view>

namespace acc::runtime {

/// A call of the public interface that is made of calls of a group. Messages name it beside the
/// inner call, which the user didn't write. The numbers travel between ranks: append only.
enum class UserCall : std::uint8_t {
  none,  ///< the group's call itself
  wait_for_everyone,
  main_process_first,
  local_main_process_first,
  gather,
  gather_object,
  gather_for_metrics,
  pad_across_processes,
  reduce,
  broadcast,
  broadcast_object_list,
  check_trigger,
  all_gather_object,
  broadcast_object,
  scatter_object,
  split,
  sub_group,
  prepare_model,
  prepare,
  gradient_reducer,
  ready,
  backward,
  cancel_backward,
  broadcast_buffers,
  clip_grad_norm,
  step,
  unscale_gradients,
  save_state,
  load_state,
  save_model,
  load_model,
  checkpoint,  ///< a Checkpointer of the program, or the thread that writes
};
/// "gather_for_metrics"; empty for none, and for numbers of a newer version.
[[nodiscard]] std::string_view to_string(UserCall call) noexcept;

/// Whether the group's calls within it carry what is its own: another call that happens to make the
/// same ones would misread it. Not so where the caller's data is sent as it is, nor in a backward,
/// whose buckets leave within whichever call completes them.
[[nodiscard]] constexpr bool has_own_format(UserCall call) noexcept {
  switch (call) {
    case UserCall::gather_object:
    case UserCall::broadcast_object_list:
    case UserCall::all_gather_object:
    case UserCall::broadcast_object:
    case UserCall::scatter_object:
    case UserCall::split:
    case UserCall::sub_group:
    case UserCall::prepare_model:
    case UserCall::prepare:
    case UserCall::gradient_reducer:
    case UserCall::cancel_backward:
    case UserCall::save_state:
    case UserCall::load_state:
    case UserCall::save_model:
    case UserCall::load_model:
    case UserCall::checkpoint:
      return true;
    default:
      return false;
  }
}
/// Whether two ranks may meet in a call of the group that they make within these.
[[nodiscard]] constexpr bool may_meet(UserCall one, UserCall other) noexcept {
  return one == other || (!has_own_format(one) && !has_own_format(other));
}

/// Scope of such a call on this thread. Of nested scopes the outermost is what the user wrote.
class InUserCall {
 public:
  explicit InUserCall(UserCall call) noexcept;
  ~InUserCall();
  InUserCall(const InUserCall&) = delete;
  InUserCall& operator=(const InUserCall&) = delete;

  [[nodiscard]] static UserCall current() noexcept;

 private:
  const bool is_outermost_;
};

}  // namespace acc::runtime
