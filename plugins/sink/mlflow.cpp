// A run of MLflow's file store, as mlflow.tracking.MlflowClient("file:mlruns") reads it:
//   STORE/EXPERIMENT/meta.yaml
//   STORE/EXPERIMENT/RUN/meta.yaml, tags/NAME, metrics/NAME: lines "TIME VALUE STEP", milliseconds since 1970
// Its artifacts are the run's own folder. The run's id is kept there, so that a resumed run goes on in the same one.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include <trainyard/context.hpp>
#include <trainyard/error.hpp>
#include <trainyard/formats/append_file.hpp>
#include <trainyard/sink.hpp>

#include "lib/printed.hpp"

namespace {

using namespace trainyard;
namespace fs = std::filesystem;

constexpr const char* id_file = "mlflow_run_id";
enum Status : std::uint8_t {
  running = 1,
  finished = 3,
  failed = 4,
  killed = 5
};  // mlflow.entities.RunStatus

std::string now_in_milliseconds() {
  using namespace std::chrono;
  return std::to_string(
      duration_cast<std::chrono::milliseconds>(system_clock::now().time_since_epoch()).count());
}

std::string hex_id() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 32; ++i) id += "0123456789abcdef"[device() % 16];
  return id;
}

/// In YAML's single quotes.
std::string yaml(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "''" : std::string(1, c == '\n' ? ' ' : c);
  return result + "'";
}

/// What MLflow allows in a name; it makes folders of slashes.
std::string metric_name(std::string name) {
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 &&
        std::string_view("_-. /").find(c) == std::string_view::npos)
      c = '_';
  return name;
}

std::string metric_text(double value) {
  return std::isnan(value) ? "nan" : lib::shortest(value);
}

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  AppendFile file(path.string() + ".new", AppendFile::Mode::replace);
  file.append(text);
  fs::rename(path.string() + ".new", path);
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

class Mlflow final : public Sink {
 public:
  struct Options {
    std::string store = "mlruns";
    std::string experiment = "Default";
  };
  static void describe(Manifest<Options>& m) {
    m.name("mlflow").version("1.0.0").summary(
        "Metrics into a file store of MLflow: `mlflow ui --backend-store-uri mlruns`.");
    m.option("store", &Options::store, "folder of the store, relative to the working directory");
    m.option("experiment", &Options::experiment, "name of the experiment that the run belongs to");
    m.hook<&Mlflow::signal>(Event::signal).sink();
    m.hook<&Mlflow::fit_end>(Event::fit_end).sink();
  }
  explicit Mlflow(const Options& options) : options_(options) {}

  void open(const RunInfo& run) override {
    run_ = run;
    const fs::path experiment = open_experiment();
    const fs::path kept = fs::path(run.directory) / id_file;
    id_ = run.resumed_at > 0 ? first_line(kept) : "";
    const bool resumed = !id_.empty() && fs::exists(experiment / id_ / "meta.yaml");
    if (!resumed) write(kept, (id_ = hex_id()) + "\n");
    folder_ = experiment / id_;
    started_ = resumed ? started_of(folder_ / "meta.yaml") : now_in_milliseconds();
    write_meta(running, "null");
    write(folder_ / "tags/mlflow.runName", run.name);
    write(folder_ / "tags/mlflow.source.name", "trainyard");
    write(folder_ / "tags/mlflow.source.type", "LOCAL");
    for (const char* each : {"metrics", "params", "artifacts"}) fs::create_directories(folder_ / each);
    if (resumed) cut();
  }

  void record(const Record& record) override {
    for (const auto& [name, value] : record.values) {
      const std::string path = (folder_ / "metrics" / metric_name(name)).string();
      if (record.step == run_.resumed_at && last_[path] == record.step)
        continue;  // an evaluation that was made again
      auto file = files_.find(path);
      if (file == files_.end()) {
        fs::create_directories(fs::path(path).parent_path());
        file = files_.emplace(path, AppendFile(path, AppendFile::Mode::extend)).first;
      }
      file->second.append(now_in_milliseconds() + " " + metric_text(value) + " " +
                          std::to_string(record.step) + "\n");
    }
  }

  void close() override {
    for (auto& [path, file] : files_) file.sync();
    files_.clear();
    write_meta(ending_, now_in_milliseconds());
  }

  void signal(StepContext&) { signalled_ = true; }
  void fit_end(StepContext&) { ending_ = signalled_ ? killed : finished; }

 private:
  /// The folder of the experiment of that name, as the store has it, or a new one.
  fs::path open_experiment() {
    const fs::path store = fs::absolute(options_.store);
    fs::create_directories(store);
    for (const auto& entry : fs::directory_iterator(store)) {
      std::ifstream meta(entry.path() / "meta.yaml");
      for (std::string line; std::getline(meta, line);)
        if (line == "name: " + options_.experiment || line == "name: " + yaml(options_.experiment))
          return entry.path();
    }
    const std::string id =
        options_.experiment == "Default" ? "0" : now_in_milliseconds() + std::to_string(::getpid() % 100000);
    const std::string now = now_in_milliseconds();
    write(store / id / "meta.yaml",
          "artifact_location: " + yaml("file://" + (store / id).string()) + "\ncreation_time: " + now +
              "\nexperiment_id: '" + id + "'\nlast_update_time: " + now +
              "\nlifecycle_stage: active\nname: " + yaml(options_.experiment) + "\n");
    return store / id;
  }

  void write_meta(Status status, const std::string& end) const {
    const std::string experiment = folder_.parent_path().filename().string();
    const std::string artifacts = "file://" + fs::absolute(run_.directory).lexically_normal().string();
    const char* user = std::getenv("USER");
    write(folder_ / "meta.yaml",
          "artifact_uri: " + yaml(artifacts) + "\nend_time: " + end +
              "\nentry_point_name: ''\nexperiment_id: '" + experiment +
              "'\nlifecycle_stage: active\nrun_id: " + yaml(id_) + "\nrun_name: " + yaml(run_.name) +
              "\nrun_uuid: " + yaml(id_) +
              "\nsource_name: ''\nsource_type: 4\nsource_version: ''\nstart_time: " + started_ +
              "\nstatus: " + std::to_string(status) +
              "\ntags: []\nuser_id: " + yaml(user != nullptr ? user : "unknown") + "\n");
  }

  static std::string started_of(const fs::path& meta) {
    constexpr std::string_view key = "start_time: ";
    std::ifstream file(meta);
    for (std::string line; std::getline(file, line);)
      if (line.starts_with(key)) return line.substr(key.size());
    return now_in_milliseconds();
  }

  /// What stands there from behind the step that the run goes on from.
  void cut() {
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / "metrics")) {
      if (!entry.is_regular_file()) continue;
      std::ifstream lines(entry.path());
      std::string kept;
      for (std::string line; std::getline(lines, line) && !lines.eof();) {
        const std::int64_t step = std::atoll(line.c_str() + line.rfind(' ') + 1);
        if (step > run_.resumed_at) break;
        last_[entry.path().string()] = step;
        kept += line + "\n";
      }
      write(entry.path(), kept);
    }
  }

  Options options_;
  RunInfo run_;
  fs::path folder_;
  std::string id_, started_;
  std::map<std::string, AppendFile> files_;   ///< by path
  std::map<std::string, std::int64_t> last_;  ///< step of the last line that a resumed run found, by path
  bool signalled_ = false;
  std::atomic<Status> ending_ = failed;  ///< hooks come from the loop's thread, the rest from that of sinks
};

}  // namespace

TRAINYARD_PLUGIN(Mlflow)
