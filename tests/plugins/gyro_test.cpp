#include <map>
#include <set>
#include <string>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/context.hpp>
#include <trainyard/dropout.hpp>
#include <trainyard/state.hpp>

#include "tests/support/plugin.hpp"

using namespace trainyard;

namespace {

const std::vector<DropoutSite> two_sites = {{.id = "fc1.dropout", .axis = 1, .width = 64},
                                            {.id = "fc2.dropout", .axis = 1, .width = 48}};

/// A run of so many steps that does nothing but drop.
class Gyro final : public StepContext {
 public:
  explicit Gyro(const Table& options, std::int64_t steps, const std::vector<DropoutSite>& sites = two_sites)
      : gyro_("gyro", options) {
    plugin().open({.sites = sites});
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
  std::vector<std::string> masks(std::int64_t rows, std::size_t site = 0) {
    const at::Tensor y = apply(at::ones({rows, two_sites[site].width}), site).ne(0);
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
  other.go_to(77);
  other.plugin().load(StateReader(state));
  CHECK(other.masks(8) == expected[77 - 40]);
}

TEST_CASE("more masks at a time than there are, are refused") {
  CHECK_THROWS_WITH(Gyro(options(8, 16), 100), Catch::Contains("tau = 16") && Catch::Contains("lower tau"));
}
