// The loop of the host against LibTorch loops written by hand: MLP 64-128-10, batch 64, one thread.
//
// All contenders start from the same weights and train on the same batches in the same order; the loop by hand must have
// the weights of the host after some steps. The first table takes batches made before, so that it compares loops alone; the second
// draws a new order every epoch and gathers every batch from rows in memory.
#include <torch/torch.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "tools/bench/by_hand.hpp"
#include "tools/bench/contest.hpp"
#include "tools/bench/ours.hpp"

namespace trainyard::bench {
namespace {

using at::Tensor;

/// torch::nn and torch::optim as the tutorials write it.
class Stock {
 public:
  Stock(bool adamw, const std::vector<Tensor>& weights) {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < weights.size(); ++i) model_->parameters()[i].copy_(weights[i]);
    if (adamw)
      optimizer_ = std::make_unique<torch::optim::AdamW>(
          model_->parameters(), torch::optim::AdamWOptions(lr).weight_decay(weight_decay));
    else
      optimizer_ = std::make_unique<torch::optim::SGD>(model_->parameters(), torch::optim::SGDOptions(lr));
  }
  void step(const Sample& batch) {
    optimizer_->zero_grad();
    torch::nn::functional::cross_entropy(model_->forward(batch.input), batch.target).backward();
    optimizer_->step();
  }
  std::vector<Tensor> weights() { return model_->parameters(); }

 private:
  torch::nn::Sequential model_{torch::nn::Linear(64, 128), torch::nn::ReLU(), torch::nn::Linear(128, 10)};
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

// --- data
// ----------------------------------------------------------------------------------------------------

Next in_turn(const std::vector<Sample>& batches) {
  return [&batches, i = std::size_t{0}]() mutable -> Sample { return batches[i++ % batches.size()]; };
}

struct Rows {
  Tensor inputs = at::rand({4096, 64});
  Tensor targets = at::randint(10, {4096}, at::kLong);
};

/// A new order every epoch, and index_select: the shortest way to gather by hand.
Next gathered(const Rows& rows) {
  return [&rows, order = Tensor(), at = rows.targets.size(0)]() mutable -> Sample {
    if (at + batch_size > rows.targets.size(0)) {
      order = at::randperm(rows.targets.size(0));
      at = 0;
    }
    const Tensor indices = order.narrow(0, at, batch_size);
    at += batch_size;
    return {rows.inputs.index_select(0, indices), rows.targets.index_select(0, indices)};
  };
}

struct RowSet : torch::data::datasets::Dataset<RowSet> {
  explicit RowSet(const Rows& rows) : rows(rows) {}
  torch::data::Example<> get(std::size_t index) override {
    const auto i = static_cast<std::int64_t>(index);
    return {rows.inputs[i], rows.targets[i]};
  }
  std::optional<std::size_t> size() const override { return static_cast<std::size_t>(rows.targets.size(0)); }
  Rows rows;
};

auto make_stock_loader(const Rows& rows) {
  return torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      RowSet(rows).map(torch::data::transforms::Stack<>()), torch::data::DataLoaderOptions(batch_size));
}

/// torch::data's loader over a data set of tensors, one epoch after another.
class StockLoader {
 public:
  explicit StockLoader(const Rows& rows) : loader_(make_stock_loader(rows)), at_(loader_->begin()) {}
  template <class Use>
  void batches(int count, Use&& use) {
    for (; count > 0; --count, ++at_) {
      if (at_ == loader_->end()) at_ = loader_->begin();
      use(Sample{at_->data, at_->target});
    }
  }

 private:
  decltype(make_stock_loader(Rows())) loader_;
  decltype(loader_->begin()) at_;
};

// --- tables
// --------------------------------------------------------------------------------------------------

/// Rounding of the host's optimizer and LibTorch's differs, and grows with the steps.
void require_equal(const char* who, const std::vector<Tensor>& a, const std::vector<Tensor>& b,
                   double tolerance) {
  double worst = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, (a[i].detach() - b[i].detach()).abs().max().item<double>());
  if (worst <= tolerance) return;
  std::fprintf(stderr, "%s trained other weights than the host: they differ by %g\n", who, worst);
  std::exit(1);
}

