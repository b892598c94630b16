#include "runtime/user_call.hpp"

#include "common/enum_names.hpp"

namespace acc::runtime {

namespace {

thread_local UserCall t_call = UserCall::none;

}  // namespace

std::string_view to_string(UserCall call) noexcept {
  static constexpr EnumNames<UserCall, UserCall::checkpoint> kNames{{"",
                                                                     "wait_for_everyone",
                                                                     "main_process_first",
                                                                     "local_main_process_first",
                                                                     "gather",
                                                                     "gather_object",
                                                                     "gather_for_metrics",
                                                                     "pad_across_processes",
                                                                     "reduce",
                                                                     "broadcast",
                                                                     "broadcast_object_list",
                                                                     "check_trigger",
                                                                     "all_gather_object",
                                                                     "broadcast_object",
                                                                     "scatter_object",
                                                                     "split",
                                                                     "sub_group",
                                                                     "prepare_model",
                                                                     "prepare",
                                                                     "GradientReducer",
                                                                     "ready",
                                                                     "backward",
                                                                     "cancel_backward",
                                                                     "broadcast_buffers",
                                                                     "clip_grad_norm",
                                                                     "step",
                                                                     "unscale_gradients",
                                                                     "save_state",
                                                                     "load_state",
                                                                     "save_model",
                                                                     "load_model",
                                                                     "checkpoint"}};
  return call <= UserCall::checkpoint ? kNames[call] : std::string_view{};
}

InUserCall::InUserCall(UserCall call) noexcept : is_outermost_{t_call == UserCall::none} {
  if (is_outermost_) t_call = call;
}
InUserCall::~InUserCall() {
  if (is_outermost_) t_call = UserCall::none;
}
UserCall InUserCall::current() noexcept { return t_call; }

}  // namespace acc::runtime
