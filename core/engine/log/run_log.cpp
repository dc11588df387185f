#include "core/engine/log/run_log.hpp"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include <trainyard/error.hpp>

namespace trainyard::report {

struct RunLog::Logger {
  explicit Logger(const std::string& file)
      : log("trainyard", std::make_shared<spdlog::sinks::basic_file_sink_mt>(file)) {}
  spdlog::logger log;
};

RunLog::RunLog(const std::string& file) try : logger_(std::make_unique<Logger>(file)) {
  logger_->log.set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  logger_->log.flush_on(spdlog::level::info);
} catch (const spdlog::spdlog_ex& error) {
  throw DataError(file + ": " + error.what());
}

RunLog::~RunLog() = default;

void RunLog::write(LogLevel level, const std::string& message) {
  constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info,
                                                  spdlog::level::warn, spdlog::level::err};
  logger_->log.log(levels[static_cast<int>(level)], "{}", message);
}

}  // namespace trainyard::report
