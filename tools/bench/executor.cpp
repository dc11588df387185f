// Whole training steps of the executors `eager` and `compiled` against PyTorch, eager and compiled, on one thread:
// trainyard bench executor [MODEL...]. PyTorch is that of tools/bench/peers/whole; without it the host is measured
// alone. --memory: what a step needs on top of model and data.
#include <ATen/ATen.h>
#include <malloc.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "tools/bench/by_hand.hpp"
#include "tools/bench/faster.hpp"
#include "tools/bench/ours.hpp"
#include "tools/bench/peer.hpp"

namespace trainyard::bench {
namespace {

struct Case {
  std::string name, title;
  std::vector<std::string> sets;
  int steps;                 ///< of a chunk
  std::int64_t by_hand = 0;  ///< batch of a multilayer perceptron with Adam that is trained by hand as well
};

std::vector<std::string> samples(int batch, const std::string& shape) {
  return {"data.samples=" + std::to_string(batch), "data.train.batch_size=" + std::to_string(batch),
          "data.shape=" + shape};
}

Case made(std::string name, std::string title, std::vector<std::string> model, std::vector<std::string> data,
          int steps, std::int64_t by_hand = 0) {
  model.insert(model.end(), data.begin(), data.end());
  return {std::move(name), std::move(title), std::move(model), steps, by_hand};
}

std::vector<Case> cases() {
  const std::vector<std::string> small = {"model.layers=[64, 128, 128, 10]", "optimizer.type=adam"};
  std::vector<std::string> tokens = samples(32, "[128]");
  tokens.insert(tokens.end(), {"data.tokens=true", "data.classes=65"});
  return {
      made("lenet", "LeNet-5, 1x28x28, batch 128, adamw", {"model.type=lenet", "optimizer.weight_decay=0.01"},
           samples(128, "[1, 28, 28]"), 3),
      made("resnet20", "ResNet-20, 3x32x32, batch 128, sgd with Nesterov's momentum",
           {"model.type=resnet", "optimizer.type=sgd", "optimizer.lr=0.1", "optimizer.momentum=0.9",
            "optimizer.nesterov=true"},
           samples(128, "[3, 32, 32]"), 1),
      made("gpt", "GPT 4 x 128, 128 tokens, batch 32, adamw",
           {"model.type=gpt", "optimizer.weight_decay=0.01"}, tokens, 1),
      made("mlp", "MLP 784-256-128-10, batch 128, adamw",
           {"model.layers=[784, 256, 128, 10]", "optimizer.weight_decay=0.01"}, samples(128, "[784]"), 20),
      made("small8", "MLP 64-128-128-10, batch 8, adam", small, samples(8, "[64]"), 200, 8),
      made("small32", "MLP 64-128-128-10, batch 32, adam", small, samples(32, "[64]"), 100, 32),
      made("small128", "MLP 64-128-128-10, batch 128, adam", small, samples(128, "[64]"), 50, 128),
  };
}

/// A process of PyTorch.
std::unique_ptr<Peer> torch_process(const std::string& python, const std::string& model,
                                    const std::string& way) {
  return std::make_unique<Peer>(
      std::vector<std::string>{python, TRAINYARD_SOURCE_DIR "/tools/bench/python/executor.py", model, way});
}

/// A line of /proc/self/status, in MiB.
double memory(const char* line) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kilobytes = 0.0;
    if (word == line && status >> kilobytes) return kilobytes / 1024.0;
  }
  return 0.0;
}

/// What steps add at most to the memory of a process that has the model and the data, in MiB.
double memory_of(const Case& each, const std::string& executor) {
  std::vector<std::string> sets = each.sets;
  sets.push_back("executor.type=" + executor);
  Ours run(sets, "executor.toml");
  malloc_trim(0);
  const double before = memory("VmRSS:");
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak begins anew
  run(4);
  return memory("VmHWM:") - before;
}

/// Each in a process of its own.
void compare_memory(const Case& each) {
  const std::array<std::string, 2> executors = {"eager", "compiled"};
  std::array<double, 2> found{};
  for (std::size_t i = 0; i < 2; ++i)
    found[i] = std::stod(run(
        {std::filesystem::read_symlink("/proc/self/exe").string(), "--memory-of", each.name, executors[i]}));
  std::printf("%s, memory of a step: eager %.1f MiB, compiled %.1f MiB, %.2fx\n", each.title.c_str(),
              found[0], found[1], found[1] / found[0]);
  std::fflush(stdout);
}

void measure(const Case& each, const std::string& python, int rounds) {
  std::vector<std::string> sets = each.sets;
  sets.push_back("executor.type=eager");
  Ours eager(sets, "executor.toml");
  sets.back() = "executor.type=compiled";
  Ours compiled(sets, "executor.toml");
  std::vector<Contender> contenders = {{"host, eager", [&] { eager(each.steps); }},
                                       {"host, compiled", [&] { compiled(each.steps); }}};
  std::unique_ptr<ByHand> by_hand;
  if (each.by_hand > 0) {
    const Sample batch{at::randn({each.by_hand, 64}), at::randint(10, {each.by_hand}, at::kLong)};
    by_hand = std::make_unique<ByHand>(ByHand::Optimizer::adam, eager.weights(), [batch] { return batch; });
    contenders.push_back({"LibTorch by hand, fused Adam", [&] { (*by_hand)(each.steps); }});
  }
  std::unique_ptr<Peer> theirs, theirs_compiled;
  if (!python.empty()) {
    theirs = torch_process(python, each.name, "eager");
    theirs_compiled = torch_process(python, each.name, "compile");
    contenders.push_back({"PyTorch, eager, fused optimizer", [&] { (*theirs)(each.steps); }});
    contenders.push_back({"PyTorch, torch.compile", [&] { (*theirs_compiled)(each.steps); }});
    for (int i = 0; i < 4; ++i) (*theirs_compiled)(1);
  }
  const std::vector<Times> times = contest(contenders, rounds);
  print_faster(each.title + ", one thread", "compiled", 1, each.steps, contenders, times);
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  using namespace trainyard::bench;
  at::set_num_threads(1);
  setenv("OMP_NUM_THREADS", "1", 1);
  const char* deps = std::getenv("TRAINYARD_DEPS");
  std::string python =
      (deps != nullptr ? std::string(deps) : TRAINYARD_SOURCE_DIR "/.deps") + "/peers/bin/python";
  std::vector<std::string> names(argv + 1, argv + argc);
  const bool quick = std::erase(names, "--quick") > 0;
  const bool alone = std::erase(names, "--alone") > 0;
  const bool of_memory = std::erase(names, "--memory") > 0;
  if (quick || alone || !std::filesystem::exists(python)) python.clear();
  if (names.size() == 3 && names[0] == "--memory-of") {
    for (const Case& each : cases())
      if (each.name == names[1]) std::printf("%f\n", memory_of(each, names[2]));
    return 0;
  }
  for (const Case& each : cases()) {
    if (!names.empty() && std::find(names.begin(), names.end(), each.name) == names.end()) continue;
    if (of_memory)
      compare_memory(each);
    else
      measure(each, python, quick ? 1 : each.steps > 1 ? 60 : 15);
  }
  return 0;
}
