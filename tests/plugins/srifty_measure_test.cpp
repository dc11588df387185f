// srifty: what a profile has of a network, and that it leaves none of itself in the network.
#include <algorithm>
#include <vector>

#include <catch2/catch.hpp>

#include <trainyard/dataset.hpp>
#include <trainyard/network.hpp>
#include <trainyard/testing/run.hpp>
#include <trainyard/testing/workshop.hpp>

#include "plugins/tool/srifty/measure.hpp"

namespace srifty_measure_test {

using namespace trainyard;

namespace {

/// The rows that the fake workshop's batches are of.
struct Rows final : Dataset {
  void open(const std::string&) override {}
  std::int64_t size() const override { return 64; }
  BatchSchema schema() const override { return testing::tiny_schema(); }
  Batch read(std::span<const std::int64_t> indices, const ReadContext&) const override {
    return testing::tiny_batch(schema(), std::ssize(indices));
  }
};

/// Returns copies of the weights after 100 steps, which are undone.
std::vector<at::Tensor> after_steps(testing::FakeWorkshop& shop) {
  std::vector<at::Tensor> weights;
  shop.train(100, [&] {
    for (const NamedTensor& each : shop.weights()) weights.push_back(each.tensor.detach().clone());
  });
  return weights;
}

bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return x.equal(y); });
}

}  // namespace

TEST_CASE("a network trains to the same bits after it was profiled", "[srifty]") {
  Rows rows;
  testing::FakeWorkshop plain, profiled;
  profiled.datasets["train"] = &rows;
  const srifty::Profile profile =
      srifty::measure(profiled, {.steps = 3, .repeats = 2}, RandomStream(1, "test"));
  for (const NamedTensor& each : profiled.network().parameters()) CHECK(!each.tensor.grad().defined());
  CHECK(same_bits(after_steps(profiled), after_steps(plain)));

  std::vector<std::int64_t> sizes;
  for (const srifty::BatchProfile& each : profile.batches) sizes.push_back(each.samples);
  CHECK((sizes == std::vector<std::int64_t>{1, 2, 4, 8, 16}));
  REQUIRE(profile.gradients.size() == 4);  // fc1 [8, 4] and [8], fc2 [3, 8] and [3]
  CHECK(profile.gradients[0].bytes == 128);
  CHECK(profile.gradient_bytes() == 4 * 67);
  CHECK(profile.weight_bytes == 4 * 67);
  CHECK(profile.sample_bytes >= 4 * 11);
  // The last layer's gradients are whole before the first layer's.
  CHECK(std::max(profile.gradients[2].ready, profile.gradients[3].ready) <
        std::min(profile.gradients[0].ready, profile.gradients[1].ready));
  CHECK(profile.steps.size() >= 3);
}

TEST_CASE("a signal ends a profile with the sizes that were timed", "[srifty]") {
  Rows rows;
  testing::FakeWorkshop shop;
  shop.datasets["train"] = &rows;
  shop.stop = true;
  CHECK(srifty::measure(shop, {.steps = 3, .repeats = 2}, RandomStream(1, "test")).batches.empty());
}

TEST_CASE("a digest of a model goes by names, shapes and types of its parameters", "[srifty]") {
  const auto digest = [](std::int64_t classes, std::uint64_t seed) {
    const auto network = testing::tiny_network(testing::tiny_schema(classes), seed);
    return srifty::model_digest(*network);
  };
  CHECK(digest(3, 1) == digest(3, 2));
  CHECK(digest(3, 1) != digest(4, 1));
}

}  // namespace srifty_measure_test
