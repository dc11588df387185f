// The executor hfta: convolutions of several models in each of its ways, from whose times it chooses, and whole steps of
// an array, its passes compiled and by LibTorch, against the same models one after another under `compiled` and `eager`, and in two
// processes. --two-threads: each with two, not one.
//   trainyard bench hfta [--quick] [--two-threads] [convolutions | mlp | cnn | operators | one]
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>

#include <deque>
#include <filesystem>
#include <map>
#include <memory>

#include "core/engine/train/memory.hpp"
#include "plugins/executor/hfta/convolution.hpp"
#include "tools/bench/arguments.hpp"
#include "tools/bench/faster.hpp"
#include "tools/bench/ours.hpp"
#include "tools/bench/peer.hpp"

namespace trainyard::bench {
namespace {

using at::Tensor;

/// A convolution of B models, in an array or of each by itself.
struct Layer {
  std::int64_t members, samples, in, out, size, kernel;
  bool shared;

  hfta::ConvolutionShape shape() const {
    return {.strides = {1, 1}, .dilations = {1, 1}, .padding = {kernel / 2, kernel / 2}};
  }
  double work() const {  // products of a pass
    return static_cast<double>(members * samples * in * out * size * size * kernel * kernel);
  }
};

/// Forward and backward, with gradients of the input where it has some.
class Convolutions {
 public:
  explicit Convolutions(const Layer& layer) : layer_(layer) {
    const std::int64_t members = layer.members;
    weight_ = at::randn({members, layer.out, layer.in, layer.kernel, layer.kernel}).requires_grad_();
    bias_ = at::randn({members, layer.out}).requires_grad_();
    const std::int64_t channels = layer.shared ? layer.in : members * layer.in;
    x_ = at::randn({layer.samples, channels, layer.size, layer.size}).requires_grad_(!layer.shared);
    root_ = at::randn({layer.samples, members * layer.out, layer.size, layer.size});
    for (std::int64_t b = 0; b < members; ++b) {
      weights_.push_back(weight_[b].detach().clone().requires_grad_());
      biases_.push_back(bias_[b].detach().clone().requires_grad_());
      const auto mine = [&](const Tensor& all) { return all.detach().chunk(members, 1)[b].contiguous(); };
      xs_.push_back(layer.shared ? x_ : mine(x_).requires_grad_());
      roots_.push_back(mine(root_));
    }
  }

  hfta::Fused input() const { return {x_, layer_.shared ? hfta::Layout::shared : hfta::Layout::channels}; }
  hfta::Convolution choice() const { return hfta::choose_convolution(layer_.shape(), input(), weight_); }

  void array(hfta::Convolution way) {
    const bool apart = way == hfta::Convolution::apart;
    // Members stay apart from one convolution to the next.
    const hfta::Fused x =
        apart && !layer_.shared ? hfta::Fused{.layout = hfta::Layout::apart, .each = xs_} : input();
    const hfta::Fused y = hfta::convolve(way, layer_.shape(), x, weight_, bias_);
    std::vector<Tensor> leaves{weight_, bias_};
    if (!layer_.shared && apart) leaves.insert(leaves.end(), xs_.begin(), xs_.end());
    if (!layer_.shared && !apart) leaves.push_back(x_);
    if (apart)
      torch::autograd::grad(y.each, leaves, roots_);
    else
      torch::autograd::grad({y.tensor}, leaves, {root_});
  }

  void serial() {
    for (std::size_t b = 0; b < weights_.size(); ++b) {
      std::vector<Tensor> leaves{weights_[b], biases_[b]};
      if (!layer_.shared) leaves.push_back(xs_[b]);
      const hfta::ConvolutionShape shape = layer_.shape();
      torch::autograd::grad({at::conv2d(xs_[b], weights_[b], biases_[b], shape.strides, shape.padding)},
                            leaves, {roots_[b]});
    }
  }

