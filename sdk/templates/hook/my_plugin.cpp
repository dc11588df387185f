#include <trainyard/hook.hpp>
#include <trainyard/network.hpp>

/// Takes the mean out of each output's gradient (Yong et al., "Gradient centralization", ECCV 2020).
class MyPlugin final : public trainyard::Hook {
 public:
  struct Options {
    std::int64_t least = 2;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("my_plugin").version("0.1.0").summary("Takes the mean out of gradients (centralization).");
    m.option("least", &Options::least, "dimensions of the parameters that it acts on").range(2, 8);
    m.hook<&MyPlugin::centre>(trainyard::Event::before_step).writes(trainyard::Region::grads);
  }
  explicit MyPlugin(const Options& options) : options_(options) {}

  void centre(trainyard::StepContext& context) {
    for (const trainyard::NamedTensor& each : context.network().parameters()) {
      at::Tensor gradient = each.tensor.grad();
      if (!gradient.defined() || gradient.is_sparse() || gradient.dim() < options_.least) continue;
      std::vector<std::int64_t> inputs;  // all dimensions but the first
      for (std::int64_t i = 1; i < gradient.dim(); ++i) inputs.push_back(i);
      gradient.sub_(gradient.mean(inputs, /*keepdim=*/true));
    }
  }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(MyPlugin)
