// The model slide against a full softmax of LibTorch in the same process, and its kernels against plain
// loops.
//   trainyard bench slide kernels   active classes, forward and backward: vectors against the same in scalars
//   trainyard bench slide layout    where rows lie, and fetching them ahead
//   trainyard bench slide scaling   a step as the number of classes grows
//   trainyard bench slide speed     a step against that of a full softmax
//   trainyard bench slide threads   a step with two threads
//   trainyard bench slide memory    of the tables
//   trainyard bench slide quality   precision at 1 and recall after each epoch: minutes
#include <memory>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <trainyard/context.hpp>
#include <trainyard/mixins/halves.hpp>
#include <trainyard/model.hpp>
#include <trainyard/optimizer.hpp>

#include "core/engine/train/memory.hpp"
#include "kernels/cpu/row_sets.hpp"
#include "kernels/cpu/rows.hpp"
#include "tests/support/extreme.hpp"
#include "tests/support/plugin.hpp"
#include "tools/bench/arguments.hpp"
#include "tools/bench/contest.hpp"

namespace trainyard::bench {
namespace {

using namespace kernels;
using Floats = std::vector<float>;
using Random = std::mt19937_64;

double best(const Times& times) {
  return percentile(times.cpu, 0);
}

Floats normal(std::size_t count, Random& random) {
  Floats values(count);
  for (float& each : values)
    each = static_cast<float>(static_cast<std::int32_t>(random())) * 0x1p-31f;  // no need to be normal
  return values;
}

// --- kernels and layout

#define TRAINYARD_SCALAR __attribute__((noinline, optimize("O3,no-tree-vectorize,no-tree-slp-vectorize")))

TRAINYARD_SCALAR void scalar_dots(float* out, const float* x, RowMatrix matrix, const std::int64_t* rows,
                                  std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float* const row = matrix.data + rows[i] * matrix.width;
    float sum = 0;
    for (std::int64_t k = 0; k < matrix.width; ++k) sum += x[k] * row[k];
    out[i] = sum;
  }
}

TRAINYARD_SCALAR void scalar_sum(float* out, const float* first, const float* scales, RowMatrix matrix,
                                 const std::int64_t* rows, std::int64_t count) {
  for (std::int64_t k = 0; k < matrix.width; ++k) out[k] = first == nullptr ? 0.0f : first[k];
  for (std::int64_t i = 0; i < count; ++i) {
    const float* const row = matrix.data + rows[i] * matrix.width;
    for (std::int64_t k = 0; k < matrix.width; ++k) out[k] += scales[i] * row[k];
  }
}

/// A layer of many classes, and the active ones of a batch at random.
struct Layer {
  std::int64_t classes, width, samples, active;
  Floats weight, h, logits, scales, gradient_h, gradient_rows;
  std::vector<std::uint16_t> halves;  ///< the upper ones of the weights
  std::vector<std::int64_t> rows, offsets;
  RowUses uses;

  Layer(std::int64_t classes_given, std::int64_t width_given, std::int64_t active_given)
      : classes(classes_given), width(width_given), samples(128), active(active_given) {
    Random random(5);
    weight = normal(static_cast<std::size_t>(classes * width), random);
    for (const float each : weight) halves.push_back(upper_of(each));
    h = normal(static_cast<std::size_t>(samples * width), random);
    scales = normal(static_cast<std::size_t>(samples * active), random);
    logits.resize(scales.size());
    gradient_h.resize(h.size());
    for (std::int64_t s = 0; s <= samples; ++s) offsets.push_back(s * active);
    for (std::int64_t s = 0; s < samples; ++s) {
      for (std::int64_t i = 0; i < active; ++i)
        rows.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(classes)));
      std::sort(rows.end() - active, rows.end());
    }
    uses = uses_of({offsets, rows}, classes);
    gradient_rows.resize(uses.rows.size() * static_cast<std::size_t>(width));
  }
  RowMatrix matrix() const { return {weight.data(), width}; }
  void forward(const RowKernels& kernels) { forward(kernels.dots, matrix()); }
  void backward(const RowKernels& kernels) { backward(kernels, kernels.sum, matrix()); }
  void forward_of_halves(const RowKernels& kernels) {
    forward(kernels.half_dots, HalfMatrix{halves.data(), width});
  }
  void backward_of_halves(const RowKernels& kernels) {
    backward(kernels, kernels.half_sum, HalfMatrix{halves.data(), width});
  }

 private:
  template <class Dots, class Matrix>
  void forward(Dots dots, Matrix weights) {
    for (std::int64_t s = 0; s < samples; ++s)
      dots(logits.data() + s * active, h.data() + s * width, weights, rows.data() + s * active, active);
  }
  template <class Sum, class Matrix>
  void backward(const RowKernels& kernels, Sum sum, Matrix weights) {
    for (std::int64_t s = 0; s < samples; ++s)
      sum(gradient_h.data() + s * width, nullptr, scales.data() + s * active, weights,
          rows.data() + s * active, active);
    for (std::size_t r = 0; r < uses.rows.size(); ++r)
      kernels.sum(gradient_rows.data() + static_cast<std::int64_t>(r) * width, nullptr,
                  scales.data() + uses.offsets[r], {h.data(), width}, uses.sample.data() + uses.offsets[r],
                  uses.offsets[r + 1] - uses.offsets[r]);
  }
};

