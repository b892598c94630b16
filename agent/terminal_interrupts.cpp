#include "agent/terminal_interrupts.hpp"

namespace acc::agent {

TerminalInterrupts::Answer TerminalInterrupts::press(Instant now) {
  if (is_stopping_) return Answer::stop;
  if (presses_ != 0 && now - last_ > kWindow) presses_ = 0;
  ++presses_;
  last_ = now;
  due_ = now + kHeeds;
  return Answer::none;
}

TerminalInterrupts::Answer TerminalInterrupts::look(Instant now, bool is_reading) {
  if (!due_ || now < *due_) return Answer::none;
  due_.reset();
  if (is_reading) {
    presses_ = 0;
    return Answer::none;
  }
  if (presses_ > 1) {
    is_stopping_ = true;
    return Answer::stop;
  }
  if (presses_ == 0 || now >= last_ + kHint) return presses_ == 0 ? Answer::none : Answer::hint;
  due_ = last_ + kHint;
  return Answer::none;
}

}  // namespace acc::agent
