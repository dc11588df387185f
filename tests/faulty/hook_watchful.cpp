// Looks at each gradient as autograd makes it, ahead of whoever sums it: writes down the parameter's name, and can throw there.
#include <fstream>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <trainyard/hook.hpp>
#include <trainyard/network.hpp>

#include "fault.hpp"

namespace {

using namespace trainyard;

class Watchful final : public Hook {
 public:
  struct Options {
    std::string file;
    std::int64_t rank = -1, step = -1, throws_behind = -1;
  };
  static void describe(Manifest<Options>& m) {
    m.name("watchful").version("1.0.0").summary("Writes down which gradients come, a line a step.");
    m.option("file", &Options::file, "that it appends to").required();
    m.option("rank", &Options::rank, "of which it writes, and on which it throws; -1: all");
    m.option("step", &Options::step, "number of the step in which it throws; -1: none");
    m.option("throws_behind", &Options::throws_behind, "behind how many gradients of that step");
    m.hook<&Watchful::batch_start>(Event::batch_start);
  }
  explicit Watchful(const Options& options) : options_(options) {}

  void batch_start(StepContext& context) {
    if (!faulty::on_rank(options_.rank)) return;
    if (!out_.is_open()) begin(context.network());
    step_ = context.step_number();
    seen_ = 0;
    out_ << '\n' << step_ << std::flush;
  }

 private:
  void begin(const Network& network) {
    out_.open(options_.file, std::ios::app);
    for (const NamedTensor& each : network.parameters())
      each.tensor.register_hook([this, name = each.name](const at::Tensor&) {
        if (step_ == options_.step && seen_++ == options_.throws_behind) faulty::go_wrong("throw");
        out_ << ' ' << name << std::flush;
      });
  }

  Options options_;
  std::ofstream out_;
  std::int64_t step_ = -1, seen_ = 0;
};

}  // namespace

TRAINYARD_PLUGIN(Watchful)
