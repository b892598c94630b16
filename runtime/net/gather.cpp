#include "runtime/net/gather.hpp"

#include "common/duration.hpp"
#include "common/text.hpp"
#include "runtime/backend.hpp"
#include "runtime/net/error_text.hpp"
#include "runtime/net/fields.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace acc::runtime {

namespace {

/// Ranks named in one message, at most.
constexpr std::size_t kMostNamed = 16;
/// For the others to read the error.
constexpr auto kReadTime = std::chrono::milliseconds{800};

struct Sent {
  int party = 0;
  std::string text;
};

std::optional<Sent> parse_sent(const std::string& text) {
  auto fields = unpack(text);
  if (!fields || fields->size() != 2) return std::nullopt;
  const auto party = parse_number<int>(fields->front());
  if (!party) return std::nullopt;
  return Sent{*party, std::move(fields->back())};
}

[[noreturn]] void refuse_unreadable() {
  throw Error{ErrorCode::invalid_argument,
              "a rank's greeting can't be read: the ranks run different versions"};
}

}  // namespace

Gather::Gather(Store& store, Options options) : store_{store}, options_{std::move(options)} {}

std::string Gather::run(const std::string& text, const Root& root) {
  // That of party 0, too: the others see that it has joined.
  sent().put(pack({std::to_string(options_.party), text}));
  if (options_.party != 0) return await_answer();
  try {
    auto answer = root.answer(collect(text, root));
    store_.set(answer_key(), answer);
    return answer;
  } catch (const Error& error) {
    report_failure(error);
    throw;
  }
}

std::vector<std::string> Gather::all(const std::string& text) {
  const auto packed = run(text, {{}, [](const Texts& texts) {
                                   std::vector<std::string> fields;
                                   for (const auto& [party, one] : texts) fields.push_back(one);
                                   return pack(fields);
                                 }});
  auto texts = unpack(packed);
  if (!texts || texts->size() != static_cast<std::size_t>(options_.size)) refuse_unreadable();
  return *std::move(texts);
}

Gather::Texts Gather::collect(const std::string& own, const Root& root) {
  if (root.check) root.check(options_.party, own);
  Texts texts{{options_.party, own}};
  auto mail = sent();
  while (texts.size() < static_cast<std::size_t>(options_.size)) {
    std::string received;
    try {
      received = mail.next(options_.deadline, options_.check_parties);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::timed_out) throw options_.late(texts);
      throw;
    }
    if (auto error = parse_error(received)) throw *std::move(error);
    auto message = parse_sent(received);
    if (!message) refuse_unreadable();
    auto& [party, text] = *message;
    if (party == options_.party && text == own) continue;
    if (root.check) root.check(party, text);
    if (party < 0 || party >= options_.size || texts.contains(party)) refuse_unreadable();
    texts.emplace(party, std::move(text));
  }
  return texts;
}

// A party other than 0 can find out by itself who is missing: party 0, perhaps.
std::string Gather::await_answer() {
  std::string answer;
  try {
    answer = options_.check_parties
                 ? store_.get_looking(answer_key(), options_.deadline, options_.check_parties)
                 : store_.get(answer_key(), options_.deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::timed_out) throw;
    Texts texts;
    for (const auto& one : sent().all_present())
      if (auto message = parse_sent(one)) texts.emplace(message->party, std::move(message->text));
    throw options_.late(texts);
  }
  if (auto error = parse_error(answer)) throw *std::move(error);
  return answer;
}

void Gather::report_failure(const Error& error) noexcept {
  try {
    if (options_.party == 0) return store_.set(answer_key(), to_text(error));
    sent().put(to_text(error));
  } catch (const std::exception&) {
    return;  // the store is gone: the others notice by themselves
  }
}

void Gather::await_readers() noexcept {
  try {
    Mailbox readers{store_, options_.key + "/read"};
    if (options_.party != 0) return readers.put(std::to_string(options_.party));
    const auto until = std::chrono::steady_clock::now() + kReadTime;
    for (auto others = sent().all_present().size(); others > 1; --others) (void)readers.next(until);
  } catch (const std::exception&) {
    return;  // one of them didn't in time, or the store is gone
  }
}

Error not_joined(const Gather::Texts& sent, int size, std::string_view joined, Millis limit,
                 const std::function<std::string(int rank, const std::string& text)>& describe) {
  std::vector<int> missing;
  for (int r = 0; r < size; ++r)
    if (!sent.contains(r)) missing.push_back(r);
  // Rank 0 is stopped, or waits in another call.
  if (missing.empty())
    return {ErrorCode::timed_out,
            "all " + std::to_string(size) + " ranks have " + std::string{joined} +
                ", but rank 0 didn't say so within " + acc::describe(limit) + ": is it stopped?",
            {0}};
  std::string who;
  std::size_t named = 0;
  for (const auto& [rank, text] : sent) {
    if (named++ == kMostNamed) break;
    who += (who.empty() ? "" : ", ") + describe(rank, text);
  }
  if (sent.size() > kMostNamed) who += " and " + std::to_string(sent.size() - kMostNamed) + " more";
  return {ErrorCode::timed_out,
          describe_ranks(missing) + " of " + std::to_string(size) + " " + have(missing) + " not " +
              std::string{joined} + " after " + acc::describe(limit) +
              "; joined: " + (who.empty() ? "none" : who),
          missing};
}

}  // namespace acc::runtime
