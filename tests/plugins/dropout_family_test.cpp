// The dropout family: moments, gradients and types of all; formulas of each, those of torch.nn from golden
// values; what they refuse.
#include <cmath>
#include <set>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/dropout.hpp>
#include <trainyard/error.hpp>
#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/model.hpp>

#include "plugins/golden.hpp"
#include "tests/support/plugin.hpp"

namespace dropout_family_tests {

using namespace trainyard;

namespace {

using Catch::Matchers::Contains;

const RandomStream stream(17, "dropout/site");

/// A plugin that was opened with one site.
class AtSite {
 public:
  AtSite(const std::string& name, const Table& options, const DropoutSite& site)
      : dropout_(test::make<Dropout>(name, options)) {
    dropout_->open({.sites = {site}});
  }
  at::Tensor apply(const at::Tensor& x, const RandomStream& random = stream) {
    return dropout_->apply(x, 0, {dropout_->common.p, random, {.training = true}});
  }

 private:
  std::unique_ptr<Dropout> dropout_;
};

struct Variant {
  const char* name;
  Table options;
  DropoutSite site;
  std::vector<std::int64_t> shape;
  double independent;  ///< elements that share a bit, at most
};

/// Of those that multiply activations by 0 or a scale.
std::vector<Variant> masking(double p) {
  const auto options = [&](std::initializer_list<std::pair<const char*, Value>> more = {}) {
    Table table = test::table(more);
    table.set("p", Value(p));
    return table;
  };
  const DropoutSite rows{.id = "s", .axis = 1, .width = 32}, image{.id = "s", .rank = 4, .width = 8},
      sequence{.id = "s", .rank = 3, .axis = 2, .width = 8}, folded{.id = "s", .width = 8, .rows = 5};
  return {
      {"standard", options(), rows, {500, 32}, 1},
      {"spatial", options(), image, {500, 8, 3, 2}, 6},
      {"spatial", options(), sequence, {500, 5, 8}, 5},
      {"variational", options(), sequence, {500, 5, 8}, 5},
      {"variational", options(), folded, {2500, 8}, 5},
      {"droppath", options({{"rule", "constant"}}), image, {4000, 8, 3, 2}, 48},
      {"droppath", options({{"rule", "constant"}}), folded, {20000, 8}, 40},
  };
}

/// |mean - expected| in standard errors of `values`' own deviation, of so many independent groups.
double errors(const at::Tensor& values, double expected, double group) {
  const at::Tensor v = values.detach().to(at::kDouble);
  const double n = static_cast<double>(v.numel()) / group, off = std::abs(v.mean().item<double>() - expected);
  return off < 1e-9 ? 0.0 : off / (v.std().item<double>() / std::sqrt(n));
}

/// Whether a tensor is the same along these axes.
bool shared(const at::Tensor& x, std::initializer_list<std::int64_t> axes) {
  at::Tensor first = x;
  for (const std::int64_t axis : axes) first = first.narrow(axis, 0, 1);
  return at::equal(first.expand_as(x), x);
}

}  // namespace

TEST_CASE("masks have the rate, the mean and the variance of inverted dropout", "[family]") {
  for (const double p : {0.1, 0.5, 0.8})
    for (Variant& v : masking(p)) {
      INFO(v.name << " of " << v.shape.size() << " dimensions, p = " << p);
      const at::Tensor y = AtSite(v.name, v.options, v.site).apply(at::ones(v.shape, at::kDouble));
      CHECK(y.max().item<double>() == Approx(1.0 / (1.0 - p)).epsilon(1e-6));
      CHECK(y.min().item<double>() == 0.0);
      CHECK(errors(y.ne(0), 1.0 - p, v.independent) < 4);
      CHECK(errors(y, 1.0, v.independent) < 4);
      CHECK(errors((y - 1).square(), p / (1.0 - p), v.independent) < 4);
    }
}

TEST_CASE("in networks, evaluations are exactly those without dropout; of zoneout, the expectation",
          "[family]") {
  BatchSchema image, text;
  image.inputs = {{"image", {2, 8, 8}}};
  text.inputs = {{"tokens", {5}, at::kLong}};
  text.target = {"next", {5}, at::kLong};
  image.classes = text.classes = text.vocabulary = 7;
  const Batch images{.inputs = {at::randn({4, 2, 8, 8})}},
      texts{.inputs = {at::randint(7, {4, 5}, at::kLong)}};
  const auto resnet = [&](const char* sites) {
    return test::make<Model>("resnet", test::table({{"depth", 8}, {"width", 2}, {"dropout_sites", sites}}))
        ->build({image, 1});
  };
  const auto language = [&](const char* name, const Table& options) {
    return test::make<Model>(name, options)->build({text, 1});
  };
  const auto gpt = [&] {
    return language("gpt", test::table({{"n_layer", 1}, {"n_head", 2}, {"d_model", 8}}));
  };
  const auto lstm = [&] { return language("lstm", test::table({{"n_layer", 1}, {"hidden", 6}})); };
  const auto run = [&](const char* name, std::unique_ptr<Network> network) {
    INFO(name);
    const Batch& batch = network->output_shape().size() == 1 ? images : texts;
    const at::Tensor plain = network->forward(batch, {});
    const auto dropout = test::make<Dropout>(name, test::table({{"p", 0.5}}));
    const DropoutPlan plan(*dropout, network->dropout_places(), {});
    network->set_dropout(&plan, 3);
    const at::Tensor y = network->forward(batch, {});
    CHECK(at::equal(y, plain) == (dropout->carries_states() == nullptr));
    CHECK(at::equal(y, network->forward(batch, {.step = 9})));
    CHECK_FALSE(at::allclose(network->forward(batch, {.sampling = true}), y, 1e-3, 1e-4));
    CHECK_FALSE(at::allclose(network->forward(batch, {.training = true}), y, 1e-3, 1e-4));
  };
  for (const char* name : {"standard", "alpha", "droppath"}) run(name, gpt());
  for (const char* name : {"spatial", "dropblock", "droppath", "alpha"}) run(name, resnet("blocks"));
  for (const char* name : {"spatial", "droppath"}) run(name, resnet("branches"));
  run("variational", gpt());
  for (const char* name : {"variational", "spatial", "dropconnect", "zoneout"}) run(name, lstm());

  // From a state of zeros the expectation after one step is a share of what the cell makes.
  GraphBuilder b(image, 1);
  GraphNetwork cell(b.finish(b.lstm(b.reshape(b.input(), {-1, 1, 128}), "lstm", 6)));
  const at::Tensor plain = cell.forward(images, {});
  const auto zoneout = test::make<Dropout>("zoneout", test::table({{"p", 0.5}, {"output", 0.1}}));
  const DropoutPlan plan(*zoneout, cell.dropout_places(), {});
  cell.set_dropout(&plan, 3);
  CHECK(at::allclose(cell.forward(images, {}), plain * 0.95, 1e-5, 1e-6));
}

TEST_CASE("weights of attention are dropped where sites names them, by what drops elements, heads or samples",
          "[family][attention]") {
  BatchSchema text;
  text.inputs = {{"tokens", {5}, at::kLong}};
  text.target = {"next", {5}, at::kLong};
  text.classes = text.vocabulary = 7;
  const auto network = test::make<Model>("gpt", test::table({{"n_layer", 2}, {"n_head", 4}, {"d_model", 8}}))
                           ->build({text, 1});
  const Batch batch{.inputs = {at::randint(7, {6, 5}, at::kLong)}};
  const at::Tensor plain = network->forward(batch, {}), fused = network->forward(batch, {.training = true});
  const Table bank = test::table({{"sigma", 32}, {"tau", 3}});
  for (const auto& [name, more] : std::map<std::string, Table>{
           {"standard", {}}, {"gyro", bank}, {"spatial", {}}, {"droppath", test::table({{"p", 0.9}})}}) {
    INFO(name);
    Table options = more;
    options.set("sites", Value(std::vector<Value>{Value("h.*.attn_weights")}));
    const auto dropout = test::make<Dropout>(name, options);
    const DropoutPlan plan(*dropout, network->dropout_places(), {});
    const DropoutPlaces& places = plan.places();
    CHECK(std::count_if(places.sites.begin(), places.sites.end(), [](auto& site) { return site.active; }) ==
          2);
    network->set_dropout(&plan, 3);
    CHECK(at::equal(network->forward(batch, {}), plain));
    const at::Tensor y = network->forward(batch, {.training = true});
    CHECK_FALSE(at::allclose(y, fused, 1e-4, 1e-5));
    CHECK(at::equal(y, network->forward(batch, {.training = true})));
    CHECK(at::isfinite(y).all().item<bool>());
    y.sum().backward();
    for (const NamedTensor& each : network->parameters()) {
      INFO(each.name);
      CHECK(at::isfinite(each.tensor.grad()).all().item<bool>());
      each.tensor.mutable_grad() = at::Tensor();
    }
  }
  // Elements of the weights of a sample and head, or whole heads.
  const DropoutSite site{.id = "h.0.attn_weights", .rank = 4, .axis = 1, .width = 4, .by_name = true};
  const at::Tensor ones = at::ones({6, 4, 5, 5});
  CHECK_FALSE(shared(AtSite("standard", {}, site).apply(ones), {2, 3}));
  CHECK(shared(AtSite("spatial", {}, site).apply(ones), {2, 3}));
  const at::Tensor heads = AtSite("gyro", bank, site).apply(ones);
  CHECK(shared(heads, {2, 3}));
  CHECK(shared(heads.narrow(0, 0, 2), {0}));  // two samples of each of three masks
}

TEST_CASE("the gradient of what is masked is the mask; streams repeat; types stay", "[family]") {
  std::vector<Variant> variants = masking(0.4);
  variants.push_back({"dropblock",
                      test::table({{"p", 0.4}, {"block", 3}}),
                      {.id = "s", .rank = 4, .width = 4},
                      {6, 4, 9, 7},
                      1});
  variants.push_back({"alpha", test::table({{"p", 0.4}}), {.id = "s"}, {40, 16}, 1});
  for (Variant& v : variants) {
    INFO(v.name << " of " << v.shape.size() << " dimensions");
    AtSite dropout(v.name, v.options, v.site), again(v.name, v.options, v.site);
    const at::Tensor x = at::randn(v.shape).requires_grad_();
    const at::Tensor y = dropout.apply(x);
    y.sum().backward();
    // Where x is 0 the rest is left: nothing, but of alpha dropout.
    const at::Tensor rest = dropout.apply(at::zeros_like(x));
    CHECK(at::allclose(y, x * x.grad() + rest, 1e-5, 1e-6));
    CHECK(at::equal(rest, at::zeros_like(x)) == (v.name != std::string("alpha")));
    CHECK(x.grad().eq(0).any().item<bool>());
    CHECK(at::equal(y, again.apply(x)));
    CHECK_FALSE(at::equal(y, dropout.apply(x, stream.at(1))));
    CHECK_FALSE(at::equal(y, dropout.apply(x, stream.at(0, 1))));
    for (const auto type : {at::kBFloat16, at::kDouble}) {
      const at::Tensor other = dropout.apply(x.detach().to(type));
      CHECK(other.scalar_type() == type);
      CHECK(at::allclose(other.to(at::kFloat), y, 0.03, 0.03));
    }
  }
}

TEST_CASE("units become what torch.nn makes of them", "[family][golden]") {
  for (const auto& item : test::golden("dropouts.json")) {
    const std::string name = item["plugin"];
    INFO(name << " " << item["options"].dump());
    const std::vector<std::int64_t> shape = item["shape"];
    const at::Tensor x = test::tensor(item["x"], shape), kept = test::tensor(item["kept"], shape),
                     dropped = test::tensor(item["dropped"], shape);
    AtSite dropout(name, test::options(item["options"]),
                   {.id = "s", .rank = static_cast<std::int64_t>(shape.size()), .width = shape[1]});
    at::Tensor ever_kept = at::zeros_like(x), ever_dropped = at::zeros_like(x);
    for (std::uint64_t step = 0; step < 100; ++step) {
      const at::Tensor y = dropout.apply(x, stream.at(step));
      const at::Tensor is_kept = (y - kept).abs().lt(1e-6), is_dropped = (y - dropped).abs().lt(1e-6);
      CHECK(at::logical_xor(is_kept, is_dropped).all().item<bool>());
      if (item["channels"]) CHECK(shared(is_kept.flatten(2), {2}));
      ever_kept += is_kept;
      ever_dropped += is_dropped;
    }
    CHECK(ever_kept.gt(0).all().item<bool>());
    CHECK(ever_dropped.gt(0).all().item<bool>());
  }
}

TEST_CASE("spatial: neighbours of a channel, or time steps of a feature, share their bit", "[family]") {
  const at::Tensor image = AtSite("spatial", test::table({{"p", 0.5}}), {.id = "s", .rank = 4, .width = 8})
                               .apply(at::ones({9, 8, 3, 2}));
  CHECK(shared(image, {2, 3}));
  CHECK_FALSE(shared(image, {1}));
  CHECK_FALSE(shared(image, {0}));
  const at::Tensor sequence = AtSite("spatial", test::table({{"p", 0.5}}), {.id = "s", .rank = 3, .axis = 2})
                                  .apply(at::ones({9, 5, 8}));
  CHECK(shared(sequence, {1}));
  CHECK_FALSE(shared(sequence, {2}));
  CHECK_FALSE(shared(sequence, {0}));
  CHECK_THROWS_WITH(AtSite("spatial", {}, {.id = "fc.dropout"}),
                    Contains("\"fc.dropout\"") && Contains("standard"));
}

TEST_CASE("variational: one mask for each sequence, folded or not", "[family]") {
  const Table half = test::table({{"p", 0.5}});
  const at::Tensor y =
      AtSite("variational", half, {.id = "s", .rank = 3, .axis = 2}).apply(at::ones({9, 5, 8}));
  CHECK(shared(y, {1}));
  CHECK_FALSE(shared(y, {0}));
  const at::Tensor folded = AtSite("variational", half, {.id = "s", .rows = 5}).apply(at::ones({45, 8}));
  CHECK(at::equal(folded.view({9, 5, 8}), y));
  CHECK_THROWS_WITH(AtSite("variational", half, {.id = "fc.dropout"}), Contains("no sequences"));
  CHECK_THROWS_WITH(AtSite("variational", half, {.id = "image", .rank = 4}), Contains("no sequences"));
}

TEST_CASE("alpha: constants of the paper; mean 0 and variance 1 stay", "[family]") {
  AtSite dropout("alpha", test::table({{"p", 0.1}}), {.id = "s"});
  // a and b at p = 0.1: where x is 1 the result is a + b or a alpha' + b.
  const double a = 0.921285, b = 0.161970;
  const at::Tensor ones = dropout.apply(at::ones({1000}, at::kDouble).view({100, 10}));
  CHECK(ones.max().item<double>() == Approx(a + b).margin(1e-6));
  CHECK(ones.min().item<double>() == Approx(-1.7580993408473766 * a + b).margin(2e-6));
  at::manual_seed(3);
  for (const double p : {0.05, 0.1, 0.3, 0.6}) {
    AtSite each("alpha", test::table({{"p", p}}), {.id = "s"});
    const at::Tensor y = each.apply(at::randn({4000, 100}, at::kDouble));
    INFO(p);
    CHECK(errors(y, 0.0, 1) < 4);
    CHECK(errors(y.square(), 1.0, 1) < 4);
  }
  const at::Tensor channels =
      AtSite("alpha", test::table({{"p", 0.5}, {"feature", true}}), {.id = "s", .rank = 4, .width = 8})
          .apply(at::ones({9, 8, 3, 2}));
  CHECK(shared(channels, {2, 3}));
  CHECK_FALSE(shared(channels, {1}));
}

namespace {

/// Bounds of the rate at which dropblock draws its seeds, so close, by what it drops of ones. A seed is where
/// the number that the stream has for its place is at least 1 - gamma: so an image is whole exactly where the
/// largest of its numbers is below that.
std::pair<double, double> rate_of_seeds(AtSite& dropblock, std::int64_t side, std::int64_t block,
                                        double close) {
  double low = 0.0, high = 1.0;
  const std::int64_t images = 3200, places = (side - block + 1) * (side - block + 1);
  for (std::uint64_t step = 0; high - low > close && step < 300; ++step) {
    const at::Tensor y = dropblock.apply(at::ones({images / 16, 16, side, side}), stream.at(step));
    at::Tensor numbers = at::empty({images, places});
    stream.at(step).fill_uniform(
        {numbers.mutable_data_ptr<float>(), static_cast<std::size_t>(numbers.numel())});
    const at::Tensor largest = 1.0 - numbers.amax(1).to(at::kDouble),
                     whole = y.ne(0).view({images, -1}).all(1);
    low = std::max(low, largest.masked_fill(whole, 0.0).max().item<double>());
    high = std::min(high, largest.masked_fill(whole.logical_not(), 1.0).min().item<double>());
  }
  return {low, high};
}

}  // namespace

TEST_CASE("dropblock: seeds have the rate gamma, blocks are whole, the sum of the mask stays", "[family]") {
  struct Case {
    std::int64_t side, block;
    double p, gamma, close;
  };
  for (const Case& c :
       {Case{14, 7, 0.1, 0.00625, 1e-6}, Case{8, 3, 0.1, 0.0197531, 1e-6}, Case{8, 4, 0.1, 0.016, 1e-5},
        Case{5, 1, 0.3, 0.3, 2e-3}, Case{6, 9, 0.2, 0.2, 1e-4}}) {
    INFO(c.side << " " << c.block);
    const std::int64_t block = std::min(c.block, c.side);
    AtSite dropout("dropblock", test::table({{"p", c.p}, {"block", c.block}}),
                   {.id = "s", .rank = 4, .width = 16});
    const at::Tensor y = dropout.apply(at::ones({200, 16, c.side, c.side}, at::kDouble));
    CHECK(y.sum().item<double>() == Approx(static_cast<double>(y.numel())).epsilon(1e-6));
    const auto [low, high] = rate_of_seeds(dropout, c.side, block, c.close);
    INFO("gamma is at least " << low << " and at most " << high);
    CHECK(low <= high);
    CHECK(high - low <= c.close);
    CHECK(c.gamma == Approx((low + high) / 2).margin(c.close));
    const at::Tensor dropped = y.eq(0).to(at::kDouble);
    // Every dropped pixel lies in a square that is dropped as a whole.
    const at::Tensor whole = at::avg_pool2d(dropped, {block, block}, {1, 1}).ge(1.0 - 1e-9).to(at::kDouble);
    const at::Tensor pad = at::constant_pad_nd(whole, {block - 1, block - 1, block - 1, block - 1});
    CHECK(at::equal(at::max_pool2d(pad, {block, block}, {1, 1}), dropped));
    CHECK_FALSE(shared(dropped, {1}));
  }
  CHECK_THROWS_WITH(AtSite("dropblock", {}, {.id = "fc.dropout"}), Contains("has no images"));
}

TEST_CASE("droppath: the linear rule over its sites; samples or the batch skip a branch", "[family]") {
  const auto dropout = test::make<Dropout>("droppath", test::table({{"p", 0.2}}));
  DropoutPlaces places;
  for (int i = 0; i < 8; ++i)
    places.sites.push_back({.id = "s" + std::to_string(i), .active = i != 0 && i != 4});
  dropout->open(places);
  const double rates[] = {0, 0, 0.04, 0.08, 0, 0.12, 0.16, 0.2};
  const at::Tensor x = at::ones({100000, 1}, at::kDouble);
  for (std::size_t site = 0; site < 8; ++site) {
    if (!places.sites[site].active) continue;
    INFO(site);
    const at::Tensor y = dropout->apply(x, site, {0.2, stream, {.training = true}});
    const double p = rates[site];
    CHECK(y.max().item<double>() == Approx(1.0 / (1.0 - p)).epsilon(1e-6));
    CHECK(std::abs(y.eq(0).to(at::kDouble).mean().item<double>() - p) <= 4 * std::sqrt(p * (1 - p) / 1e5));
  }
  // Early dropout lowers all of them.
  CHECK(dropout->apply(x, 7, {0.1, stream, {.training = true}}).max().item<double>() == Approx(1 / 0.9));

  const at::Tensor rows =
      AtSite("droppath", test::table({{"p", 0.5}}), {.id = "s", .rows = 5}).apply(at::ones({50, 8}));
  CHECK(shared(rows.view({10, 5, 8}), {1, 2}));
  CHECK_FALSE(shared(rows, {0}));
  AtSite batch("droppath", test::table({{"p", 0.5}, {"mode", "batch"}}), {.id = "s", .rank = 4});
  double kept = 0;
  for (std::uint64_t step = 0; step < 400; ++step) {
    const at::Tensor y = batch.apply(at::ones({4, 3, 2, 2}), stream.at(step));
    REQUIRE(shared(y, {0, 1, 2, 3}));
    kept += y.max().item<double>() / 2;
  }
  CHECK(std::abs(kept / 400 - 0.5) < 4 * std::sqrt(0.25 / 400));
}

TEST_CASE("dropconnect: elements of weights at rate 1 - p, scaled; the mean weights are the weights",
          "[family]") {
  const auto dropout = test::make<Dropout>("dropconnect", test::table({{"p", 0.3}}));
  REQUIRE(dropout->masks_weights() != nullptr);
  dropout->open({.weights = {{.id = "lstm1.weight_hh", .shape = {1, 64, 16}}}});
  const at::Tensor weight = at::randn({1, 64, 16}, at::kDouble).requires_grad_();
  const auto mask = [&](std::uint64_t step) {
    return dropout->masks_weights()->mask_weight(weight, 0, {0.3, stream.at(step), {.training = true}});
  };
  const at::Tensor first = mask(0);
  first.sum().backward();
  CHECK(at::equal(first, weight * weight.grad()));
  CHECK(at::equal(first, mask(0)));
  at::Tensor sum = at::zeros_like(weight), kept = at::zeros_like(weight);
  const int steps = 2000;
  for (int step = 0; step < steps; ++step) {
    const at::Tensor scale = mask(static_cast<std::uint64_t>(step)).detach() / weight.detach();
    sum = sum + scale;
    kept = kept + scale.ne(0);
  }
  const double n = steps * 1024.0;
  CHECK(std::abs(kept.sum().item<double>() / n - 0.7) < 4 * std::sqrt(0.21 / n));
  CHECK(std::abs(sum.sum().item<double>() / n - 1.0) < 4 * std::sqrt(0.3 / 0.7 / n));
  // Each element by itself: the largest of 1,024 deviations.
  CHECK((kept / steps - 0.7).abs().max().item<double>() < 5 * std::sqrt(0.21 / steps));
}

TEST_CASE("zoneout: states are kept at rate p; evaluations take the expectation", "[family]") {
  const auto dropout = test::make<Dropout>("zoneout", test::table({{"p", 0.5}, {"output", 0.1}}));
  REQUIRE(dropout->carries_states() != nullptr);
  dropout->open({.cells = {{.id = "lstm1", .hidden = 100}}});
  const at::Tensor before = at::zeros({2000, 100}).requires_grad_(),
                   now = at::ones({2000, 100}).requires_grad_();
  const auto carry = [&](bool memory, std::int64_t time, ForwardContext pass) {
    return dropout->carries_states()->carry(before, now, 0, memory, time, {0.5, stream, pass});
  };
  const ForwardContext training{.training = true};
  for (const bool memory : {true, false}) {
    const double p = memory ? 0.5 : 0.05;
    const at::Tensor state = carry(memory, 3, training);
    CHECK(at::logical_or(state.eq(0), state.eq(1)).all().item<bool>());
    CHECK(std::abs(state.mean().item<double>() - (1 - p)) < 4 * std::sqrt(p * (1 - p) / 2e5));
    CHECK(at::equal(state, carry(memory, 3, training)));
    CHECK_FALSE(at::equal(state, carry(memory, 4, training)));
    CHECK_FALSE(at::equal(state, carry(memory, 3, {.sampling = true}).sub(state.mean())));
    CHECK(at::allclose(carry(memory, 3, {}), at::full_like(now, 1 - p)));
    now.mutable_grad() = before.mutable_grad() = at::Tensor();
    state.sum().backward();
    CHECK(at::equal(now.grad(), state));
    CHECK(at::equal(before.grad(), 1 - state));
  }
  const at::Tensor sampled = carry(true, 3, {.sampling = true});
  CHECK(at::logical_or(sampled.eq(0), sampled.eq(1)).all().item<bool>());
  CHECK(dropout->carries_states()
            ->carry(before, now.to(at::kBFloat16), 0, true, 0, {0.5, stream, training})
            .scalar_type() == at::kFloat);  // a half-precision state beside one of the beginning
  const auto still = test::make<Dropout>("zoneout", test::table({{"p", 0.5}, {"output", 0.0}}));
  CHECK(still->carries_states()->carry(before, now, 0, false, 0, {0.5, stream, training}).is_same(now));
}

}  // namespace dropout_family_tests
