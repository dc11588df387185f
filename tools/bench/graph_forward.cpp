// What executing a model as a graph costs over the same model written by hand: forward passes, with and
// without autograd, on the same weights, in interleaved chunks; the ratio of the 20th percentiles.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <exception>
#include <functional>
#include <map>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <trainyard/model.hpp>

#include "support/plugin.hpp"

using namespace trainyard;
using at::Tensor;

namespace {

using Forward = std::function<Tensor(const Tensor&)>;
using Weights = std::map<std::string, Tensor>;

struct Linear {
  Tensor weight, bias;
  Linear(const Weights& w, const std::string& name)
      : weight(w.at(name + ".weight")), bias(w.at(name + ".bias")) {}
  Tensor operator()(const Tensor& x) const { return at::linear(x, weight, bias); }
};

struct BatchNorm {
  Tensor weight, bias, mean, variance;
  BatchNorm(const Weights& w, const std::string& name)
      : weight(w.at(name + ".weight")),
        bias(w.at(name + ".bias")),
        mean(w.at(name + ".running_mean")),
        variance(w.at(name + ".running_var")) {}
  Tensor operator()(const Tensor& x) const {
    return at::batch_norm(x, weight, bias, mean, variance, true, 0.1, 1e-5, true);
  }
};

struct LayerNorm {
  Tensor weight, bias;
  LayerNorm(const Weights& w, const std::string& name)
      : weight(w.at(name + ".weight")), bias(w.at(name + ".bias")) {}
  Tensor operator()(const Tensor& x) const { return at::layer_norm(x, weight.sizes(), weight, bias); }
};

Forward mlp(const Weights& w) {
  const Linear fc1(w, "fc1"), fc2(w, "fc2");
  return [=](const Tensor& x) { return fc2(at::relu(fc1(x))); };
}

Forward lenet(const Weights& w) {
  const Linear conv1(w, "conv1"), conv2(w, "conv2"), fc1(w, "fc1"), fc2(w, "fc2"), fc3(w, "fc3");
  return [=](const Tensor& image) {
    Tensor x = at::conv2d(image, conv1.weight, conv1.bias, 1, 2);
    x = at::max_pool2d(at::relu(x), 2, 2);
    x = at::conv2d(x, conv2.weight, conv2.bias);
    x = at::flatten(at::max_pool2d(at::relu(x), 2, 2), 1);
    return fc3(at::relu(fc2(at::relu(fc1(x)))));
  };
}

struct Block {
  Tensor conv1, conv2;
  BatchNorm bn1, bn2;
  std::int64_t stride;

  Block(const Weights& w, const std::string& name, std::int64_t stride)
      : conv1(w.at(name + ".conv1.weight")),
        conv2(w.at(name + ".conv2.weight")),
        bn1(w, name + ".bn1"),
        bn2(w, name + ".bn2"),
        stride(stride) {}

  Tensor operator()(const Tensor& x) const {
    Tensor y = at::relu(bn1(at::conv2d(x, conv1, {}, stride, 1)));
    y = bn2(at::conv2d(y, conv2, {}, 1, 1));
    if (stride == 1) return at::relu(y + x);
    const std::int64_t added = y.size(1) - x.size(1);
    const Tensor half = x.slice(2, 0, x.size(2), 2).slice(3, 0, x.size(3), 2);
    return at::relu(y + at::constant_pad_nd(half, {0, 0, 0, 0, added / 2, added - added / 2}));
  }
};

Forward resnet20(const Weights& w) {
  std::vector<Block> blocks;
  for (int stage = 1; stage <= 3; ++stage)
    for (int block = 0; block < 3; ++block)
      blocks.emplace_back(w, "layer" + std::to_string(stage) + "." + std::to_string(block),
                          stage > 1 && block == 0 ? 2 : 1);
  const Tensor conv1 = w.at("conv1.weight");
  const BatchNorm bn1(w, "bn1");
  const Linear fc(w, "fc");
  return [=](const Tensor& image) {
    Tensor x = at::relu(bn1(at::conv2d(image, conv1, {}, 1, 1)));
    for (const Block& block : blocks) x = block(x);
    return fc(at::flatten(at::mean(x, {2, 3}, true), 1));
  };
}

struct Layer {
  LayerNorm ln1, ln2;
  Linear qkv, attention, fc, projection;

  Layer(const Weights& w, const std::string& name)
      : ln1(w, name + ".ln_1"),
        ln2(w, name + ".ln_2"),
        qkv(w, name + ".attn.qkv"),
        attention(w, name + ".attn.proj"),
        fc(w, name + ".mlp.fc"),
        projection(w, name + ".mlp.proj") {}

