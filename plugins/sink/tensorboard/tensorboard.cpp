// Scalars for TensorBoard: `tensorboard --logdir runs` shows each run under its folder's name.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>

#include <unistd.h>

#include <trainyard/formats/append_file.hpp>
#include <trainyard/formats/event_file.hpp>
#include <trainyard/sink.hpp>

#include "lib/read_file.hpp"

namespace {

namespace fs = std::filesystem;
namespace events = trainyard::event_file;
using trainyard::AppendFile;

class TensorBoard final : public trainyard::Sink {
 public:
  struct Options {};
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("tensorboard").version("1.0.0").summary("Metrics as TensorBoard scalars in the run's folder.");
  }
  explicit TensorBoard(const Options&) {}

  void open(const trainyard::RunInfo& run) override {
    last_step_.clear();
    if (run.resumed_at > 0) forget_after(run.directory, run.resumed_at);
    const double now = events::wall_time();
    char host[256] = "localhost";
    ::gethostname(host, sizeof host - 1);
    const std::string path = run.directory + "/" + std::string(prefix) +
                             std::to_string(second_for(run.directory, now)) + "." + host + "." +
                             std::to_string(::getpid()) + ".v2";
    file_.emplace(path, AppendFile::Mode::create);
    file_->append(events::version_record(now));
  }

  void record(const trainyard::Record& record) override {
    // The reader draws a tag's every value: one of a step that was written already would be a second point
    // there.
    std::vector<std::pair<std::string, double>> fresh;
    for (const auto& value : record.values) {
      const auto [last, first_time] = last_step_.try_emplace(value.first, record.step);
      if (!first_time && last->second >= record.step) continue;
      last->second = record.step;
      fresh.push_back(value);
    }
    if (!fresh.empty()) file_->append(events::scalars_record(events::wall_time(), record.step, fresh));
  }

  void close() override {
    file_->sync();
    file_.reset();
  }

 private:
  static constexpr std::string_view prefix = "events.out.tfevents.";

  /// What stands in the file's name. The reader takes a folder's files in the order of their names, and a run
  /// may be gone on with in the second in which it was begun: this one comes after all that are there.
  static std::int64_t second_for(const std::string& folder, double now) {
    auto second = static_cast<std::int64_t>(now);
    std::error_code ignored;  // a folder that cannot be read is told of when the file is made
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(prefix))
        second = std::max<std::int64_t>(second, std::atoll(name.c_str() + prefix.size()) + 1);
    }
    return second;
  }

  /// The run goes on from `step`: what earlier parts of it wrote beyond would be shown twice, and so would
  /// what is said again of the step itself (an evaluation that came after the checkpoint).
  void forget_after(const std::string& folder, std::int64_t step) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      if (!entry.path().filename().string().starts_with(prefix)) continue;
      const std::string bytes = trainyard::lib::read_file(entry.path()).value_or("");
      const std::size_t kept = events::length_through(bytes, step, [&](std::string_view event) {
        if (events::step_of(event) == step)
          for (std::string& tag : events::tags_of(event)) last_step_[std::move(tag)] = step;
      });
      if (kept < bytes.size())
        AppendFile(entry.path().string(), AppendFile::Mode::extend).cut(static_cast<std::int64_t>(kept));
    }
  }

  std::optional<AppendFile> file_;
  std::map<std::string, std::int64_t, std::less<>> last_step_;
};

}  // namespace

TRAINYARD_PLUGIN(TensorBoard)
