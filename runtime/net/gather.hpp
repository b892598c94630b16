#pragma once

#include "runtime/net/mailbox.hpp"
#include "runtime/net/store.hpp"

#include <acc/error.hpp>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace acc::runtime {

/// One exchange of several parties through the store: each sends a text to party 0, which answers
/// all of them with one text. The first error of any party ends it for all of them with that error:
/// party 0 reads in the order of arrival, so it doesn't wait for a late one to learn of a failed
/// one.
///
///   party n        KEY/sent/count += 1, KEY/sent/<i> = n and its text        reads KEY/answer
///   party 0        likewise; reads all that was sent, then KEY/answer = the answer, or the error
class Gather {
 public:
  using Texts = std::map<int, std::string>;  ///< by party, of those that have sent one

  struct Options {
    std::string key;  ///< never used before in this store
    int party = 0;
    int size = 1;  ///< parties
    Store::Deadline deadline;
    /// Makes the error of a party whose deadline has passed, given what had been sent by then.
    std::function<Error(const Texts& sent)> late;
    /// Called again and again while this party waits: throws what makes waiting pointless, such as
    /// the death of a party, of which the store knows nothing. Empty: nothing does.
    std::function<void()> check_parties = {};
  };
  /// @param store  outlives this.
  Gather(Store& store, Options options);

  /// What party 0 does. Either may throw: the error becomes the answer.
  struct Root {
    /// Called for its own text, then for each as it arrives.
    std::function<void(int party, const std::string& text)> check;
    std::function<std::string(const Texts& all)> answer;
  };
  /// Collective. @return the answer.
  /// @throws Error  what `late` makes, or the first of any party
  [[nodiscard]] std::string run(const std::string& text, const Root& root);
  /// Collective: every party gets all texts, by party.
  [[nodiscard]] std::vector<std::string> all(const std::string& text);

  /// In place of `run`: this party can't take part. Doesn't wait.
  void report_failure(const Error& error) noexcept;

  /// After an error: acknowledges it. The one with number 0, whose process may serve the store,
  /// waits briefly until all parties that sent something have.
  void await_readers() noexcept;

 private:
  [[nodiscard]] Mailbox sent() const { return {store_, options_.key + "/sent"}; }
  [[nodiscard]] std::string answer_key() const { return options_.key + "/answer"; }
  [[nodiscard]] Texts collect(const std::string& own, const Root& root);
  [[nodiscard]] std::string await_answer();

  Store& store_;
  Options options_;
};

/// The error for `Gather::Options::late` where the parties are the ranks of a group: names those
/// that have not `joined` ("joined NCCL"), and `describe`s those that have.
[[nodiscard]] Error not_joined(
    const Gather::Texts& sent, int size, std::string_view joined, Millis limit,
    const std::function<std::string(int rank, const std::string& text)>& describe);

}  // namespace acc::runtime