  Tensor operator()(const Tensor& input, std::int64_t batch, std::int64_t time, std::int64_t heads) const {
    const std::int64_t width = input.size(1);
    const std::vector<Tensor> parts = qkv(ln1(input)).view({batch, time, 3 * width}).split(width, 2);
    const auto split = [&](const Tensor& x) {
      return x.view({batch, time, heads, width / heads}).transpose(1, 2);
    };
    Tensor y =
        at::scaled_dot_product_attention(split(parts[0]), split(parts[1]), split(parts[2]), {}, 0.0, true);
    y = y.transpose(1, 2).reshape({batch * time, width});
    const Tensor x = input + attention(y);
    return x + projection(at::gelu(fc(ln2(x)), "tanh"));
  }
};

Forward gpt(const Weights& w, std::int64_t layer_count, std::int64_t heads) {
  std::vector<Layer> layers;
  for (std::int64_t i = 0; i < layer_count; ++i) layers.emplace_back(w, "h." + std::to_string(i));
  const LayerNorm last(w, "ln_f");
  const Tensor tokens = w.at("wte.weight"), positions = w.at("wpe.weight");
  return [=](const Tensor& indices) {
    const std::int64_t batch = indices.size(0), time = indices.size(1);
    Tensor x = (at::embedding(tokens, indices) + positions).flatten(0, 1);
    for (const Layer& layer : layers) x = layer(x, batch, time, heads);
    return at::linear(last(x), tokens).view({batch, time, -1});
  };
}

/// Time of this thread on its processor (passes run on one thread), so that other load on the machine shows
/// less.
double now_microseconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

double microseconds(const std::function<void()>& pass, int repeats) {
  const double start = now_microseconds();
  for (int i = 0; i < repeats; ++i) pass();
  return (now_microseconds() - start) / repeats;
}

double percentile20(std::vector<double> times) {
  std::ranges::sort(times);
  return times[times.size() / 5];
}

std::string wanted;  // beginning of a title
int chunks = 300;

void compare(const char* title, Network& network, const Forward& hand, Batch batch) {
  const ForwardContext context{.training = true};
  if (!at::equal(network.forward(batch, context), hand(batch.input()))) {
    std::fprintf(stderr, "%s: the graph and the hand-written model differ\n", title);
    std::exit(1);
  }
  for (const bool autograd : {true, false}) {
    const c10::AutoGradMode mode(autograd);
    const auto by_hand = [&] { hand(batch.input()); };
    const auto by_graph = [&] { network.forward(batch, context); };
    const int repeats = std::max(1, static_cast<int>(2000.0 / microseconds(by_hand, 3)));
    std::vector<double> hand_times, graph_times;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      // The order alternates, so that neither always follows the other.
      if (chunk % 2 == 0) hand_times.push_back(microseconds(by_hand, repeats));
      graph_times.push_back(microseconds(by_graph, repeats));
      if (chunk % 2 == 1) hand_times.push_back(microseconds(by_hand, repeats));
    }
    const double h = percentile20(hand_times), g = percentile20(graph_times);
    std::printf("%-24s %-9s %12.1f %12.1f %8.3f\n", title, autograd ? "autograd" : "inference", h, g, g / h);
  }
}

Array numbers(std::initializer_list<int> values) {
  Array array;
  for (const int value : values) array.emplace_back(value);
  return array;
}

BatchSchema schema_of(std::vector<std::int64_t> shape) {
  BatchSchema schema;
  schema.inputs = {{"x", std::move(shape)}};
  schema.classes = 10;
  return schema;
}

template <class Make>
void run(const char* title, const char* model, const Table& options, const BatchSchema& schema,
         std::int64_t size, const Make& make) {
  if (!std::string(title).starts_with(wanted)) return;
  const auto plugin = test::make<Model>(model, options);
  const std::unique_ptr<Network> network = plugin->build({schema, 1});
  Weights weights;
  for (const auto& list : {network->parameters(), network->buffers()})
    for (const NamedTensor& named : list) weights[named.name] = named.tensor;
  std::vector<std::int64_t> shape = schema.inputs[0].shape;
  shape.insert(shape.begin(), size);
  Batch batch;
  batch.inputs = {schema.vocabulary > 0 ? at::randint(schema.vocabulary, shape, at::kLong)
                                        : at::randn(shape)};
  compare(title, *network, make(weights), std::move(batch));
}

}  // namespace

/// graph_forward [PART | --quick]: only the models whose title begins with PART.
int main(int argc, char** argv) try {
  at::set_num_threads(1);
  if (argc > 1 && std::string(argv[1]) == "--quick")
    chunks = 4;
  else if (argc > 1)
    wanted = argv[1];
  std::printf("%-24s %-9s %12s %12s %8s\n", "model", "mode", "by hand, us", "graph, us", "ratio");
  run("mlp 64-128-10, 64", "mlp", test::table({{"layers", numbers({64, 128, 10})}}), schema_of({64}), 64,
      mlp);
  run("lenet 1x28x28, 16", "lenet", {}, schema_of({1, 28, 28}), 16, lenet);
  run("resnet-20 3x32x32, 2", "resnet", {}, schema_of({3, 32, 32}), 2, resnet20);
  BatchSchema text = schema_of({64});
  text.inputs[0].dtype = at::kLong;
  text.classes = text.vocabulary = 65;
  run("gpt 4x128, 64 tokens, 4", "gpt", test::table({{"n_layer", 4}, {"n_head", 4}, {"d_model", 128}}), text,
      4, [](const Weights& w) { return gpt(w, 4, 4); });
} catch (const std::exception& error) {
  std::fprintf(stderr, "graph_forward: %s\n", error.what());
  return 1;
}
