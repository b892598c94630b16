#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

/// Which lines of a worker's output name the error that ended it: an exception of Python's, what
/// std::terminate and abort say, a panic. They may stand far before the end: behind them follow
/// frames of C++, a summary printed at exit, what a program logs while it cleans up (pure, total).
namespace acc::agent {

/// The last of them, without the "[rank3]: " that several ranks have in front; empty: none.
/// "RuntimeError: boom", "  what():  boom".
[[nodiscard]] std::string last_error_line(std::string_view text);

/// The same, but empty unless it stands near the end and nothing follows but what exit handlers and
/// the interpreter write: else a program may have caught the error, and gone on.
[[nodiscard]] std::string uncaught_error_line(std::string_view text);

/// Of the last 40 lines those from the last error on, with the errors that led to it; all of them
/// if they name none.
[[nodiscard]] std::string words_of_last_error(std::string_view text);

/// How many lines follow behind the last error, where it may be one that the program survived: far
/// from the end, or an exception before a signal; 0: it is near the end, or there is none.
/// @param is_killed  a signal ended the worker
[[nodiscard]] std::size_t lines_since_older_error(std::string_view text, bool is_killed);

/// Whether the last error is the loss of a connection to another rank, which failed first then, or
/// a wait for one that took too long: of gloo, NCCL or torch's store.
[[nodiscard]] bool names_missing_peer(std::string_view text);

/// Of a rank that failed after another one, or was stopped: its error, at most some 200 bytes, safe
/// for a terminal; empty: none, or one that another's end or our signal explains.
[[nodiscard]] std::string own_error(std::string_view text);

/// Of a process that was killed by SIGABRT: "c10::Error: unexpected pos 1024 vs 944", "free():
/// invalid pointer", at most some 200 bytes, safe for a terminal; empty: it said nothing.
[[nodiscard]] std::string abort_words(std::string_view text);

/// Those that the last `count` lines of `text` don't hold: the last error with its innermost frame,
/// and before it those that led to it ("During handling of the above exception …"), an indented "…"
/// for what is left out between. Empty: the last lines name an error themselves, or nothing does.
/// Each as last_lines() of last_lines.hpp gives it, and a second run over them, `…` and the last
/// lines finds the same.
[[nodiscard]] std::vector<std::string> error_lines_before(std::string_view text, std::size_t count);

}  // namespace acc::agent