void kernels_part(bool quick) {
  Layer layer(quick ? 5'000 : 670'091, 128, quick ? 100 : 1000);
  const RowKernels scalar{scalar_dots, scalar_sum, nullptr, nullptr};
  std::vector<Contender> contenders;
  const auto add = [&](const char* name, const RowKernels& kernels) {
    contenders.push_back({name, [&layer, kernels] {
                            layer.forward(kernels);
                            layer.backward(kernels);
                          }});
  };
  add("scalar", scalar);
  add("portable, vectors of 16 bytes", row_kernels(Isa::portable));
  if (supported(Isa::avx2)) add("AVX2", row_kernels(Isa::avx2));
  if (supported(Isa::avx512)) add("AVX-512", row_kernels(Isa::avx512));
  const std::size_t whole = contenders.size() - 1;
  contenders.push_back({"the same, weights in halves", [&layer] {
                          layer.forward_of_halves(row_kernels());
                          layer.backward_of_halves(row_kernels());
                        }});
  const std::vector<Times> times = contest(contenders, quick ? 1 : 10);
  print("Active classes forward and backward, 670,091 classes, width 128, 128 samples of 1,000", "ms", 1e-3,
        1, contenders, times);
  std::printf(
      "  the fastest set is %.1f times as fast as scalars (bar 6), in halves %.2f times that (bar 1.1)\n",
      best(times[0]) / best(times[whole]), best(times[whole]) / best(times.back()));
}

void layout_part(bool quick) {
  Layer layer(quick ? 5'000 : 670'091, 128, quick ? 100 : 1000);
  const RowKernels& kernels = row_kernels();
  // An object a class with its weights in a vector of its own, made in no order.
  struct Neuron {
    Floats weights;
    float bias = 0;
  };
  std::vector<std::unique_ptr<Neuron>> neurons(static_cast<std::size_t>(layer.classes));
  std::vector<std::size_t> order(neurons.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), Random(3));
  for (const std::size_t i : order) {
    const auto begin = layer.weight.begin() + static_cast<std::ptrdiff_t>(i) * layer.width;
    neurons[i] = std::make_unique<Neuron>(Neuron{Floats(begin, begin + layer.width)});
  }
  const auto one_by_one = [&layer, &kernels](auto&& row_of) {
    constexpr std::int64_t zero = 0;
    for (std::int64_t s = 0; s < layer.samples; ++s)
      for (std::int64_t i = s * layer.active; i < (s + 1) * layer.active; ++i)
        kernels.dots(layer.logits.data() + i, layer.h.data() + s * layer.width,
                     {row_of(layer.rows[static_cast<std::size_t>(i)]), layer.width}, &zero, 1);
  };
  const std::vector<Contender> contenders{
      {"an object a class",
       [&] {
         one_by_one([&](std::int64_t row) { return neurons[static_cast<std::size_t>(row)]->weights.data(); });
       }},
      {"one array",
       [&] { one_by_one([&](std::int64_t row) { return layer.weight.data() + row * layer.width; }); }},
      {"one array, rows fetched ahead", [&] { layer.forward(kernels); }}};
  const std::vector<Times> times = contest(contenders, quick ? 1 : 15);
  print("Active classes forward, 670,091 classes, width 128, 128 samples of 1,000", "ms", 1e-3, 1, contenders,
        times);
  std::printf("  one array is %.2f times as fast (bar 1.4), with rows fetched ahead %.2f (bar 2)\n",
              best(times[0]) / best(times[1]), best(times[0]) / best(times[2]));
}

// --- whole steps

struct Case {
  test::ExtremeData::Shape data;
  std::int64_t hidden = 128, active = 1000, batch = 128;
  std::string output = "sampled", hash = "simhash", mode = "deterministic", precision = "fp32";
  std::int64_t k = 9, l = 30;
  double lr = 1e-3;
  bool exact = false;  ///< whether lazy_adam also updates the rows that have no gradient
};

