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
    m.option("file", &Options::file, "name of the file in the run's folder").output();
  }
  explicit Jsonl(const Options& options) : options_(options) {}

  void open(const trainyard::RunInfo& run) override {
    const auto said = [](const std::string& line) -> std::optional<sinks::Said> {
      const Json json = Json::parse(line, nullptr, false);
      if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer())
        return std::nullopt;
      sinks::Said result{.step = json["step"].get<std::int64_t>(), .names = {}};
      if (json.contains("values"))
        for (const auto& [name, value] : json["values"].items()) result.names.push_back(name);
      return result;
    };
    lines_.emplace(run, options_.file, said);
  }

  void record(const trainyard::Record& record) override {
    const auto fresh = lines_->fresh(record);
    if (fresh.empty() && !record.values.empty()) return;
    constexpr const char* names[] = {"train", "eval", "message", "summary"};
    Json line = {{"what", names[static_cast<int>(record.what)]},
                 {"step", record.step},
                 {"epoch", record.epoch},
                 {"seconds", record.seconds}};
    if (!fresh.empty()) {
      Json& values = line["values"] = Json::object();
      for (const auto& [name, value] : fresh) values[name] = number(value);
    }
    if (!record.text.empty()) line["text"] = record.text;
    lines_->file().append(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }

  void close() override {
    lines_->file().sync();
    lines_.reset();
  }

 private:
  static Json number(double value) {
    if (std::isfinite(value)) return value;
    return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  }

  Options options_;
  std::optional<sinks::ResumedFile> lines_;
};

}  // namespace

TRAINYARD_PLUGIN(Jsonl)