 private:
  Layer layer_;
  Tensor weight_, bias_, x_, root_;
  std::vector<Tensor> weights_, biases_, xs_, roots_;
};

/// Times of a line, and by how much the choice is faster than the models one by one.
double measure(const Layer& layer, bool quick) {
  Convolutions all(layer);
  std::vector<Contender> contenders = {
      {"serial", [&] { all.serial(); }},
      {"grouped", [&] { all.array(hfta::Convolution::grouped); }},
      {"apart", [&] { all.array(hfta::Convolution::apart); }},
  };
  if (layer.shared) contenders.push_back({"wide", [&] { all.array(hfta::Convolution::wide); }});
  contenders.push_back({"choice", [&] { all.array(all.choice()); }});
  const std::vector<Times> times =
      contest(contenders, quick ? 1 : std::clamp(static_cast<int>(6e8 / layer.work()), 7, 40));
  const auto milliseconds = [&](std::size_t i) { return 1e3 * percentile(times[i].cpu, 0.2); };
  constexpr const char* names[] = {"grouped", "wide", "apart"};
  const double gain = milliseconds(0) / milliseconds(times.size() - 1);
  std::printf("  %3lld %4lld %4lld %4lld %4lld %2lld %s  %8.3f  %6.2f %6.2f ",
              static_cast<long long>(layer.members), static_cast<long long>(layer.samples),
              static_cast<long long>(layer.in), static_cast<long long>(layer.out),
              static_cast<long long>(layer.size), static_cast<long long>(layer.kernel),
              layer.shared ? "shared" : "own   ", milliseconds(0), milliseconds(0) / milliseconds(1),
              milliseconds(0) / milliseconds(2));
  if (layer.shared)
    std::printf("%6.2f", milliseconds(0) / milliseconds(3));
  else
    std::printf("%6s", "-");
  std::printf("  %-7s %6.2f\n", names[static_cast<int>(all.choice())], gain);
  std::fflush(stdout);
  return gain;
}

struct Size {
  std::int64_t in, out, size, kernel;
  bool shared;
};

void convolutions(bool quick) {
  const std::vector<Size> sizes = {
      {1, 6, 28, 5, true},    {1, 16, 28, 3, true},  {3, 16, 32, 3, true},   {3, 64, 32, 3, true},
      {1, 16, 28, 3, false},  {6, 16, 14, 5, false}, {8, 8, 28, 3, false},   {8, 16, 8, 3, false},
      {16, 16, 8, 3, false},  {16, 32, 4, 3, false}, {16, 32, 14, 3, false}, {32, 32, 14, 3, false},
      {32, 64, 7, 3, false},  {64, 64, 7, 3, false}, {64, 64, 4, 3, false},  {64, 64, 14, 3, false},
      {32, 64, 14, 1, false},
  };
  std::printf(
      "Convolutions of B models, forward and backward, one thread: milliseconds of one model after "
      "another, and how many times as fast the array is\n"
      "    B    N   in  out size  k  input     serial grouped  apart   wide  choice\n");
  double least = 1e9;
  std::string where;
  for (const Size& each : sizes)
    for (const std::int64_t samples : {32, 128})
      for (const std::int64_t members : {2, 4, 8, 16}) {
        const Layer layer{members, samples, each.in, each.out, each.size, each.kernel, each.shared};
        if (layer.work() > (quick ? 1e7 : 1.2e9)) continue;
        least = std::min(least, measure(layer, quick));
      }
  std::printf("  the least of the choice: %.2f of one model after another (bar 0.95)\n", least);
}

/// Members that differ in their learning rates.
std::string members_of(int count) {
  std::string text = "executor.members=[";
  for (int b = 0; b < count; ++b)
    text += (b > 0 ? ", " : "") + ("{ set = [\"optimizer.lr=0.00" + std::to_string(b + 1)) + "\"] }";
  return text + "]";
}

struct Sweep {
  std::string name, title, file;
  std::vector<std::string> sets;
  int steps;  ///< of a chunk: an executor is opened anew for each
};

std::vector<std::string> with(std::vector<std::string> sets, std::vector<std::string> more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

/// A run file of configs/, of which no end comes and nothing is evaluated.
std::vector<std::string> endless(std::vector<std::string> sets) {
  return with({"trainer.max_duration=1000000ep", "trainer.eval_interval=1000000ep",
               "schedule={ type = \"constant\" }",
               "run.threads={ intra_op = " + std::to_string(at::get_num_threads()) + ", inter_op = 1 }"},
              std::move(sets));
}

Sweep digits(std::string name, const std::string& layers, int steps) {
  return {std::move(name), "digits, MLP " + layers + ", batch 32, adamw", "../../configs/digits_mlp.toml",
          endless({"model.layers=" + layers, "data.train.batch_size=32"}), steps};
}

Sweep fashion() {
  const std::string data = TRAINYARD_SOURCE_DIR "/../shared/data";
  const std::vector<std::string> samples = {
      "data={ type = \"premade\", batches = 4, samples = 128, shape = [1, 28, 28], train = { batch_size = "
      "128 }, val = { batch_size = 128 } }"};
  return {"cnn", "Fashion-MNIST, LeNet-5, batch 128, adamw", "../../configs/fashion_mnist_cnn.toml",
          endless(std::filesystem::exists(data) ? std::vector<std::string>{"run.data=" + data} : samples),
          16};
}

std::vector<Sweep> sweeps() {
  return {digits("mlp", "[64, 32, 32, 10]", 1000), digits("mlp", "[64, 128, 10]", 1000), fashion()};
}

constexpr int array_size = 8;

/// An array against the same number of models one after another, and against as many in two processes side by side.
void measure(const Sweep& sweep, const std::string& program, bool quick) {
  const auto array_of = [&](const std::string& passes) {
    return with(sweep.sets, {"executor.type=hfta", members_of(array_size), "executor.passes=" + passes});
  };
  Ours compiled_array(array_of("compiled"), sweep.file), eager_array(array_of("eager"), sweep.file);
  Ours compiled(with(sweep.sets, {"executor.type=compiled"}), sweep.file), eager(sweep.sets, sweep.file);
  const int steps = quick ? 1 : sweep.steps;
  std::vector<Contender> contenders = {
      {"an array of 8, compiled", [&] { compiled_array(steps); }},
      {"an array of 8, eager", [&] { eager_array(steps); }},
      {"8 models one after another, compiled", [&] { compiled(array_size * steps); }},
      {"8 models one after another, eager", [&] { eager(array_size * steps); }},
  };
  const std::vector<std::string> words = with({program, "serve", sweep.file}, sweep.sets);
  std::deque<Peer> processes;
  const bool one_thread = at::get_num_threads() == 1;
  if (one_thread) {
    processes.emplace_back(words);
    processes.emplace_back(words);
    contenders.push_back({"4 and 4 in two processes, eager", [&] {
                            for (Peer& each : processes) each.begin(array_size / 2 * steps);
                            for (Peer& each : processes) each.wait();
                          }});
  }
  const std::vector<Times> times = contest(contenders, quick ? 1 : 15);
  print_faster(sweep.title + (one_thread ? ": one thread each" : ": two threads each"), "the compiled array",
               0, steps, contenders, times);
}

/// Operators that ten steps dispatch, by name, without those that open the executor.
void operators(const Sweep& sweep) {
  Ours array(with(sweep.sets, {"executor.type=hfta", members_of(array_size)}), sweep.file);
  array(2);
  static std::map<std::string, int> calls;
  calls.clear();
  const at::CallbackHandle counter = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
        ++calls[call.name()];
        return nullptr;
      }).scopes({at::RecordScope::FUNCTION}));
  array(11);
  const std::map<std::string, int> eleven = std::exchange(calls, {});
  array(1);
  at::removeCallback(counter);
  for (const auto& [name, count] : eleven) calls[name] = count - calls[name];
  std::erase_if(calls, [](const auto& each) { return each.second == 0; });
  int all = 0;
  std::string text;
  for (const auto& [name, count] : calls) {
    all += count;
    text += "  " + std::to_string(count) + " " + name + "\n";
  }
  std::printf("%s: %d operators in ten steps of an array of 8\n%s", sweep.title.c_str(), all, text.c_str());
}

