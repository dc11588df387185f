// Whole training steps of the executors `eager` and `compiled` against PyTorch, eager and compiled:
// trainyard bench executor [MODEL...]. PyTorch is that of tools/bench/peers/whole, IPEX that of tools/bench/peers/ipex;
// without them the host is measured alone. --two-threads: each with two, not one. --bf16: in mixed precision as well.
// --memory: what a step needs on top of model and data.
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
      made("lstm", "LSTM 2 x 256, 128 tokens, batch 32, adamw",
           {"model.type=lstm", "model.n_layer=2", "model.hidden=256", "optimizer.weight_decay=0.01"}, tokens,
           1),
      made("mlp", "MLP 784-256-128-10, batch 128, adamw",
           {"model.layers=[784, 256, 128, 10]", "optimizer.weight_decay=0.01"}, samples(128, "[784]"), 20),
      made("small8", "MLP 64-128-128-10, batch 8, adam", small, samples(8, "[64]"), 200, 8),
      made("small32", "MLP 64-128-128-10, batch 32, adam", small, samples(32, "[64]"), 100, 32),
      made("small128", "MLP 64-128-128-10, batch 128, adam", small, samples(128, "[64]"), 50, 128),
  };
}

/// A process of PyTorch.
std::unique_ptr<Peer> torch_process(const std::string& python, const std::string& model,
                                    const std::string& way, const std::string& precision) {
  return std::make_unique<Peer>(
      std::vector<std::string>{python, TRAINYARD_SOURCE_DIR "/tools/bench/python/executor.py", model, way,
                               precision, std::to_string(at::get_num_threads())});
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
double memory_of(const Case& each, const std::string& executor, const std::string& precision) {
  std::vector<std::string> sets = each.sets;
  sets.push_back("executor.type=" + executor);
  sets.push_back("trainer.precision=" + precision);
  Ours run(sets, "executor.toml");
  malloc_trim(0);
  const double before = memory("VmRSS:");
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak begins anew
  run(4);
  return memory("VmHWM:") - before;
}

/// Each in a process of its own.
void compare_memory(const Case& each, bool halves) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto found = [&](const char* executor, const char* precision) {
    return std::stod(run({program, "--memory-of", each.name, executor, precision}));
  };
  const double eager = found("eager", "fp32"), compiled = found("compiled", "fp32");
  std::printf("%s, memory of a step: eager %.1f MiB, compiled %.1f MiB, %.2fx", each.title.c_str(), eager,
              compiled, compiled / eager);
  if (halves) {
    const double mixed = found("compiled", "bf16-mixed");
    std::printf("; compiled, bf16-mixed, %.1f MiB, %.2fx", mixed, mixed / eager);
  }
  std::printf("\n");
  std::fflush(stdout);
}

/// A way to train with PyTorch, and the Python that has it; without one it is left out.
struct TorchWay {
  const char *way, *title;
  std::string python;
};

void measure(const Case& each, const std::vector<TorchWay>& torch_ways, int rounds, bool halves) {
  std::vector<std::string> precisions = {"fp32"};
  if (halves) precisions.emplace_back("bf16-mixed");
  std::vector<std::unique_ptr<Ours>> ours;
  std::vector<std::unique_ptr<Peer>> theirs;
  std::vector<Contender> contenders;
  for (const std::string& precision : precisions)
    for (const char* executor : {"eager", "compiled"}) {
      std::vector<std::string> sets = each.sets;
      sets.push_back("trainer.precision=" + precision);
      sets.push_back(std::string("executor.type=") + executor);
      sets.push_back("run.threads.intra_op=" + std::to_string(at::get_num_threads()));
      Ours* const run = ours.emplace_back(std::make_unique<Ours>(sets, "executor.toml")).get();
      contenders.push_back({std::string("host, ") + executor + (precision == "fp32" ? "" : ", bf16-mixed"),
                            [run, &each] { (*run)(each.steps); }});
    }
  std::unique_ptr<ByHand> by_hand;
  if (each.by_hand > 0) {
    const Sample batch{at::randn({each.by_hand, 64}), at::randint(10, {each.by_hand}, at::kLong)};
    by_hand =
        std::make_unique<ByHand>(ByHand::Optimizer::adam, ours.front()->weights(), [batch] { return batch; });
    contenders.push_back({"LibTorch by hand, fused Adam", [&] { (*by_hand)(each.steps); }});
  }
  for (const std::string& precision : precisions)
    for (const auto& [way, title, python] : torch_ways) {
      if (!std::filesystem::exists(python)) continue;
      Peer* const peer = theirs.emplace_back(torch_process(python, each.name, way, precision)).get();
      contenders.push_back(
          {title + std::string(precision == "fp32" ? "" : ", bf16"), [peer, &each] { (*peer)(each.steps); }});
      if (std::string_view(way) == "compile")
        for (int i = 0; i < 4; ++i) (*peer)(1);
    }
  const std::vector<Times> times = contest(contenders, rounds);
  const std::string threads = at::get_num_threads() == 1 ? ", one thread" : ", two threads";
  print_faster(each.title + threads, "compiled", halves ? 3 : 1, each.steps, contenders, times);
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  using namespace trainyard::bench;
  const char* deps = std::getenv("TRAINYARD_DEPS");
  const std::string folder = deps != nullptr ? deps : TRAINYARD_SOURCE_DIR "/.deps";
  const std::string python = folder + "/peers/bin/python";
  std::vector<TorchWay> torch_ways = {{"eager", "PyTorch, eager, fused optimizer", python},
                                      {"compile", "PyTorch, torch.compile", python},
                                      {"ipex", "IPEX", folder + "/ipex/bin/python"}};
  std::vector<std::string> names(argv + 1, argv + argc);
  const bool quick = std::erase(names, "--quick") > 0;
  const bool alone = std::erase(names, "--alone") > 0;
  const bool of_memory = std::erase(names, "--memory") > 0;
  const bool halves = std::erase(names, "--bf16") > 0;
  const int threads = std::erase(names, "--two-threads") > 0 ? 2 : 1;
  at::set_num_threads(threads);
  setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 1);
  if (quick || alone) torch_ways.clear();
  if (names.size() == 4 && names[0] == "--memory-of") {
    for (const Case& each : cases())
      if (each.name == names[1]) std::printf("%f\n", memory_of(each, names[2], names[3]));
    return 0;
  }
  for (const Case& each : cases()) {
    if (!names.empty() && std::find(names.begin(), names.end(), each.name) == names.end()) continue;
    if (of_memory)
      compare_memory(each, halves);
    else
      measure(each, torch_ways, quick ? 1 : each.steps > 1 ? 60 : 15, halves);
  }
  return 0;
}
