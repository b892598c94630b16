#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace acc::agent::daemon {

/// One reply of another daemon out of bytes that arrive in any pieces; total, and bounded in
/// memory: the body is handed on as it arrives.
class ReplyParser {
 public:
  enum class Step { needs_more, has_head, done, broken };
  /// @param is_to_head  the reply to a HEAD: it has no body, whatever its headers say
  explicit ReplyParser(bool is_to_head);
  ~ReplyParser();
  ReplyParser(const ReplyParser&) = delete;
  ReplyParser& operator=(const ReplyParser&) = delete;

  /// `has_head` once, before anything of the body.
  /// @param consumed  bytes from the front of `bytes` that must not be given again; the others must
  /// @param body  what these bytes hold of it is appended
  Step feed(std::string_view bytes, std::size_t& consumed, std::string& body);
  /// The connection ended. True: the reply is whole.
  [[nodiscard]] bool end();
  [[nodiscard]] unsigned status() const;
  /// Of a whole reply: another request may follow over its connection.
  [[nodiscard]] bool keeps_alive() const;
  /// The first header of this name (in lower case).
  [[nodiscard]] std::optional<std::string_view> header(std::string_view name) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace acc::agent::daemon