/// One member is trained plainly.
void one(const Sweep& sweep, bool quick) {
  Ours plain(sweep.sets, sweep.file), member(with(sweep.sets, {"executor.type=hfta"}), sweep.file);
  const int steps = quick ? 1 : sweep.steps;
  const std::vector<Contender> contenders = {{"eager", [&] { plain(steps); }},
                                             {"hfta of one", [&] { member(steps); }}};
  print(("One model: " + sweep.title).c_str(), "us a step", 1e-6, steps, contenders,
        contest(contenders, quick ? 1 : 25));
}

/// The process of a Peer.
int serve(int argc, char** argv) {
  Ours run({argv + 3, argv + argc}, argv[2]);
  for (int steps = 0; std::scanf("%d", &steps) == 1;) {
    run(steps);
    std::printf("done\n");
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  using namespace trainyard::bench;
  std::vector<char*> words(argv, argv + argc);
  const bool two = std::erase_if(words, [](const std::string& word) { return word == "--two-threads"; }) > 0;
  at::set_num_threads(two ? 2 : 1);
  at::manual_seed(1);
  trainyard::train::keep_large_blocks();  // as a run has it
  if (argc > 2 && std::string(argv[1]) == "serve") return serve(argc, argv);
  const Arguments arguments(static_cast<int>(words.size()), words.data());
  if (arguments.wants("convolutions")) convolutions(arguments.quick);
  for (const Sweep& sweep : sweeps()) {
    if (arguments.wants(sweep.name.c_str())) measure(sweep, argv[0], arguments.quick);
    if (arguments.wants("operators")) operators(sweep);
    if (arguments.wants("one")) one(sweep, arguments.quick);
  }
  return 0;
}
