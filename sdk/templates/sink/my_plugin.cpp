#include <filesystem>
#include <fstream>
#include <map>
#include <trainyard/sink.hpp>

class MyPlugin final : public trainyard::Sink {
 public:
  struct Options {
    std::string file = "metrics.prom";
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("my_plugin").version("0.1.0").summary("Newest values in a file that node_exporter hands on.");
    m.option("file", &Options::file, "in the run's folder").output();
  }
  explicit MyPlugin(const Options& options) : path_(options.file) {}
  void open(const trainyard::RunInfo& run) override { path_ = run.directory + "/" + path_; }
  void record(const trainyard::Record& record) override {
    for (const auto& [name, value] : record.values) newest_[name] = value;
    std::ofstream file(path_ + ".new");
    for (const auto& [name, value] : newest_) file << "run{metric=\"" << name << "\"} " << value << '\n';
    file.close();
    std::filesystem::rename(path_ + ".new", path_);  // nobody reads half a file
  }
  void close() override {}

 private:
  std::string path_;
  std::map<std::string, double> newest_;
};
TRAINYARD_PLUGIN(MyPlugin)
