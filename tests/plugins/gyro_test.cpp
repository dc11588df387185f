#include <malloc.h>

#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <catch2/catch.hpp>

#include <trainyard/context.hpp>
#include <trainyard/dropout.hpp>
#include <trainyard/model.hpp>
#include <trainyard/network.hpp>
#include <trainyard/state.hpp>

#include "tests/support/plugin.hpp"

namespace gyro_tests {

using namespace trainyard;

namespace {

const std::vector<DropoutSite> two_sites = {{.id = "fc1.dropout", .axis = 1, .width = 64},
                                            {.id = "fc2.dropout", .axis = 1, .width = 48}};

/// A run of so many steps that does nothing but drop.
class Gyro final : public StepContext {
 public:
  explicit Gyro(const Table& options, std::int64_t steps, const std::vector<DropoutSite>& sites = two_sites,
                const char* plugin = "gyro")
      : gyro_(plugin, options) {
    this->plugin().open({.sites = sites});
    run_scale_.total_steps = steps;
    fire(Event::fit_start);
    go_to(0);
  }
  void go_to(std::int64_t done) { clock_.step = done; }
  /// From here on a run of its own, as after a swap.
  void begin() { fire(Event::fit_start); }
  at::Tensor apply(const at::Tensor& x, std::size_t site = 0) {
    return apply(x, site, {.training = true, .step = static_cast<std::uint64_t>(clock_.step)});
  }
  at::Tensor apply(const at::Tensor& x, std::size_t site, const ForwardContext& pass) {
    return plugin().apply(x, site, {plugin().common.p, RandomStream(0, "unused"), pass});
  }
  /// What the rows of a batch are multiplied by, as texts.
  std::vector<std::string> masks(std::int64_t rows, std::size_t site = 0, const StepPart& part = {}) {
    const ForwardContext pass{
        .training = true, .step = static_cast<std::uint64_t>(clock_.step), .part = part};
    const at::Tensor y = apply(at::ones({rows, two_sites[site].width}), site, pass).ne(0);
    std::vector<std::string> texts;
    for (std::int64_t row = 0; row < rows; ++row) {
      std::string& text = texts.emplace_back();
      for (std::int64_t unit = 0; unit < y.size(1); ++unit) text += y[row][unit].item<bool>() ? '1' : '0';
    }
    return texts;
  }
  Dropout& plugin() { return gyro_.plugin(); }
  State saved() const { return gyro_.saved(); }

 private:
  void fire(Event event) {
    event_ = event;
    gyro_.fire(*this);
  }

