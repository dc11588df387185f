// Writes down the gradients that each step is taken with, as numbers of four bytes one after the other: what
// a test compares.
#include <fstream>

#include <ATen/core/Tensor.h>

#include <trainyard/hook.hpp>
#include <trainyard/network.hpp>

namespace {

using namespace trainyard;

class Gradients final : public Hook {
 public:
  struct Options {
    std::string file;
  };
  static void describe(Manifest<Options>& m) {
    m.name("gradients").version("1.0.0").summary("Writes the gradients of every step into a file.");
    m.option("file", &Options::file, "that it writes").required();
    m.hook<&Gradients::before_step>(Event::before_step);
  }
  explicit Gradients(const Options& options) : out_(options.file, std::ios::binary) {}

  void before_step(StepContext& context) {
    for (const NamedTensor& each : context.network().parameters()) {
      const at::Tensor given = each.tensor.grad();
      if (!given.defined()) continue;  // an executor that updates by single samples leaves none
      const at::Tensor gradient = given.is_sparse() ? given.to_dense() : given.contiguous();
      out_.write(reinterpret_cast<const char*>(gradient.const_data_ptr<float>()),
                 static_cast<std::streamsize>(gradient.nbytes()));
    }
    out_ << std::flush;
  }

 private:
  std::ofstream out_;
};

}  // namespace

TRAINYARD_PLUGIN(Gradients)
