// metrics.csv in long form, one number a line, so that new names need no new columns:
//   step,epoch,seconds,name,value
//   50,0,1.25,train/loss,0.31
// Quoting as in RFC 4180, lines end with a line feed; numbers are the shortest text that reads back as the
// same number, or nan, inf, -inf. Messages are left out.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include <sink/resumed_file.hpp>
#include <trainyard/sink.hpp>

#include "lib/escapes.hpp"
#include "lib/printed.hpp"

namespace {

class Csv final : public trainyard::Sink {
 public:
  struct Options {
    std::string file = "metrics.csv";
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("csv").version("1.0.0").summary("Metrics as a long table (step, epoch, seconds, name, value).");
    m.option("file", &Options::file, "name of the file in the run's folder").output();
  }
  explicit Csv(const Options& options) : options_(options) {}

  void open(const trainyard::RunInfo& run) override {
    const auto said = [](const std::string& line) -> std::optional<sinks::Said> {
      sinks::Said result;
      const char* const end = line.data() + line.size();
      if (std::from_chars(line.data(), end, result.step).ec != std::errc{}) return std::nullopt;
      result.names.push_back(name_of(line));
      return result;
    };
    lines_.emplace(run, options_.file, said);
    if (lines_->file().size() == 0) lines_->file().append("step,epoch,seconds,name,value\n");
  }

  void record(const trainyard::Record& record) override {
    std::string lines;
    for (const auto& [name, value] : lines_->fresh(record))
      lines += std::to_string(record.step) + ',' + std::to_string(record.epoch) + ',' +
               number(record.seconds) + ',' + lib::csv_field(name) + ',' + number(value) + '\n';
    lines_->file().append(lines);
  }

  void close() override {
    lines_->file().sync();
    lines_.reset();
  }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "nan";  // a NaN may carry a sign
    return lib::shortest(value);
  }

  /// The fourth field, as it was before it was quoted; of a name that holds a line break, nothing.
  static std::string name_of(std::string_view line) {
    for (int field = 0; field < 3; ++field) line.remove_prefix(std::min(line.find(','), line.size() - 1) + 1);
    line = line.substr(0, line.rfind(','));
    if (!line.starts_with('"')) return std::string(line);
    std::string name;
    for (std::size_t i = 1; i + 1 < line.size(); ++i) {
      name += line[i];
      if (line[i] == '"') ++i;
    }
    return name;
  }

  Options options_;
  std::optional<sinks::ResumedFile> lines_;
};

}  // namespace

TRAINYARD_PLUGIN(Csv)
