#pragma once

#include "launcher/ctl/top/figures.hpp"
#include "launcher/ctl/top/log_text.hpp"
#include "launcher/ctl/top/table.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

/// What acc-top knows and shows, the events that change it, and what it may ask for (pure).
namespace acc::ctl::top {

struct Size {
  std::size_t rows = 24;
  std::size_t columns = 80;
};

enum class Page { jobs, ranks, log };
/// What stands before a page.
enum class Panel { none, help, columns, signals, confirm, search, filter };

/// Whose stream a log is: a worker of one of the job's parts.
struct LogPlace {
  std::size_t part = 0;
  std::int64_t local_rank = 0;
  bool is_stderr = false;
  friend bool operator==(const LogPlace&, const LogPlace&) = default;
};

struct LogState {
  LogPlace place;
  std::int64_t rank = 0;
  LogText text;
  std::optional<std::uint64_t> offset;  ///< in the stream, behind what is here; nothing: not begun
  std::int64_t round = -1;
  bool follows = true;
  std::uint64_t top = 0;  ///< number of the line at the top of the window
  std::size_t shift = 0;
  std::string trouble;
  bool is_answered = false;
};

struct Model {
  Size size;
  std::int64_t now_ms = 0;
  std::string host;  ///< this machine
  Page page = Page::jobs;
  Panel panel = Panel::none;

  std::vector<JobRow> jobs;
  bool are_jobs_known = false;
  std::string jobs_trouble;
  TableState job_table;

  std::string wanted;  ///< id of the job of the pages ranks and log
  std::optional<JobFigures> job;
  std::string trouble;  ///< why its figures are old; empty: they are not
  std::int64_t answered_ms = 0;
  TableState rank_table;
  LogState log;

  std::size_t menu = 0;  ///< the line of a menu with the cursor
  std::string order;     ///< "stop", "restart", or a signal, that waits for a yes
  std::string input;     ///< of search and filter
  std::string search;    ///< the last one
  std::string notice;    ///< of what was done; until the next key
  bool is_notice_bad = false;
  bool is_over = false;
};

// ---- events ----
enum class Key {
  character, up, down, left, right, page_up, page_down, home, end, enter, escape, backspace, tab,
  f1, f2, f3, f4, f5, f6, f7, f8, f9, f10
};
struct KeyPress {
  Key key = Key::character;
  std::string text{};  ///< of a character: UTF-8
};
struct Resized {
  Size size;
};
/// Time passed, and nothing else.
struct Tick {};
struct JobsAnswer {
  std::vector<JobRow> jobs;
  std::string trouble;
};
struct JobAnswer {
  std::string id;  ///< as wanted
  JobRow known;
  std::vector<PartAnswer> parts;  ///< empty: `trouble`
  std::string trouble;
};
struct LogAnswer {
  std::string id;
  LogPlace place;
  std::optional<std::uint64_t> asked_from;
  std::int64_t round = -1;  ///< of an agent's answer; -1: of a file
  std::uint64_t from = 0;   ///< offset of the text
  std::string text;         ///< bytes
  bool is_anew = false;     ///< the stream is shorter than it was
  std::string trouble;      ///< no text
};
struct OrderAnswer {
  std::string text;
  bool is_done = false;
};
using Event =
    std::variant<KeyPress, Resized, Tick, JobsAnswer, JobAnswer, LogAnswer, OrderAnswer>;

// ---- what is asked for ----
/// Something to do once.
struct Order {
  std::string id;
  std::string verb;    ///< signal, stop, restart
  std::string signal;  ///< of the verb signal
  friend bool operator==(const Order&, const Order&) = default;
};
/// What each round of questions asks for.
struct Wish {
  bool jobs = false;
  std::string job{};  ///< its id; empty: none
  std::optional<LogPlace> log{};
  std::optional<std::uint64_t> log_from{};
};
struct Outcome {
  std::optional<Order> order{};
  bool asks_now = false;  ///< another page is open: its answers are wanted before the next second
};

/// The signals that acc-ctl signal passes on, as the menu has them.
struct SignalRow {
  std::string_view name;  ///< "TERM"; or "stop", "restart": a verb
  std::string_view help;
  bool ends_job = true;
};
[[nodiscard]] const std::array<SignalRow, 8>& signal_rows();

/// Rows of the page's table in the window.
[[nodiscard]] std::size_t table_height(const Model& model);
[[nodiscard]] std::size_t log_height(const Model& model);
/// The lines above a table: what is known of the job, or of all jobs.
[[nodiscard]] std::size_t heading_height(const Model& model);
/// The rows of the page's table.
[[nodiscard]] std::vector<TableRow> rows_of(const Model& model);
/// How many columns the menu of columns has.
[[nodiscard]] std::size_t column_count(const Model& model);

}  // namespace acc::ctl::top
