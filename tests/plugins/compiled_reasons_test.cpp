// What the executor compiled says where it runs passes as eager runs them, of networks that no run file has.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "tests/plugins/wavelet_yard.hpp"

namespace compiled_reasons_tests {

namespace {

using namespace trainyard;

/// Has the executor make the passes: so many of a micro-batch, then their backward.
class Passes final : public wavelet::PlainBench {
 public:
  using PlainBench::PlainBench;
  void backward(StepWork& work, std::size_t micro, const ForwardPass& forward) override {
    const at::AutoGradMode tracked(true);
    std::vector<at::Tensor> outputs;
    for (int i = 0; i < at_once; ++i) outputs.push_back(forward(work.micros[micro], work.pass(micro)));
    for (const at::Tensor& output : outputs) output.sum().backward();
  }
  int at_once = 1;
};

/// One that nobody can look into.
class Opaque final : public Network {
 public:
  at::Tensor forward(const Batch& batch, const ForwardContext&) override {
    return at::matmul(batch.inputs.front(), weight_);
  }
  std::vector<NamedTensor> parameters() const override { return {{"weight", weight_}}; }
  std::vector<NamedTensor> buffers() const override { return {}; }
  std::vector<std::int64_t> output_shape() const override { return {3}; }
  void to(at::Device) override {}

 private:
  at::Tensor weight_ = at::zeros({6, 3}).set_requires_grad(true);
};

std::unique_ptr<Network> of_two_outputs() {
  GraphBuilder b(wavelet::six_numbers(at::kFloat), 3);
  const ValueId hidden = b.tanh(b.linear(b.input(), "fc1", 10));
  Graph graph = b.finish(b.linear(hidden, "fc2", 3));
  graph.outputs.push_back(hidden);
  return wavelet::network_of(std::move(graph), at::kFloat);
}

/// What one step says, with so many passes of a micro-batch at once; 0: the executor is opened, and makes none.
std::vector<std::string> reasons(std::unique_ptr<Network> network, int at_once) {
  wavelet::Yard yard(std::move(network), {});
  Passes bench(*yard.network, *yard.optimizer);
  bench.at_once = at_once;
  const auto executor = test::make<Executor>("compiled");
  executor->set_host(yard.host);
  executor->open(bench);
  std::vector<Batch> micros = wavelet::batches(2, 4, at::kFloat);
  StepWork work = wavelet::work_of(micros, 0);
  if (at_once > 0) executor->step(bench, work);
  std::vector<std::string> why;
  for (const auto& [what, because] : yard.host.journal_entries) {
    CHECK(what == "left to eager");
    CHECK(yard.host.logged(because));
    why.push_back(because);
  }
  return why;
}

TEST_CASE("compiled says why a network, or a pass, is left to eager", "[compiled]") {
  using Catch::Contains;
  CHECK(reasons(wavelet::small_network(at::kFloat), 1).empty());
  const std::vector<std::string> twice = reasons(wavelet::small_network(at::kFloat), 2);
  REQUIRE(twice.size() == 1);
  CHECK_THAT(twice[0], Contains("a second pass of the same shapes began ahead of the backward of the first"));
  const auto only = [](std::unique_ptr<Network> network, const std::string& why) {
    const std::vector<std::string> found = reasons(std::move(network), 0);
    REQUIRE(found.size() == 1);
    CHECK_THAT(found[0], Contains(why) && Contains("every step runs as eager does"));
  };
  only(std::make_unique<Opaque>(), "the model has no graph");
  only(of_two_outputs(), "the model has several outputs");
  only(wavelet::small_network(at::kDouble), "the kernels are of floats");
}

}  // namespace

}  // namespace compiled_reasons_tests