  test::Subscribed<Dropout> gyro_;
};

Table options(std::int64_t sigma, std::int64_t tau) {
  return test::table({{"sigma", Value(sigma)}, {"tau", Value(tau)}});
}

}  // namespace

TEST_CASE("each mask of the bank is trained for one stretch of the same length, and comes again in turn") {
  Gyro gyro(options(256, 16), 19500);  // the paper's: 16 stretches of 1218, 12 steps are left
  std::set<std::string> seen;
  std::vector<std::string> first;
  for (std::int64_t stretch = 0; stretch < 16; ++stretch) {
    gyro.go_to(stretch * 1218);
    const std::vector<std::string> masks = gyro.masks(16);
    if (stretch == 0) first = masks;
    seen.insert(masks.begin(), masks.end());
    for (const std::int64_t later : {1, 600, 1217}) {
      gyro.go_to(stretch * 1218 + later);
      CHECK(gyro.masks(16) == masks);
    }
  }
  CHECK(seen.size() == 256);
  gyro.go_to(19499);
  CHECK(gyro.masks(16) == first);
}

TEST_CASE("sites are on the same mask of the bank, unless each draws by itself") {
  for (const char* draw : {"partition", "replacement", "per_site"}) {
    Table table = options(20, 6);  // tau does not divide sigma
    table.set("draw", Value(std::string(draw)));
    Gyro gyro(table, 400);
    std::map<std::string, std::set<std::string>> partners;
    for (std::int64_t step = 0; step < 4000; step += 60) {
      gyro.go_to(step);
      const std::vector<std::string> here = gyro.masks(6, 0), there = gyro.masks(6, 1);
      for (std::size_t i = 0; i < here.size(); ++i) partners[here[i]].insert(there[i]);
    }
    INFO(draw);
    CHECK(partners.size() == 20);
    std::size_t pairs = 0;
    for (const auto& [mask, others] : partners) pairs += others.size();
    CHECK((pairs == 20) == (draw != std::string("per_site")));
  }
}

TEST_CASE("a sample of an evaluation is one of the masks that are trained, for all rows") {
  Gyro gyro(options(8, 4), 100);  // stretches of 50 steps
  for (std::int64_t sample = 0; sample < 8; ++sample) {
    gyro.go_to(sample / 4 * 50);
    const at::Tensor trained = gyro.apply(at::ones({4, 64}))[sample % 4];
    const ForwardContext pass{.sampling = true, .step = 100, .micro = static_cast<std::uint32_t>(sample)};
    for (const std::int64_t rows : {1, 6}) {
      const at::Tensor sampled = gyro.apply(at::ones({rows, 64}), 0, pass);
      CHECK(at::equal(sampled, trained.expand({rows, 64})));
    }
  }
}

TEST_CASE("drawn with replacement, a pass leaves more than a third of the bank untrained") {
  Table table = options(256, 16);
  table.set("draw", Value(std::string("replacement")));
  Gyro gyro(table, 19500);
  std::set<std::string> seen;
  for (std::int64_t stretch = 0; stretch < 16; ++stretch) {
    gyro.go_to(stretch * 1218);
    for (const std::string& mask : gyro.masks(16)) seen.insert(mask);
  }
  // 256 (1 - (1 - 1/256)^256) = 162 are expected, with a deviation of 5.
  CHECK(seen.size() > 162 - 20);
  CHECK(seen.size() < 162 + 20);
}

TEST_CASE("one mask that is never changed is a smaller network") {
  Gyro gyro(options(1, 1), 100);
  const std::vector<std::string> mask = gyro.masks(5);
  CHECK(std::set<std::string>(mask.begin(), mask.end()).size() == 1);
  gyro.go_to(99);
  CHECK(gyro.masks(5) == mask);
}

TEST_CASE("the rows are split into slices of one length, or one more; fewer rows than masks take turns") {
  Gyro gyro(options(64, 16), 64);
  const std::vector<std::string> masks = gyro.masks(16);
  const std::vector<std::string> rows = gyro.masks(37);
  std::map<std::string, std::int64_t> lengths;
  std::size_t changes = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ++lengths[rows[i]];
    changes += i > 0 && rows[i] != rows[i - 1];
  }
  CHECK(lengths.size() == 16);
  CHECK(changes == 15);
  for (const auto& [mask, length] : lengths) CHECK((length == 2 || length == 3));
  const std::vector<std::string> even = gyro.masks(48);
  for (std::size_t i = 0; i < even.size(); ++i) CHECK(even[i] == masks[i / 3]);
  std::set<std::string> in_turn;
  for (std::int64_t step = 0; step < 4; ++step) {
    gyro.go_to(step);
    for (const std::string& mask : gyro.masks(4)) in_turn.insert(mask);
  }
  CHECK(in_turn == std::set<std::string>(masks.begin(), masks.end()));
}

TEST_CASE("a micro-batch has its part of the slices of its step, in sizes that divide nothing") {
  using Sizes = std::vector<std::int64_t>;
  for (const auto& [tau, sizes] : {std::pair<std::int64_t, Sizes>{16, {32, 15}},
                                   {16, {20, 20, 7}},
                                   {16, {1, 46}},
                                   {16, {3, 2, 1}},
                                   {5, {32, 15}},
                                   {32, {8, 5}},
                                   {32, {4, 4, 4, 1}}}) {
    Gyro gyro(options(64, tau), 640);
    gyro.go_to(3);
    const std::int64_t all = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    for (const std::int64_t copies : {1, 2}) {  // a hook may have doubled the samples
      INFO("tau " << tau << ", a step of " << all << ", first micro-batch of " << sizes.front() << ", copies "
                  << copies);
      StepPart part{.count = all, .samples = all, .before = 3 * all};
      const std::vector<std::string> whole = gyro.masks(copies * all, 0, part);
      if (copies == 1) CHECK(whole == gyro.masks(all));
      const std::set<std::string> used(whole.begin(), whole.end());
      CHECK(static_cast<std::int64_t>(used.size()) == std::min(tau, copies * all));
      part.count = 0;
      for (const std::int64_t size : sizes) {
        part.first += std::exchange(part.count, size);
        const std::vector<std::string> found = gyro.masks(copies * size, 0, part);
        std::vector<std::string> expected;
        for (std::int64_t copy = 0; copy < copies; ++copy) {
          const auto from = whole.begin() + copy * all + part.first;
          expected.insert(expected.end(), from, from + size);
        }
        CHECK(found == expected);
      }
    }
  }
}

