// A step of an LSTM at batch 1: the program that `export --to static` writes of a doped one (Thakker et al., "Doping", MLSys 2021), that of
// the dense one, and LibTorch. The programs are compiled by the flags of the Makefile there, and for AVX2.
//   trainyard bench packed_lstm
#include <dlfcn.h>

#include <algorithm>
#include <memory>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <trainyard/forward_context.hpp>
#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>

#include "plugins/tool/export/static_source.hpp"
#include "plugins/transform/doped/rewrite.hpp"
#include "tools/bench/arguments.hpp"
#include "tools/bench/contest.hpp"
#include "tools/bench/process.hpp"

namespace trainyard::bench {
namespace {

constexpr std::int64_t steps = 16;  ///< of a sample

Graph lstm(std::int64_t hidden) {
  BatchSchema schema;
  schema.inputs = {{.name = "x", .shape = {steps, hidden}}};
  GraphBuilder builder(schema, 3);
  return builder.finish(builder.lstm(builder.input(), "lstm", hidden));
}

/// As a training leaves it: of the sparse terms the largest numbers alone.
Graph doped_lstm(std::int64_t hidden, doped::Form form, double factor) {
  const doped::Request request{.form = form, .target_cf = factor, .layers = {"lstm"}, .seed = 3, .start = {}};
  Graph graph = lstm(hidden);
  const std::vector<doped::Replacement> made = doped::replacements(graph, request);
  graph = doped::rewritten(std::move(graph), made, request);
  for (const doped::Replacement& each : made) {
    const ValueId id = graph.find_value(each.weight + std::string(doped::sparse_suffix));
    at::Tensor& sparse = graph.values[static_cast<std::size_t>(id)].initializer;
    const at::Tensor size = sparse.detach().abs();
    const at::Tensor least = std::get<0>(size.flatten().topk(each.nonzeros)).min();
    sparse = sparse.detach() * size.ge(least);
  }
  return graph;
}

/// A program as a library of this process.
class Program {
 public:
  Program(const Graph& graph, const std::string& folder, const std::string& flag) {
    write_static(folder, graph, {}, "bench");
    const std::string file = folder + "/network.so";
    std::vector<std::string> words{"/usr/bin/env", "-C", folder, TRAINYARD_CXX, "-std=c++20", "-O3"};
    if (!flag.empty()) words.push_back(flag);
    for (const char* word : {"-fPIC", "-shared", "-Wl,-Bsymbolic", "network.cpp", "-o", "network.so"})
      words.emplace_back(word);
    run(words);
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    forward_ = reinterpret_cast<Forward>(dlsym(library, "_ZN7network7forwardEPKfS1_Pf"));
    weights_ = static_cast<const float*>(dlsym(library, "trained"));
    if (forward_ == nullptr || weights_ == nullptr) throw std::runtime_error(file + " is no such program");
  }
  at::Tensor operator()(const at::Tensor& x) const {
    at::Tensor y = at::empty_like(x);
    forward_(weights_, x.const_data_ptr<float>(), y.mutable_data_ptr<float>());
    return y;
  }

 private:
  using Forward = void (*)(const float*, const float*, float*);
  Forward forward_ = nullptr;
  const float* weights_ = nullptr;
};

at::Tensor evaluated(const Graph& graph, const at::Tensor& x) {
  return GraphNetwork(graph).forward_all({x}, {})[0];
}

void require_close(const at::Tensor& found, const at::Tensor& expected) {
  const double apart = (found - expected).abs().max().item<double>();
  if (!(apart <= 1e-5))
    throw std::runtime_error("a program and its network are " + std::to_string(apart) + " apart");
}

void compare(std::int64_t hidden, const std::vector<std::pair<doped::Form, double>>& ways, bool quick) {
  const Folder folder;
  const Graph dense = lstm(hidden);
  const auto network = std::make_shared<GraphNetwork>(dense);
  const at::Tensor x = at::randn({1, steps, hidden}), state = at::zeros({1, 1, hidden});
  const std::vector<at::Tensor> weights{at::randn({4 * hidden, hidden}), at::randn({4 * hidden, hidden}),
                                        at::randn({4 * hidden}), at::randn({4 * hidden})};
  std::vector<Contender> contenders{{"LibTorch, the network", [=] { network->forward_all({x}, {}); }},
                                    {"LibTorch, at::lstm",
                                     [=] {
                                       at::lstm(x, {state, state}, weights, true, 1, 0.0, false, false, true);
                                     }},
                                    {"LibTorch, the two products alone, at::addmv", [=] {
                                       for (std::int64_t t = 0; t < steps; ++t)
                                         at::addmv(at::addmv(weights[2], weights[0], x[0][t]), weights[1],
                                                   state[0][0]);
                                     }}};
  const std::size_t programs = contenders.size();
  const std::vector<std::string> flags =
      quick ? std::vector<std::string>{""} : std::vector<std::string>{"", "-march=x86-64-v3"};
  const auto add = [&](const std::string& name, const Graph& graph) {
    for (const std::string& flag : flags) {
      const std::string place = folder / std::to_string(contenders.size());
      const Program program(graph, place, flag);
      require_close(program(x), evaluated(graph, x));
      contenders.push_back({name + (flag.empty() ? "" : ", AVX2"), [=] { program(x); }});
    }
  };
  add("dense program", dense);
  for (const auto& [form, factor] : ways) {
    char name[64];
    std::snprintf(name, sizeof name, "packed program, %s, %g times fewer",
                  std::string(Words<doped::Form>::words[static_cast<std::size_t>(form)]).c_str(), factor);
    add(name, doped_lstm(hidden, form, factor));
  }
  const std::vector<Times> found = contest(contenders, quick ? 1 : 300);
  char title[80];
  std::snprintf(title, sizeof title, "a step of %lld cells, batch 1, a sample of %lld steps",
                static_cast<long long>(hidden), static_cast<long long>(steps));
  print(title, "us", 1e-6, steps, contenders, found);
  const auto best = [&](std::size_t i) { return percentile(found[i].cpu, 0.2); };
  const double libtorch = std::min({best(0), best(1)});
  for (std::size_t i = programs; i < contenders.size(); ++i)
    std::printf(
        "  %-44s %5.2f times as fast as LibTorch, %5.2f as its products alone, %5.2f as the dense program\n",
        contenders[i].name.c_str(), libtorch / best(i), best(2) / best(i),
        best(programs + (i - programs) % flags.size()) / best(i));
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  using namespace trainyard::bench;
  using doped::Form;
  const Arguments given(argc, argv);
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  if (given.quick) {
    compare(32, {{Form::kp, 10}}, true);
    return 0;
  }
  for (const std::int64_t hidden : {128, 256, 512})
    compare(
        hidden,
        {{Form::kp, 10}, {Form::kp, 25}, {Form::lmf, 10}, {Form::lmf, 25}, {Form::hmd, 10}, {Form::hmd, 25}},
        false);
  compare(650, {{Form::kp, 10}, {Form::kp, 25}}, false);  // whose gates have 2600 x 1300 weights
}
