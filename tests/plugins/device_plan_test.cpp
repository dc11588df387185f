// The plan for a device: the text of its kernels, compiled here and by NVRTC; what it records, on a device that is this
// processor; and all of it on a GPU, where there is one.
#include <catch2/catch.hpp>

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <future>
#include <regex>
#include <stdexcept>

#include <trainyard/error.hpp>

#include "plugins/executor/compiled/chain_source.hpp"
#include "plugins/executor/compiled/device_plan.hpp"
#include "plugins/executor/compiled/nvrtc.hpp"
#include "tests/kernels/chains_oracle.hpp"
#include "tests/plugins/compiled_networks.hpp"
#include "tests/plugins/host_device.hpp"

namespace device_plan_tests {

namespace {

using namespace trainyard;
using namespace trainyard::test;
using compiled::Device;
using compiled::DevicePlan;
using kernels::ChainOp;
using kernels::ChainStep;
namespace oracle = kernels::oracle;

/// One step between what it reads and what it gives, of as many inputs.
std::string text_of_step(const std::string& name, const ChainStep& step, std::size_t inputs) {
  compiled::Program program;
  const auto output = static_cast<std::int32_t>(inputs);
  program.steps = {{ChainOp::load, 0}, step, {ChainOp::keep, output}};
  return compiled::chain_kernel_text(name, program, inputs + 1);
}

oracle::Floats run(const HostKernels& kernels, const std::string& name, std::vector<oracle::Floats> inputs) {
  oracle::Floats output(inputs.front().size());
  std::vector<void*> pointers;
  for (oracle::Floats& each : inputs) pointers.push_back(each.data());
  pointers.push_back(output.data());
  kernels.launch(name, std::ssize(output), pointers);
  return output;
}

/// Those of the steps through functions, which have the operand 1.
ChainStep through(const oracle::Case& of) {
  return {*of.through, 1, of.step.first, of.step.second};
}

HostKernels kernels_of_steps() {
  std::string text = compiled::chain_functions();
  for (const oracle::Case& each : oracle::cases()) {
    const std::string name = "f" + std::to_string(static_cast<int>(each.step.op));
    text += text_of_step(name, each.step, 1);
    if (each.through) text += text_of_step(name + "_through", through(each), 2);
  }
  for (const auto& [op, exact] : oracle::pairs()) {
    const std::string name = "p" + std::to_string(static_cast<int>(op));
    text += text_of_step(name, {op, 1}, 2) + text_of_step(name + "_constant", {op, -1, 0.625f}, 1);
  }
  return HostKernels(text);
}

TEST_CASE("The text of a chain's steps gives their numbers, and NaN where LibTorch does", "[compiled]") {
  const HostKernels kernels = kernels_of_steps();
  const oracle::Floats x = oracle::numbers(1001, 7), given = oracle::numbers(1001, 3);
  for (const oracle::Case& each : oracle::cases()) {
    const std::string name = "f" + std::to_string(static_cast<int>(each.step.op));
    const oracle::Floats found = run(kernels, name, {x});
    for (std::size_t i = 0; i < x.size(); ++i) {
      INFO(each.name << " of " << x[i] << " is " << found[i]);
      REQUIRE((oracle::apart(found[i], each.exact(static_cast<double>(x[i])), each.ulp_of_one) <= 4.0 ||
               (each.step.op == ChainOp::gelu && std::isinf(x[i]))));
    }
    if (!each.through) continue;
    const oracle::Floats back = run(kernels, name + "_through", {given, each.through_output ? found : x});
    for (std::size_t i = 22; i < x.size(); ++i) {  // of moderate size
      if (std::abs(x[i]) > 10.0f || std::abs(x[i]) < 1e-3f) continue;
      const std::optional<double> slope = oracle::slope(each, static_cast<double>(x[i]));
      if (!slope) continue;
      INFO(each.name << " at " << x[i]);
      REQUIRE(static_cast<double>(back[i]) ==
              Approx(static_cast<double>(given[i]) * *slope).epsilon(3e-5).margin(2e-6 * std::abs(given[i])));
    }
  }
  REQUIRE(run(kernels, "f" + std::to_string(static_cast<int>(ChainOp::relu)) + "_through",
              {{2.0f, 3.0f, 4.0f}, {oracle::not_a_number, 1.0f, 0.0f}}) == oracle::Floats{2.0f, 3.0f, 0.0f});
}

TEST_CASE("The text of a chain's operations of two values, either way round", "[compiled]") {
  const HostKernels kernels = kernels_of_steps();
  const oracle::Floats a = oracle::numbers(1001, 1);
  oracle::Floats b = oracle::numbers(1001, 2);
  std::reverse(b.begin(), b.begin() + 22);
  for (const auto& [op, exact] : oracle::pairs()) {
    const std::string name = "p" + std::to_string(static_cast<int>(op));
    const oracle::Floats found = run(kernels, name, {a, b});
    const oracle::Floats with_constant = run(kernels, name + "_constant", {a});
    for (std::size_t i = 0; i < a.size(); ++i) {
      INFO(name << ": " << a[i] << ", " << b[i] << " gives " << found[i]);
      REQUIRE(oracle::apart(found[i], exact(static_cast<double>(a[i]), static_cast<double>(b[i]))) <= 1.0);
      REQUIRE(oracle::apart(with_constant[i], exact(static_cast<double>(a[i]), 0.625)) <= 1.0);
    }
  }
}

/// Keeps the text and compiles nothing.
struct TextDevice final : Device {
  std::string text;
  std::shared_ptr<const compiled::Kernels> kernels(const std::string& given) override {
    text = given;
    return nullptr;
  }
  void aside(const std::function<void()>&) override {}
  std::unique_ptr<compiled::Recording> record(const std::function<void()>&,
                                              const compiled::Recording*) override {
    return nullptr;
  }
};

#ifdef TRAINYARD_CUDA
/// Kernels of chains of many networks, each of a name of its own.
std::string texts_of_random_chains(std::ptrdiff_t count) {
  const std::string functions = compiled::chain_functions();
  const std::regex kernel("__global__");
  std::string all = functions;
  for (std::uint64_t seed = 1; count > 0; ++seed) {
    GraphNetwork network(random_chains(seed));
    TextDevice device;
    const compiled::FusedNodes nodes(network, {{5, 12}}, true, device);
    if (device.text.empty()) continue;  // too few operators behind each other
    const std::string text = device.text.substr(functions.size());
    count -= std::distance(std::sregex_iterator(text.begin(), text.end(), kernel), {});
    all += std::regex_replace(text, std::regex("chain(\\d+)_"), "n" + std::to_string(seed) + "_$1_");
  }
  return all;
}

TEST_CASE("NVRTC compiles the kernels of chains made at random, for GPUs of two kinds", "[compiled]") {
  const std::string text = texts_of_random_chains(200);  // of 100 chains
  try {
    auto other = std::async(std::launch::async, [&] { return compiled::compile_for(80, text); });
    const std::vector<char> binary = compiled::compile_for(90, text);
    REQUIRE(std::min(binary.size(), other.get().size()) > 100'000);
  } catch (const ConfigError& error) {
    REQUIRE_THAT(error.what(), Catch::Contains("executor.fuse = \"none\""));
    WARN("no NVRTC: " << error.what());
    return;
  }
  REQUIRE_THROWS_WITH(compiled::compile_for(90, "__global__ void f() { return g(); }"),
                      Catch::Contains("sm_90") && Catch::Contains("identifier \"g\" is undefined"));
}
#endif

/// A plan on a device, which it keeps.
Compile on(std::shared_ptr<Device>& device, bool fuses = true) {
  return [&device, fuses](GraphNetwork& network, const Batch& batch) {
    if (!device) device = std::make_shared<HostDevice>(network);
    return std::make_shared<DevicePlan>(network, fuses, *device, batch, training);
  };
}

/// Networks of all that a plan treats in its own way.
std::vector<std::pair<std::function<Graph()>, std::vector<at::Tensor>>> networks() {
  const auto tokens = [] { return at::randint(0, 11, {3, 8}, at::kLong); };
  return {
      {[] {
         GraphBuilder b(schema_of({20}), 3);
         const ValueId x = b.gelu(b.relu(b.linear(b.input(), "a", 33)), true);
         return b.finish(b.linear(b.tanh(b.sigmoid(x)), "b", 5));
       },
       several({9, 20})},
      {[] {
         GraphBuilder b(schema_of({3, 10, 10}), 3);
         ValueId x = b.batch_norm(b.conv2d(b.input(), "a", 6, {.padding = 1, .bias = false}), "n");
         const ValueId y = b.batch_norm(b.conv2d(b.relu(x), "b", 6, {.padding = 1}), "m");
         x = b.max_pool2d(b.relu(b.add(b.tanh(y), x)), 2, 2);
         return b.finish(b.linear(b.flatten(x), "c", 4));
       },
       several({5, 3, 10, 10})},
      {[] {
         GraphBuilder b(schema_of({8}, at::kLong), 3);
         const auto embedded = b.embedding(b.input(), "wte", 11, 16);
         ValueId x = b.flatten(b.add(embedded.output, b.normal_parameter("wpe", {8, 16}, 0.1)), 2);
         const auto qkv = b.split(b.reshape(b.linear(b.layer_norm(x, "n1"), "qkv", 48), {-1, 8, 48}), 3, 2);
         const ValueId y = b.flatten(b.attention(qkv[0], qkv[1], qkv[2], "attn", 4, true), 2);
         x = b.add(x, b.linear(y, "proj", 16));
         x = b.gelu(b.mul(x, b.sigmoid(x)), true);
         return b.finish(b.reshape(b.tied_linear(x, "head", embedded.weight), {-1, 8, 11}));
       },
       {tokens(), tokens(), tokens()}},
  };
}

TEST_CASE("A recorded pass is the network", "[compiled]") {
  for (const auto& [make, inputs] : networks())
    for (const bool fuses : {true, false}) {
      std::shared_ptr<Device> device;
      check_same(make, inputs, on(device, fuses));
    }
}

TEST_CASE("Recorded networks made at random are the same", "[compiled]") {
  for (std::uint64_t seed = 1; seed <= 15; ++seed) {
    INFO("seed " << seed);
    std::shared_ptr<Device> chains, rows, images;
    check_same([&] { return random_chains(seed); }, several({seed % 3 == 0 ? 70 : 5, 12}), on(chains));
    check_same([&] { return random_rows(seed); }, several({5, 12}), on(rows));
    if (seed <= 5) check_same([&] { return random_images(seed, 6); }, several({4, 3, 6, 6}), on(images));
  }
}

/// A network, and a plan of it on a device of its own.
struct Recorded {
  explicit Recorded(Graph graph, const at::Tensor& x, at::Device where = at::kCPU,
                    std::shared_ptr<Device> given = nullptr)
      : network(std::move(graph)), device(std::move(given)) {
    network.to(where);
    plan = on(device)(network, batch_of(x));
  }
  at::Tensor weight() const { return network.parameters()[0].tensor; }
  at::Tensor forward(const at::Tensor& x) const { return plan->forward(batch_of(x), training); }

  GraphNetwork network;
  std::shared_ptr<Device> device;
  std::shared_ptr<compiled::TrackedPass> plan;
};

/// What holds of every device; `device` makes one.
void check_passes(at::Device where, const std::function<std::shared_ptr<Device>()>& device) {
  const auto input = [&] { return at::randn({5, 6}, at::TensorOptions(where)); };
  Recorded it(two_layers(), input(), where, device());
  SECTION("what it gives out stays what it was") {
    std::vector<at::Tensor> outputs, copies;
    for (int i = 0; i < 3; ++i) {
      const at::Tensor output = it.forward(input());
      REQUIRE(it.plan->is_busy());
      output.sum().backward();
      outputs.insert(outputs.end(), {output.detach(), it.weight().grad()});
      copies.insert(copies.end(), {output.detach().clone(), it.weight().grad().clone()});
      it.weight().mutable_grad().reset();
    }
    REQUIRE_FALSE(it.plan->is_busy());
    for (std::size_t i = 0; i < outputs.size(); ++i) REQUIRE(outputs[i].equal(copies[i]));
  }
  SECTION("gradients of two passes add up, and a hook sees each") {
    std::vector<at::Tensor> seen;
    it.weight().register_hook([&](const at::Tensor& gradient) {
      seen.push_back(gradient);
      return gradient;
    });
    const at::Tensor x = input(), other = input();
    it.forward(x).sum().backward();
    const at::Tensor once = it.weight().grad().clone();
    it.forward(other).sum().backward();
    REQUIRE(seen.size() == 2);
    REQUIRE(seen[0].allclose(once));
    REQUIRE(apart(it.weight().grad(), once + seen[1]) < 1e-6);
  }
  SECTION("what was given out may be written over ahead of the way back") {
    const at::Tensor x = input(), given = at::randn({5, 4}, x.options());
    const auto gradient = [&](const at::Tensor& output) {
      return torch::autograd::grad({output}, {it.weight()}, {given})[0].clone();
    };
    const at::Tensor expected = gradient(it.forward(x)), output = it.forward(x);
    output.detach().zero_();
    REQUIRE(gradient(output).equal(expected));
  }
  SECTION("weights that change in their place are read; where they move, another is needed") {
    const at::Tensor x = input(), before = it.forward(x).detach();
    {
      const at::AutoGradMode off(false);
      for (const NamedTensor& each : it.network.parameters()) each.tensor.mul_(2.0);
    }
    REQUIRE(it.plan->fits());
    const at::Tensor after = it.forward(x).detach();
    REQUIRE(apart(after, it.network.forward(batch_of(x), training).detach()) < 1e-5);
    REQUIRE_FALSE(after.allclose(before));
    it.weight().set_data(it.weight().detach().clone());
    REQUIRE_FALSE(it.plan->fits());
  }
  SECTION("gradients of gradients are refused, and a second way back") {
    const at::Tensor loss = it.forward(input()).sum();
    REQUIRE_THROWS_WITH(loss.backward({}, true, true), Catch::Contains("gradients of gradients"));
    const at::Tensor again = it.forward(input()).sum();
    again.backward({}, true);
    REQUIRE_THROWS_WITH(again.backward(), Catch::Contains("backward twice"));
  }
}

TEST_CASE("Recorded passes give what stays, add up and read weights where they lie", "[compiled]") {
  check_passes(at::kCPU, [] { return nullptr; });
}

/// Kernels that fail on the way back.
struct OneWay final : compiled::Kernels {
  void launch(const std::string& name, std::int64_t, std::span<void* const>) const override {
    if (name.ends_with("_backward")) throw std::runtime_error("no way back");
  }
};
struct OneWayDevice final : Device {
  std::shared_ptr<const compiled::Kernels> kernels(const std::string&) override {
    return std::make_shared<OneWay>();
  }
  void aside(const std::function<void()>& work) override { work(); }
  std::unique_ptr<compiled::Recording> record(const std::function<void()>&,
                                              const compiled::Recording*) override {
    return nullptr;
  }
};

TEST_CASE("Passes that do not count leave running statistics alone, also where one fails", "[compiled]") {
  GraphBuilder b(schema_of({6}), 3);
  GraphNetwork network(b.finish(b.relu(b.tanh(b.batch_norm(b.linear(b.input(), "a", 8), "n")))));
  std::vector<at::Tensor> before;
  for (const NamedTensor& each : network.buffers()) before.push_back(each.tensor.clone());
  const auto unchanged = [&] {
    for (std::size_t i = 0; i < before.size(); ++i)
      if (!network.buffers()[i].tensor.equal(before[i])) return false;
    return !before.empty();
  };
  const Batch batch = batch_of(at::randn({5, 6}));
  OneWayDevice one_way;
  REQUIRE_THROWS_WITH(DevicePlan(network, true, one_way, batch, training), "no way back");
  REQUIRE(unchanged());
  HostDevice device(network);
  const auto plan = std::make_shared<DevicePlan>(network, true, device, batch, training);
  REQUIRE(unchanged());
  plan->forward(batch, training);
  REQUIRE_FALSE(unchanged());
}

TEST_CASE("A number of a recorded chain is read in each pass", "[compiled]") {
  GraphBuilder b(schema_of({6}), 3);
  const ValueId factor = b.constant("factor", at::scalar_tensor(0.5f));
  GraphNetwork network(b.finish(b.mul(b.tanh(b.linear(b.input(), "in", 8)), factor)));
  HostDevice device(network);
  const Batch batch = batch_of(at::randn({5, 6}));
  const auto plan = std::make_shared<DevicePlan>(network, true, device, batch, training);
  const at::Tensor before = plan->forward(batch, training).detach();
  network.graph()->values[static_cast<std::size_t>(factor)].initializer.mul_(3.0);
  REQUIRE(plan->forward(batch, training).detach().allclose(3.0 * before));
}

TEST_CASE("A recorded chain is one step", "[compiled]") {
  GraphBuilder b(schema_of({6}), 3);
  const ValueId x = b.linear(b.input(), "in", 8);
  GraphNetwork network(b.finish(b.linear(b.relu(b.mul(x, b.sigmoid(x))), "out", 4)));
  TextDevice device;
  REQUIRE(compiled::FusedNodes(network, {{5, 6}}, true, device).steps() == 3);
  REQUIRE(compiled::FusedNodes(network, {{5, 6}}, false, device).steps() == 5);
}

TEST_CASE("Chains of one formula have one kernel each way", "[compiled]") {
  GraphBuilder b(schema_of({6}), 3);
  ValueId x = b.input();
  for (const char* name : {"a", "b", "c"}) x = b.tanh(b.sigmoid(b.linear(x, name, 6)));
  GraphNetwork network(b.finish(b.linear(b.sigmoid(b.tanh(x)), "out", 4)));
  TextDevice device;
  REQUIRE(compiled::FusedNodes(network, {{5, 6}}, true, device).steps() == 7);
  const std::regex kernel("__global__");
  REQUIRE(std::distance(std::sregex_iterator(device.text.begin(), device.text.end(), kernel), {}) == 4);
}

/// Null where there is none to try it on.
std::shared_ptr<Device> gpu() {
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr ||
      at::detail::getCUDAHooks().deviceCount() == 0) {
    WARN("no CUDA device: nothing is checked");
    return nullptr;
  }
  c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(at::Device("cuda:0"));
  return compiled::cuda_device(at::Device("cuda:0"));
}

TEST_CASE("CUDA: a recorded pass is the network", "[compiled][cuda]") {
  std::shared_ptr<Device> device = gpu();
  if (!device) return;
  at::globalContext().setAllowTF32CuDNN(false);
  const at::Device where("cuda:0");
  for (const auto& [make, inputs] : networks())
    for (const bool fuses : {true, false}) check_same(make, inputs, on(device, fuses), where);
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    INFO("seed " << seed);
    check_same([&] { return random_chains(seed); }, several({seed % 3 == 0 ? 70'000 : 5, 12}), on(device),
               where);
    check_same([&] { return random_rows(seed); }, several({5, 12}), on(device), where);
    check_same([&] { return random_images(seed, 6); }, several({4, 3, 6, 6}), on(device), where);
  }
}

TEST_CASE("CUDA: recorded passes give what stays, add up and read weights where they lie",
          "[compiled][cuda]") {
  const std::shared_ptr<Device> device = gpu();
  if (device) check_passes(at::Device("cuda:0"), [&] { return device; });
}

TEST_CASE("CUDA: what cannot be recorded is said, and the device goes on", "[compiled][cuda]") {
  const std::shared_ptr<Device> device = gpu();
  if (!device) return;
  const at::Tensor x = at::ones({4}, at::TensorOptions(at::Device("cuda:0")));
  REQUIRE_THROWS(device->record([&] { x.sum().item<float>(); }, nullptr));
  REQUIRE(x.sum().item<float>() == 4.0f);
  at::Tensor y = at::zeros_like(x);
  const auto recording = device->record([&] { y.add_(x); }, nullptr);
  recording->replay();
  recording->replay();
  REQUIRE(y.sum().item<float>() == 8.0f);
}

}  // namespace

}  // namespace device_plan_tests
