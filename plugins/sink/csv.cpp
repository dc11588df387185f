// metrics.csv in long form, one number a line, so that new names need no new columns:
//   step,epoch,seconds,name,value
//   50,0,1.25,train/loss,0.31
// Quoting as in RFC 4180, lines end with a line feed; numbers are the shortest text that reads back as the
// same number, or nan, inf, -inf. Messages are left out.
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include <sink/resumed_file.hpp>
#include <trainyard/sink.hpp>

namespace {

class Csv final : public trainyard::Sink {
 public:
  struct Options {
    std::string file = "metrics.csv";
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("csv").version("1.0.0").summary("Metrics as a long table (step, epoch, seconds, name, value).");
    m.option("file", &Options::file, "name of the file in the run's folder");
  }
  explicit Csv(const Options& options) : options_(options) {}

  void open(const trainyard::RunInfo& run) override {
    const auto step_of = [](const std::string& line) -> std::optional<std::int64_t> {
      std::int64_t step = 0;
      const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), step);
      return error == std::errc{} ? std::optional(step) : std::nullopt;
    };
    file_.emplace(trainyard::sink::open_lines(run, options_.file, step_of));
    if (file_->size() == 0) file_->append("step,epoch,seconds,name,value\n");
  }

  void record(const trainyard::Record& record) override {
    std::string lines;
    for (const auto& [name, value] : record.values)
      lines += std::to_string(record.step) + ',' + std::to_string(record.epoch) + ',' +
               number(record.seconds) + ',' + quoted(name) + ',' + number(value) + '\n';
    file_->append(lines);
  }

  void close() override {
    file_->sync();
    file_.reset();
  }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "nan";  // a NaN may carry a sign
    char text[32];
    return std::string(text, std::to_chars(text, text + sizeof text, value).ptr);
  }

  static std::string quoted(std::string_view text) {
    if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
    std::string result = "\"";
    for (const char c : text) {
      if (c == '"') result += '"';
      result += c;
    }
    return result + '"';
  }

  Options options_;
  std::optional<trainyard::AppendFile> file_;
};

}  // namespace

TRAINYARD_PLUGIN(Csv)