TEST_CASE("steps of fewer rows than masks train all masks alike, the short steps of epochs included") {
  Gyro gyro(options(16, 16), 100);
  std::map<std::string, int> rows;
  StepPart part;
  for (std::int64_t step = 0; step < 96; ++step) {
    part.count = part.samples = step % 4 == 3 ? 1 : 8;  // 25 samples an epoch
    gyro.go_to(step);
    for (const std::string& mask : gyro.masks(part.samples, 0, part)) ++rows[mask];
    part.before += part.samples;
  }
  CHECK(rows.size() == 16);
  for (const auto& [mask, count] : rows) CHECK(std::abs(count - 24 * 25 / 16) <= 1);
}

TEST_CASE("a run that is too short for its bank gives a step to each slice of it") {
  Gyro gyro(options(256, 16), 5);
  std::set<std::string> seen;
  for (std::int64_t step = 0; step < 5; ++step) {
    gyro.go_to(step);
    for (const std::string& mask : gyro.masks(16)) seen.insert(mask);
  }
  CHECK(seen.size() == 5 * 16);
}

TEST_CASE("units are kept at rate 1 - p; scaled by that, or by what the masks in use have") {
  for (const double p : {0.1, 0.5, 0.8}) {
    Table table = options(256, 256);
    table.set("p", Value(p));
    const at::Tensor y = Gyro(table, 10).apply(at::ones({256, 64}));
    const double n = 256 * 64, rate = y.ne(0).to(at::kDouble).mean().item<double>();
    CHECK(std::abs(rate - (1 - p)) < 4 * std::sqrt(p * (1 - p) / n));
    CHECK(y.max().item<double>() == Approx(1 / (1 - p)));
    table.set("scale", Value(std::string("realised")));
    const at::Tensor realised = Gyro(table, 10).apply(at::ones({256, 64}));
    CHECK(realised.max().item<double>() == Approx(1 / rate));
    CHECK(at::equal(realised.ne(0), y.ne(0)));
  }
}

TEST_CASE("another rate holds at once, also within a stretch: at a higher one fewer of the same are kept") {
  Gyro gyro(options(256, 256), 10);
  const auto kept = [&](double p) {
    return gyro.plugin()
        .apply(at::ones({256, 64}), 0, {p, RandomStream(0, "unused"), {.training = true}})
        .ne(0);
  };
  const at::Tensor many = kept(0.2), few = kept(0.6);
  CHECK(few.sum().item<std::int64_t>() < many.sum().item<std::int64_t>());
  CHECK(at::equal(few.logical_and(many), few));
}

TEST_CASE("features of a sequence and channels of an image have one mask a sample") {
  const std::vector<DropoutSite> sites = {{.id = "tokens", .axis = 2, .width = 8},
                                          {.id = "last", .axis = -1, .width = 8},
                                          {.id = "channels", .axis = 1, .width = 8}};
  for (const std::int64_t batch : {8, 6}) {
    Gyro gyro(options(16, 4), 100, sites);
    const at::Tensor tokens = gyro.apply(at::ones({batch, 5, 8}), 0).ne(0);
    CHECK(at::equal(tokens, tokens.select(1, 0).unsqueeze(1).expand_as(tokens)));
    const at::Tensor last = gyro.apply(at::ones({batch, 5, 8}), 1).ne(0);
    CHECK(at::equal(last, last.select(1, 0).unsqueeze(1).expand_as(last)));
    const at::Tensor channels = gyro.apply(at::ones({batch, 8, 3, 2}), 2).ne(0);
    CHECK(at::equal(channels,
                    channels.select(3, 0).select(2, 0).unsqueeze(2).unsqueeze(3).expand_as(channels)));
    CHECK(channels.any().item<bool>());
    CHECK_FALSE(channels.all().item<bool>());
  }
}

