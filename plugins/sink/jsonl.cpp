// metrics.jsonl: one JSON object a record.
//   {"what": "train", "step": 50, "epoch": 0, "seconds": 1.25, "values": {"train/loss": 0.31, "lr": 0.1}}
//   {"what": "message", "step": 50, "epoch": 0, "seconds": 1.25, "text": "..."}
// JSON has no NaN: numbers that are not finite are the strings "nan", "inf" and "-inf".
#include <cmath>
#include <optional>

#include <nlohmann/json.hpp>

#include <sink/resumed_file.hpp>
#include <trainyard/sink.hpp>

namespace {

using Json = nlohmann::ordered_json;

class Jsonl final : public trainyard::Sink {
 public:
  struct Options {
    std::string file = "metrics.jsonl";
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("jsonl").version("1.0.0").summary("Metrics as JSON lines in the run's folder.");
    m.option("file", &Options::file, "name of the file in the run's folder");
  }
  explicit Jsonl(const Options& options) : options_(options) {}

  void open(const trainyard::RunInfo& run) override {
    const auto step_of = [](const std::string& line) -> std::optional<std::int64_t> {
      const Json json = Json::parse(line, nullptr, false);
      return json.is_object() && json.contains("step") && json["step"].is_number_integer()
                 ? std::optional(json["step"].get<std::int64_t>())
                 : std::nullopt;
    };
    file_.emplace(trainyard::sink::open_lines(run, options_.file, step_of));
  }

  void record(const trainyard::Record& record) override {
    constexpr const char* names[] = {"train", "eval", "message", "summary"};
    Json line = {{"what", names[static_cast<int>(record.what)]},
                 {"step", record.step},
                 {"epoch", record.epoch},
                 {"seconds", record.seconds}};
    if (!record.values.empty()) {
      Json& values = line["values"] = Json::object();
      for (const auto& [name, value] : record.values) values[name] = number(value);
    }
    if (!record.text.empty()) line["text"] = record.text;
    file_->append(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }

  void close() override {
    file_->sync();
    file_.reset();
  }

 private:
  static Json number(double value) {
    if (std::isfinite(value)) return value;
    return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  }

  Options options_;
  std::optional<trainyard::AppendFile> file_;
};

}  // namespace

TRAINYARD_PLUGIN(Jsonl)