class Training {
 public:
  Training(const Case& what, std::uint64_t seed)
      : case_(what), optimizer_("lazy_adam", test::table({{"lr", what.lr}, {"exact", what.exact}})) {
    test::ExtremeData data(what.data, 1);
    Table rehash = test::table({{"every_steps", 50}, {"growth", 0.0}});
    Table options = test::table({{"hidden", what.hidden},
                                 {"output", what.output},
                                 {"hash", what.hash},
                                 {"k", what.k},
                                 {"l", what.l},
                                 {"active", what.active},
                                 {"min_active", what.active},
                                 {"mode", what.mode},
                                 {"precision", what.precision}});
    options.set("rehash", rehash);
    network_ = test::make<Model>("slide", options)->build({data.schema(), seed});
    Optimizer& optimizer = optimizer_.plugin();
    optimizer.common.lr = what.lr;
    optimizer.open(make_groups(network_->parameters(), optimizer.common));
  }
  void step(const Batch& batch) {
    Context context(*network_);
    optimizer_.fire(context);
    const at::Tensor output = network_->forward(batch, {.training = true, .step = step_++});
    if (output.layout() == at::kSparseCsr)
      test::sparse_softmax_backward(output, batch.target);
    else
      at::cross_entropy_loss(output, batch.target.flatten()).backward();
    for (ParamGroup& group : optimizer_.plugin().groups()) group.lr = case_.lr;
    optimizer_.plugin().step();
    for (const NamedTensor& each : network_->parameters())
      at::Tensor(each.tensor).mutable_grad() = at::Tensor();
  }
  at::Tensor evaluate(const Batch& batch) {
    const at::NoGradGuard no_grad;
    return network_->forward(batch, {});
  }
  /// Of the ten largest logits but the label's, the share that a training pass would compute.
  double recall(const Batch& batch) {
    const at::NoGradGuard no_grad;
    const at::Tensor active = network_->forward(batch, {.training = true, .step = step_});
    at::Tensor logits = evaluate(batch).scatter(1, batch.target, -1e30);
    const at::Tensor mask = at::zeros(logits.sizes(), at::kBool);
    const at::Tensor offsets = active.crow_indices(), columns = active.col_indices();
    for (std::int64_t s = 0; s < batch.size(); ++s)
      at::Tensor(mask[s]).index_fill_(
          0, columns.slice(0, offsets[s].item<std::int64_t>(), offsets[s + 1].item<std::int64_t>()), true);
    return mask.gather(1, std::get<1>(logits.topk(10, 1))).to(at::kFloat).mean().item<double>();
  }
  Network& network() { return *network_; }

 private:
  /// A step begins.
  struct Context final : StepContext {
    explicit Context(Network& network) {
      network_ = &network;
      event_ = Event::batch_start;
    }
  };

  Case case_;
  std::unique_ptr<Network> network_;
  test::Subscribed<Optimizer> optimizer_;
  std::uint64_t step_ = 0;
};

std::vector<Batch> batches_of(const Case& what, int count, std::uint64_t seed = 2) {
  test::ExtremeData data(what.data, seed);
  std::vector<Batch> batches;
  for (int i = 0; i < count; ++i) batches.push_back(data.batch(what.batch));
  return batches;
}

/// Steps that belong to one contender: each chunk is `count` of them on the same batches.
Contender contender(const std::string& name, const Case& what, const std::vector<Batch>& batches) {
  const auto training = std::make_shared<Training>(what, 3);
  return {name, [training, &batches] {
            for (const Batch& batch : batches) training->step(batch);
          }};
}