TEST_CASE("gyro: the gradient passes where the unit did, with its scale; type and p = 0") {
  Gyro gyro(options(32, 4), 100);
  for (const std::int64_t rows : {8, 7}) {
    const at::Tensor x = at::randn({rows, 64}).requires_grad_();
    const at::Tensor y = gyro.apply(x);
    y.sum().backward();
    CHECK(at::equal(x.grad(), gyro.apply(at::ones({rows, 64}))));
    CHECK(at::equal(y, x * x.grad()));
    CHECK(gyro.apply(at::ones({rows, 64}, at::kBFloat16)).scalar_type() == at::kBFloat16);
  }
}

TEST_CASE("gyro goes on from its state; swapped in, it shares out the steps that are left") {
  Gyro gyro(options(64, 8), 100);
  gyro.go_to(40);
  gyro.begin();  // 60 steps for 8 stretches: 7 each
  std::vector<std::vector<std::string>> expected;
  for (std::int64_t step = 40; step < 100; ++step) {
    gyro.go_to(step);
    expected.push_back(gyro.masks(8));
    CHECK((step == 40 || (expected.back() == expected[expected.size() - 2]) == ((step - 40) % 7 != 0)));
  }
  const State state = gyro.saved();
  Gyro other(options(64, 8), 100);
  other.plugin().load(StateReader(state));
  for (std::int64_t step = 41; step < 100; ++step) {
    other.go_to(step);
    CHECK(other.masks(8) == expected[static_cast<std::size_t>(step - 40)]);
  }
}

namespace {

/// How likely it is that chi-square is as large or larger by chance.
double p_value(double chi_square, double degrees) {
  const at::Tensor half = at::scalar_tensor(degrees / 2, at::kDouble);
  return at::special_gammaincc(half, at::scalar_tensor(chi_square / 2, at::kDouble)).item<double>();
}

/// The same for counts of so many that are kept at this rate.
double p_value_of_counts(const at::Tensor& kept, double each, double rate) {
  const double deviations =
      (kept.sub(each * rate)).square().sum().item<double>() / (each * rate * (1 - rate));
  return p_value(deviations, static_cast<double>(kept.numel()));
}

/// The same for pairs of neighbours along an axis, of which no element is in two, as to whether both, one or
/// the other, or none is kept.
double p_value_of_pairs(const at::Tensor& kept, std::int64_t axis, double rate) {
  const at::Tensor pairs = kept.unflatten(axis, {kept.size(axis) / 2, 2});
  const at::Tensor kinds =
      (pairs.select(axis + 1, 0) * 2 + pairs.select(axis + 1, 1)).flatten().to(at::kLong);
  const at::Tensor expected =
      at::tensor({(1 - rate) * (1 - rate), rate * (1 - rate), rate * (1 - rate), rate * rate}, at::kDouble) *
      kinds.numel();
  const at::Tensor found = kinds.bincount({}, 4).to(at::kDouble);
  return p_value(((found - expected).square() / expected).sum().item<double>(), 3);
}

/// Rows by how many of their units are kept: those counts that are expected five times at least, for both
/// tensors together.
double p_value_of_rows(const at::Tensor& a, const at::Tensor& b) {
  const auto histogram = [](const at::Tensor& kept) {
    return kept.sum(-1).flatten().to(at::kLong).bincount({}, kept.size(-1) + 1).to(at::kDouble);
  };
  const at::Tensor here = histogram(a), there = histogram(b), enough = (here + there).ge(10);
  const at::Tensor terms = ((here - there).square() / (here + there)).masked_select(enough);
  return p_value(terms.sum().item<double>(), static_cast<double>(terms.numel() - 1));
}

/// Of each row, all stretches of so many units.
std::vector<std::uint64_t> windows(const at::Tensor& kept, std::int64_t length) {
  const at::Tensor powers = at::pow(2, at::arange(length, at::kLong));
  const at::Tensor sums = (kept.to(at::kLong).unfold(-1, length, 1) * powers).sum(-1).flatten();
  return {sums.const_data_ptr<std::int64_t>(), sums.const_data_ptr<std::int64_t>() + sums.numel()};
}

bool all_differ(const std::vector<std::uint64_t>& numbers) {
  return std::set(numbers.begin(), numbers.end()).size() == numbers.size();
}

/// Of each step, row and unit, whether it was kept: 1 or 0.
at::Tensor kept_over(std::int64_t steps, const std::function<at::Tensor(std::int64_t)>& apply) {
  std::vector<at::Tensor> all;
  for (std::int64_t step = 0; step < steps; ++step) all.push_back(apply(step).ne(0).to(at::kDouble));
  return at::stack(all);
}

}  // namespace

