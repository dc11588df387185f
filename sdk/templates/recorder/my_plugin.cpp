#include <fstream>
#include <trainyard/network.hpp>
#include <trainyard/recorder.hpp>

/// Writes a table of the gradients' norms: a line a step, a column a parameter. Shows nothing to rules.
class MyPlugin final : public trainyard::Recorder {
 public:
  struct Options {
    std::string file = "norms.csv";
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("my_plugin").version("0.1.0").summary("Writes a table of the gradients' norms.");
    m.option("file", &Options::file, "in the run's folder").output();
    m.hook<&MyPlugin::record>(trainyard::Event::before_step);
  }
  explicit MyPlugin(const Options& options) : to_(options.file) {}
  void open(const trainyard::RunInfo& run) override { file_.open(run.directory + '/' + to_, std::ios::app); }
  void attach(std::vector<trainyard::NamedRule>, const trainyard::RunScale&) override {}
  void record(trainyard::StepContext& context) {
    file_ << context.step_number();
    for (const trainyard::NamedTensor& each : context.network().parameters())
      file_ << ',' << (each.tensor.grad().defined() ? each.tensor.grad().norm().item<double>() : 0.0);
    file_ << std::endl;
  }

 private:
  std::string to_;
  std::ofstream file_;
};
TRAINYARD_PLUGIN(MyPlugin)
