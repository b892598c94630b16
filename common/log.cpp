#include "common/log.hpp"

#include "common/enum_names.hpp"
#include "common/text.hpp"

#include <spdlog/details/null_mutex.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

namespace acc::log {

namespace {

class WriterSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  std::function<void(std::string_view)> writer = [](std::string_view line) {
    // A failure to write a log line can't be reported anywhere else.
    [[maybe_unused]] const auto n = ::write(STDERR_FILENO, line.data(), line.size());
  };

 private:
  void sink_it_(const spdlog::details::log_msg& msg) override {
    spdlog::memory_buf_t text;
    formatter_->format(msg, text);
    writer({text.data(), text.size()});
  }
  void flush_() override {}
};

struct Logger {
  std::shared_ptr<WriterSink> sink = std::make_shared<WriterSink>();
  spdlog::logger logger{"acc", sink};
  Logger() {
    sink->set_formatter(std::make_unique<spdlog::pattern_formatter>(
        "%Y-%m-%dT%H:%M:%S.%eZ %l %v", spdlog::pattern_time_type::utc));
    logger.set_level(spdlog::level::warn);
  }
};

// Built at the first use: a run that logs nothing doesn't pay for it.
Logger& instance() {
  static Logger* const logger = new Logger;  // never destroyed: exit paths may still log
  return *logger;
}

Level threshold = Level::warn;

constexpr EnumNames<Level, Level::off> kLevels{{"trace", "debug", "info", "warn", "error", "off"}};

spdlog::level::level_enum to_spdlog(Level level) {
  return static_cast<spdlog::level::level_enum>(level);
}

}  // namespace

void set_level(Level level) { threshold = level; }

std::optional<Level> level_named(std::string_view name) { return kLevels.find(name); }
bool enabled(Level level) { return level >= threshold; }
void set_writer(std::function<void(std::string_view)> writer) {
  instance().sink->writer = std::move(writer);
}

// In the form of messages, if no log was requested: "acc-launch: warning: log folder failed (why:
// …)"
static std::string in_words(Level level, std::string_view event, Fields fields) {
  std::string line{program_invocation_short_name};
  line += level == Level::warn ? ": warning: " : ": ";
  std::string name{event};
  std::ranges::replace(name, '_', ' ');
  line += name;
  const char* before = " (";
  for (const auto& field : fields) {
    line.append(before).append(field.key).append(": ").append(printable(field.value, 2000));
    before = ", ";
  }
  return line + (fields.size() > 0 ? ")\n" : "\n");
}

void write(Level level, std::string_view event, Fields fields) {
  if (!enabled(level)) return;
  // At the default level or above, warnings and errors appear among the messages.
  if (threshold >= Level::warn) return instance().sink->writer(in_words(level, event, fields));
  std::string line{event};
  for (const auto& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    const bool plain =
        field.value.find_first_of(" \"=") == std::string::npos && !field.value.empty();
    line += plain ? printable(field.value, 2000) : '"' + printable(field.value, 2000) + '"';
  }
  auto& logger = instance().logger;
  logger.set_level(to_spdlog(threshold));
  logger.log(to_spdlog(level), line);
}

}  // namespace acc::log