TEST_CASE("with a mask of its own for each row of each step it is standard dropout, by chi-square") {
  constexpr std::int64_t steps = 400, rows = 16, units = 64;
  const at::Tensor ones = at::ones({rows, units});
  std::vector<DropoutSite> alike = two_sites;
  alike[1].width = units;
  for (const double p : {0.3, 0.5}) {
    INFO("p = " << p);
    const auto gyro_with = [&](std::int64_t sigma, std::size_t site = 0) {
      Table table = options(sigma, rows);
      table.set("p", Value(p));
      Gyro gyro(table, steps, alike);
      return kept_over(steps, [&](std::int64_t step) {
        gyro.go_to(step);
        return gyro.apply(ones, site);
      });
    };
    const auto standard = test::make<Dropout>("standard", test::table({{"p", Value(p)}}));
    standard->open({.sites = two_sites});
    const at::Tensor anew = kept_over(steps, [&](std::int64_t step) {
      const auto number = static_cast<std::uint64_t>(step);
      return standard->apply(ones, 0,
                             {p, RandomStream(3, "site", number), {.training = true, .step = number}});
    });
    const double rate = 1 - p;
    const auto p_values = [&](const at::Tensor& kept) {
      return std::map<std::string, double>{
          {"units", p_value_of_counts(kept.sum(at::IntArrayRef{0, 1}), steps * rows, rate)},
          {"rows of the batch", p_value_of_counts(kept.sum(at::IntArrayRef{0, 2}), steps * units, rate)},
          {"steps", p_value_of_counts(kept.sum(at::IntArrayRef{1, 2}), rows * units, rate)},
          {"a step and the next", p_value_of_pairs(kept, 0, rate)},
          {"a row and the next", p_value_of_pairs(kept, 1, rate)},
          {"a unit and the next", p_value_of_pairs(kept, 2, rate)},
          {"units kept in a row, against standard dropout", p_value_of_rows(kept, anew)}};
    };
    const at::Tensor kept = gyro_with(steps * rows);
    std::map<std::string, double> found = p_values(kept);
    found["a unit and its like at another site"] =
        p_value_of_pairs(at::stack({kept, gyro_with(steps * rows, 1)}, 3), 3, rate);
    for (const auto& [what, value] : found) {
      INFO(what);
      CHECK(value > 0.01);
      CHECK(value < 0.999);  // more even than chance is no chance
    }
    CHECK(all_differ(windows(kept, 48)));
    // That these see it: half the masks, each for two steps; and one selection for good.
    CHECK(p_values(gyro_with(steps * rows / 2)).at("a step and the next") < 1e-6);
    CHECK(p_values(gyro_with(rows)).at("units") < 1e-6);
  }
}

