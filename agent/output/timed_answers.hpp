#pragma once

#include "common/duration.hpp"

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace acc::agent {

/// What the kernel may never answer is asked on a thread of its own: a loop that waited for it
/// would send no heartbeat and heed no Ctrl-C.
///
/// Of the loop's thread alone. A thread without an answer stays until it has one, or until this
/// process ends.
template <class Key, class Answer>
class TimedAnswers {
 public:
  /// @param read  runs on the other thread, and must hold all that it uses
  /// @return nothing after `patience`, and at once while an earlier question about `key` is open
  /// @throws std::system_error  where no thread can be made
  std::optional<Answer> ask(const Key& key, Millis patience, std::function<Answer()> read) {
    if (const auto before = open_.find(key); before != open_.end()) {
      const std::lock_guard lock{before->second->mutex};
      if (!before->second->answer) return std::nullopt;
    }
    const auto question = std::make_shared<Question>();
    std::thread{[question, read = std::move(read)] {
      auto answer = read();
      const std::lock_guard lock{question->mutex};
      question->answer = std::move(answer);
      question->changed.notify_all();
    }}.detach();
    open_[key] = question;
    std::unique_lock lock{question->mutex};
    if (!question->changed.wait_for(lock, patience, [&] { return question->answer.has_value(); }))
      return std::nullopt;
    auto answer = std::move(question->answer);
    lock.unlock();
    open_.erase(key);
    return answer;
  }

  /// Whether a question still has no answer.
  [[nodiscard]] bool has_open() {
    std::erase_if(open_, [](const auto& entry) {
      const std::lock_guard lock{entry.second->mutex};
      return entry.second->answer.has_value();
    });
    return !open_.empty();
  }

 private:
  /// Owned by the thread as well.
  struct Question {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Answer> answer;
  };
  std::map<Key, std::shared_ptr<Question>> open_;
};

}  // namespace acc::agent