void scaling_part(bool quick) {
  constexpr int steps = 10;
  std::printf(
      "A step of 128 samples of 1,000 active classes, width 128, random hash (no tables): ms, by classes\n");
  std::printf("  %-36s", "");
  const std::vector<std::int64_t> sizes =
      quick ? std::vector<std::int64_t>{2000, 4000} : std::vector<std::int64_t>{25'000, 100'000, 400'000};
  for (const std::int64_t classes : sizes) std::printf(" %9lld", static_cast<long long>(classes));
  std::printf("    growth\n");
  struct Row {
    const char *name, *output, *hash;
    bool exact;
    int steps;
  };
  for (const Row& row : {Row{"sampled, touched rows", "sampled", "random", false, steps},
                         Row{"sampled, simhash, touched rows", "sampled", "simhash", false, 50},
                         Row{"sampled, exact", "sampled", "random", true, steps},
                         Row{"full softmax, Adam", "full", "random", true, 2}}) {
    std::printf("  %-36s", row.name);
    std::vector<double> found;
    for (const std::int64_t classes : sizes) {
      Case what{.data = {.classes = classes, .features = 50'000}, .output = row.output, .hash = row.hash};
      what.exact = row.exact;
      if (quick) what.active = 100;
      const std::vector<Batch> batches = batches_of(what, row.steps);
      const std::vector<Times> times = contest({contender(row.name, what, batches)}, quick ? 1 : 3);
      found.push_back(best(times[0]) / row.steps * 1e3);
      std::printf(" %9.2f", found.back());
      std::fflush(stdout);
    }
    std::printf("   %6.2f x\n", found.back() / found.front());
  }
}

/// Seconds that the tables take: the first pass makes them, and the second finds them made.
double rebuild_seconds(const Case& what, const Batch& batch) {
  Training training(what, 3);
  const at::NoGradGuard no_grad;
  const auto pass = [&] {
    const double start = thread_seconds();
    training.network().forward(batch, {.training = true, .step = 0});
    return thread_seconds() - start;
  };
  const double first = pass();
  return first - pass();
}

void speed_at(const char* title, const Case& what, int steps, int rounds, double bar) {
  const std::vector<Batch> batches = batches_of(what, steps);
  Case full = what, exact = what, random = what, halves = what;
  full.output = "full";
  full.exact = exact.exact = true;  // Adam's own update of all rows, of the input layer as well
  halves.precision = "bf16";
  random.hash = "random";
  const std::vector<Contender> contenders{contender("full softmax, Adam", full, batches),
                                          contender("slide, lazy_adam of touched rows", what, batches),
                                          contender("slide, lazy_adam exact", exact, batches),
                                          contender("random classes, touched rows", random, batches),
                                          contender("slide, weights in halves", halves, batches)};
  const std::vector<Times> times = contest(contenders, rounds);
  print(title, "ms a step", 1e-3, steps, contenders, times);
  std::printf(
      "  with the same optimizer, Adam of all rows, slide is %.2f times as fast as the full softmax (bar "
      "%.1f);"
      " with that of touched rows %.2f, in halves %.2f\n",
      best(times[0]) / best(times[2]), bar, best(times[0]) / best(times[1]), best(times[0]) / best(times[4]));
  std::printf("  the tables take %.0f ms to make, which the pass waits for\n",
              1e3 * rebuild_seconds(what, batches.front()));
}

void speed_part(bool quick) {
  // 50 steps, as the tables stand.
  Case small{.hidden = 64, .active = 300}, large{.data = {.classes = 200'000, .features = 100'000}};
  if (quick) small.data = large.data = {.classes = 2000, .features = 3000};
  speed_at("30,000 classes, width 64, 300 active, tables made every 50 steps", small, quick ? 2 : 50,
           quick ? 1 : 3, 2.5);
  speed_at("200,000 classes, width 128, 1,000 active", large, quick ? 2 : 50, quick ? 1 : 1, 5.0);
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What several threads do to the result: nothing where sums are in order, little where they are not.
void threads_quality(bool quick) {
  Case what{.hidden = 64, .active = 300};
  if (quick) what.data = {.classes = 500, .features = 1000};
  test::ExtremeData data(what.data, 1);
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < (quick ? 20 : 120'000 / what.batch); ++i)
    batches.push_back(data.batch(what.batch));
  const Batch test_batch = data.batch(quick ? 200 : 4000);
  const int epochs = quick ? 1 : 4;
  std::printf("%lld classes, %lld active, %d epochs: precision at 1 with all logits\n",
              static_cast<long long>(what.data.classes), static_cast<long long>(what.active), epochs);
  std::vector<at::Tensor> logits;
  std::vector<double> found;
  for (const auto& [mode, threads] :
       {std::pair<const char*, int>{"deterministic", 1}, {"deterministic", 2}, {"hogwild", 2}}) {
    what.mode = mode;
    at::set_num_threads(threads);
    Training training(what, 1);
    for (int epoch = 0; epoch < epochs; ++epoch)
      for (const Batch& batch : batches) training.step(batch);
    logits.push_back(training.evaluate(test_batch));
    found.push_back(
        logits.back().argmax(1).eq(test_batch.target.flatten()).to(at::kDouble).mean().item<double>());
    std::printf(
        "  %-14s %d threads %.4f%s\n", mode, threads, found.back(),
        logits.size() == 2 ? logits[0].equal(logits[1]) ? ", logits equal to the bit" : ", OTHER BITS" : "");
    std::fflush(stdout);
  }
  std::printf("  hogwild against in order: %+.2f points (bar -0.5)\n", 100 * (found[2] - found[0]));
  at::set_num_threads(1);
}

void threads_part(bool quick) {
  Case what{.data = {.classes = quick ? 2000 : 200'000, .features = 100'000}};
  const std::vector<Batch> batches = batches_of(what, quick ? 2 : 20);
  std::printf("200,000 classes, 1,000 active, by the clock, ms a step\n");
  for (const char* const mode : {"deterministic", "hogwild"}) {
    what.mode = mode;
    double seconds[2] = {1e9, 1e9};
    for (int round = 0; round < (quick ? 1 : 3); ++round)
      for (const int threads : {1, 2}) {
        at::set_num_threads(threads);
        Training training(what, 3);
        training.step(batches.front());
        const double start = wall_seconds();
        for (const Batch& batch : batches) training.step(batch);
        seconds[threads - 1] = std::min(seconds[threads - 1], wall_seconds() - start);
      }
    const double in_ms = 1e3 / static_cast<double>(batches.size());
    std::printf("  %-14s one thread %8.2f, two %8.2f: %.2f times as fast (bar 1.7)\n", mode,
                seconds[0] * in_ms, seconds[1] * in_ms, seconds[0] / seconds[1]);
  }
  at::set_num_threads(1);
  threads_quality(quick);
}

void memory_part(bool quick) {
  Case what{.data = {.classes = quick ? 2000 : 670'091, .features = 1000}, .hidden = 16, .k = 9, .l = 50};
  Training training(what, 3);
  double bytes = 0;
  for (const NamedTensor& each : training.network().buffers())
    bytes += static_cast<double>(each.tensor.nbytes());
  std::printf("Tables of 670,091 classes, L = 50, 512 buckets: %.3f GB (bar 0.22)\n", bytes * 1e-9);
}

// --- quality

void quality_part(bool quick) {
  const int seeds = quick ? 1 : 3, epochs = quick ? 1 : 4;
  Case base{.hidden = 64, .active = 300};
  std::int64_t train = 120'000;
  if (quick) {
    base.data = {.classes = 500, .features = 1000};
    train = 2560;
  }
  Case random = base, full = base, halves = base, hogwild = base;
  random.hash = "random";
  full.output = "full";
  halves.precision = "bf16";
  hogwild.mode = "hogwild";
  std::printf("Precision at 1 with all logits after each epoch, seconds, recall of the ten largest logits\n");
  for (int seed = 1; seed <= seeds; ++seed) {
    test::ExtremeData data(base.data, static_cast<std::uint64_t>(seed));
    std::vector<Batch> batches;
    for (std::int64_t i = 0; i < train / base.batch; ++i) batches.push_back(data.batch(base.batch));
    const Batch test_batch = data.batch(quick ? 200 : 4000);
    for (const auto& [name, what] : {std::pair<const char*, const Case&>{"simhash", base},
                                     {"random", random},
                                     {"full", full},
                                     {"bf16", halves},
                                     {"hogwild, two threads", hogwild}}) {
      at::set_num_threads(what.mode == "hogwild" ? 2 : 1);
      Training training(what, static_cast<std::uint64_t>(seed));
      std::vector<std::size_t> order(batches.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::printf("  seed %d %-20s", seed, name);
      double seconds = 0;
      for (int epoch = 0; epoch < epochs; ++epoch) {
        std::shuffle(order.begin(), order.end(), Random(static_cast<std::uint64_t>(epoch)));
        const double start = wall_seconds();
        for (const std::size_t i : order) training.step(batches[i]);
        seconds += wall_seconds() - start;
        const at::Tensor right = training.evaluate(test_batch).argmax(1).eq(test_batch.target.flatten());
        std::printf("  %.4f", right.to(at::kDouble).mean().item<double>());
        std::fflush(stdout);
      }
      std::printf("   %6.1f s", seconds);
      if (what.output == "sampled")
        std::printf("   recall %.4f, of random classes %.4f", training.recall(batches.front()),
                    static_cast<double>(what.active) / static_cast<double>(what.data.classes));
      std::printf("\n");
    }
  }
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  using namespace trainyard::bench;
  trainyard::train::keep_large_blocks();
  at::set_num_threads(1);
  const Arguments given(argc, argv);
  const std::pair<const char*, void (*)(bool)> parts[] = {
      {"kernels", kernels_part}, {"layout", layout_part}, {"scaling", scaling_part}, {"speed", speed_part},
      {"threads", threads_part}, {"memory", memory_part}, {"quality", quality_part}};
  for (const auto& [name, run] : parts)
    if (given.wants(name)) run(given.quick);
}