std::vector<std::string> idle_hooks(std::vector<std::string> sets) {
  std::string hooks;
  for (int i = 0; i < 10; ++i)
    hooks += (i > 0 ? ", " : "") + ("{ type = \"idle\", id = \"idle" + std::to_string(i) + "\" }");
  sets.push_back("hooks=[" + hooks + "]");
  return sets;
}

void loops_alone(const std::string& optimizer, int rounds, int steps) {
  const bool adamw = optimizer == "adamw";
  const ByHand::Optimizer fused = adamw ? ByHand::Optimizer::adamw : ByHand::Optimizer::sgd;
  std::vector<std::string> sets = {"optimizer.type=" + optimizer};
  if (adamw) sets.push_back("optimizer.weight_decay=" + std::to_string(weight_decay));
  Ours ours(sets), watched(idle_hooks(sets));
  const std::vector<Sample> batches = ours.batches();
  ByHand hand(fused, ours.weights(), in_turn(batches)), again(fused, ours.weights(), in_turn(batches));
  Stock stock(adamw, ours.weights());
  Next next = in_turn(batches);
  const std::vector<Contender> contenders = {
      {"by hand, fused", [&] { hand(steps); }},
      {"by hand, fused, once more (noise)", [&] { again(steps); }},
      {"host", [&] { ours(steps); }},
      {"host, 24 events x 10 empty subscribers", [&] { watched(steps); }},
      {"by hand, torch::nn and torch::optim",
       [&] {
         for (int i = 0; i < steps; ++i) stock.step(next());
       }},
  };
  constexpr int first = 20;
  hand(first);
  ours(first);
  watched(first);
  require_equal("the loop by hand", hand.weights(), ours.weights(), 1e-5);
  const std::vector<Times> times = contest(contenders, rounds);
  require_equal("the watched run", watched.weights(), ours.weights(), 0.0);
  print((optimizer + ", batches made before").c_str(), "us a step", 1e-6, steps, contenders, times);
  std::printf("  host / torch::nn and torch::optim: %.3f   (bar 0.80; host 1.01, with subscribers 1.02)\n\n",
              ratio(times[2], times[4]));
}

void with_data(const std::string& optimizer, int rounds, int steps) {
  const bool adamw = optimizer == "adamw";
  Ours ours({"optimizer.type=" + optimizer, "data.type=synthetic", "data.size=4096", "data.shape=[64]",
             "data.train.shuffle=true"});
  const Rows rows;
  ByHand hand(adamw ? ByHand::Optimizer::adamw : ByHand::Optimizer::sgd, ours.weights(), gathered(rows));
  Stock stock(adamw, ours.weights());
  StockLoader loader(rows);
  const std::vector<Contender> contenders = {
      {"by hand, fused, randperm and index_select", [&] { hand(steps); }},
      {"host, 0 workers", [&] { ours(steps); }},
      {"torch::nn, torch::optim, torch::data",
       [&] { loader.batches(steps, [&](const Sample& batch) { stock.step(batch); }); }},
  };
  const std::vector<Times> times = contest(contenders, rounds);
  print((optimizer + ", batches gathered in a new order every epoch").c_str(), "us a step", 1e-6, steps,
        contenders, times);
  std::printf("  host / torch::nn, torch::optim and torch::data: %.3f\n\n", ratio(times[1], times[2]));
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  using namespace trainyard::bench;
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  const int rounds = quick ? 3 : 150, steps = quick ? 20 : 100;
  at::set_num_threads(1);
  std::printf("MLP 64-128-10, batch 64, one thread; %d rounds of %d steps in turn\n\n", rounds, steps);
  for (const char* optimizer : {"adamw", "sgd"}) loops_alone(optimizer, rounds, steps);
  with_data("adamw", rounds, steps);
}