TEST_CASE("one mask for good trains as the network without the dropped units, to the bit") {
  at::manual_seed(9);
  const std::vector<std::int64_t> widths = {32, 96, 72, 16};
  BatchSchema schema;
  schema.inputs = {{"x", {widths.front()}}};
  schema.target = {"y", {}, at::kLong};
  schema.classes = widths.back();
  const auto network =
      test::make<Model>("mlp", test::table({{"layers", Array(widths.begin(), widths.end())}}))
          ->build({schema, 3});
  Gyro gyro(options(1, 1), 100, {});
  const DropoutPlan plan(gyro.plugin(), network->dropout_places(), {});
  network->set_dropout(&plan, 1);

  // The pruned network: what is dropped has no weights, and what is kept counts double.
  std::vector<at::Tensor> live, parameters, pruned, kept;
  live.push_back(at::ones({widths.front()}));
  for (std::size_t site = 0; site < 2; ++site) {
    live.push_back(gyro.apply(at::ones({1, widths[site + 1]}), site)[0].ne(0).to(at::kFloat));
    CHECK(live.back().sum().item<double>() > 0);
    CHECK(live.back().sum().item<double>() < static_cast<double>(widths[site + 1]));
  }
  live.push_back(at::ones({widths.back()}));
  for (const NamedTensor& each : network->parameters()) {
    const std::size_t layer = parameters.size() / 2;
    parameters.push_back(each.tensor);
    kept.push_back(each.tensor.dim() == 2 ? at::outer(live[layer + 1], live[layer]) : live[layer + 1]);
    pruned.push_back((each.tensor.detach() * kept.back()).requires_grad_());
  }
  const std::vector<at::Tensor> start = [&] {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& each : parameters) copies.push_back(each.detach().clone());
    return copies;
  }();
  const auto descend = [](std::vector<at::Tensor>& tensors) {
    const c10::NoGradGuard untracked;
    for (at::Tensor& each : tensors) {
      each.sub_(each.grad() * 0.01);
      each.mutable_grad() = at::Tensor();
    }
  };
  for (std::uint64_t step = 0; step < 30; ++step) {
    const std::int64_t rows = step % 3 == 2 ? 7 : 20;  // epochs end with a short step
    Batch batch;
    batch.inputs = {at::randn({rows, widths.front()})};
    const at::Tensor wanted = at::randn({rows, widths.back()});
    const at::Tensor y = network->forward(batch, {.training = true, .step = step});
    y.backward(y.detach() - wanted);
    at::Tensor h = batch.input();
    for (std::size_t layer = 0; layer < 3; ++layer) {
      h = at::linear(h, pruned[2 * layer], pruned[2 * layer + 1]);
      if (layer < 2) h = at::relu(h) * 2;
    }
    h.backward(h.detach() - wanted);
    CHECK(at::equal(y, h));
    descend(parameters);
    descend(pruned);
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    CHECK(at::equal(parameters[i] * kept[i], pruned[i]));
    CHECK(at::equal(parameters[i] * (1 - kept[i]), start[i] * (1 - kept[i])));  // not trained
    CHECK_FALSE(at::equal(parameters[i], start[i]));
  }
}

TEST_CASE(
    "the bank takes no more memory than its bits, by what the heap has, between steps and within them") {
  const auto in_use = [] {
    const struct mallinfo2 heap = mallinfo2();
    return static_cast<std::int64_t>(heap.uordblks + heap.hblkhd);
  };
  {
    const std::int64_t before = in_use();
    const std::vector<char> million(1 << 20);
    if (in_use() < before + std::ssize(million)) {
      WARN("this heap does not say what is in use");
      return;
    }
  }
  constexpr std::int64_t sigma = 256, tau = 16, width = 1024, sites = 64;
  constexpr std::int64_t bar = sigma * width / 8 + 4096;
  std::vector<DropoutSite> places;
  for (std::int64_t i = 0; i < sites; ++i) places.push_back({.id = "s" + std::to_string(i), .width = width});
  for (const char* plugin : {"gyro", "blockwise"})
    for (const std::int64_t rows : {48, 47}) {  // slices of one length, or not
      INFO(plugin << ", " << rows << " rows");
      const at::Tensor x = at::ones({rows, width}).requires_grad_();
      const auto taken = [&](const std::function<at::Tensor(std::size_t)>& pass) {
        const std::int64_t before = in_use();
        std::vector<at::Tensor> outputs;
        for (std::size_t site = 0; site < places.size(); ++site) outputs.push_back(pass(site));
        return in_use() - before;
      };
      const std::int64_t outputs = taken([&](std::size_t) { return x.detach().clone(); });
      const std::int64_t before = in_use();
      Gyro gyro(options(sigma, tau), 19500, places, plugin);
      taken([&](std::size_t site) { return gyro.apply(x, site); });
      const std::int64_t between = in_use() - before;
      const std::int64_t within =
          between + taken([&](std::size_t site) { return gyro.apply(x, site); }) - outputs;
      CHECK(between >= sites * tau * width / 8 / (plugin == std::string("gyro") ? 1 : 32));
      CHECK(between <= sites * bar);
      CHECK(within <= sites * bar);
      std::cout << plugin << ", " << rows << " rows: " << between / sites << " bytes a site between steps, "
                << within / sites << " within\n";
    }
}

TEST_CASE("more masks at a time than there are, are refused") {
  CHECK_THROWS_WITH(Gyro(options(8, 16), 100), Catch::Contains("tau = 16") && Catch::Contains("lower tau"));
}

}  // namespace gyro_tests
