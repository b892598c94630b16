#pragma once

#include "runtime/group/group.hpp"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

namespace acc::testing {

/// A backend that does what the test says, and keeps what it was asked.
class ScriptedBackend final : public runtime::Backend {
 public:
  struct Script {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<runtime::Call> calls;
    std::vector<std::string> aborts;
    bool held = false;  ///< calls wait until it is false
    bool aborted = false;
    std::function<void(const runtime::Call&)> on_call;  ///< may throw
    std::vector<int> missing;

    void hold(bool on) {
      const std::lock_guard lock{mutex};
      held = on;
      changed.notify_all();
    }
    bool await_calls(std::size_t n) {
      std::unique_lock lock{mutex};
      return changed.wait_for(lock, std::chrono::seconds{10}, [&] { return calls.size() >= n; });
    }
  };

  explicit ScriptedBackend(std::shared_ptr<Script> script) : script_{std::move(script)} {}
  [[nodiscard]] std::string_view name() const noexcept override { return "scripted"; }
  void run(const runtime::Call& call) override {
    std::unique_lock lock{script_->mutex};
    script_->calls.push_back(call);
    script_->changed.notify_all();
    script_->changed.wait(lock, [&] { return !script_->held || script_->aborted; });
    if (script_->aborted) throw runtime::Error{runtime::ErrorCode::aborted, script_->aborts.at(0)};
    if (script_->on_call) script_->on_call(call);
  }
  runtime::SharedBuffer allocate(std::size_t bytes, const runtime::Call& call) override {
    run(call);
    const auto memory = std::make_shared<std::vector<char>>(bytes);
    return {memory->data(), bytes, memory};
  }
  void abort(const runtime::Error& cause) noexcept override {
    const std::lock_guard lock{script_->mutex};
    script_->aborts.emplace_back(cause.what());
    script_->aborted = true;
    script_->changed.notify_all();
  }
  void lost(int, const std::string&) noexcept override {}
  [[nodiscard]] std::vector<int> waits_for() const override {
    const std::lock_guard lock{script_->mutex};
    return script_->missing;
  }

 private:
  std::shared_ptr<Script> script_;
};

struct Scripted {
  std::shared_ptr<ScriptedBackend::Script> script = std::make_shared<ScriptedBackend::Script>();
  runtime::ProcessGroup group;

  explicit Scripted(int rank = 0, int size = 2, runtime::GroupOptions options = {}) {
    runtime::GroupFacts facts;
    facts.rank = rank;
    facts.size = size;
    facts.name = options.name;
    group = runtime::ProcessGroup{std::make_shared<runtime::Group>(
        facts, std::make_unique<ScriptedBackend>(script), nullptr, options)};
  }
};

}  // namespace acc::testing
