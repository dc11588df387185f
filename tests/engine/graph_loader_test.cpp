// Batches of a graph through the loader: whatever the threads and the queue, and from wherever a run goes on.
#include <trainyard/helpers/blocks.hpp>

#include "core/engine/train/data_loader.hpp"

#include <catch2/catch.hpp>

#include "support/plugin.hpp"

namespace graph_loader_tests {

using namespace trainyard;
using test::make;
using test::table;

namespace {

std::unique_ptr<Dataset> open(const char* mode) {
  auto dataset = make<Dataset>("graph", table({{"layout", "synthetic"},
                                               {"synthetic", table({{"nodes", 900}, {"edges", 9000}})},
                                               {"fanouts", Array{4, 3}},
                                               {"mode", mode},
                                               {"degree", true}}));
  dataset->open("train");
  return dataset;
}

bool same(const data::StepData& a, const data::StepData& b) {
  if (a.epoch != b.epoch || a.step != b.step || a.batches.size() != b.batches.size()) return false;
  for (std::size_t i = 0; i < a.batches.size(); ++i) {
    const Batch &left = a.batches[i], &right = b.batches[i];
    if (left.indices != right.indices || !left.target.equal(right.target)) return false;
    for (std::size_t k = 0; k < left.inputs.size(); ++k)
      if (!left.inputs[k].equal(right.inputs[k])) return false;
  }
  return true;
}

}  // namespace

TEST_CASE(
    "loader: batches of a graph are the same for any number of threads and any queue, and on a resume") {
  for (const char* mode : {"mfg", "subgraph"}) {
    const auto dataset = open(mode);
    const auto sampler = make<Sampler>("random");
    sampler->open({dataset->size(), RandomStream(5, "sampler"), {}});
    const auto loader = [&](int workers, int prefetch) {
      return std::make_unique<data::Loader>(*dataset, sampler.get(),
                                            data::LoaderOptions{.batch_size = 64,
                                                                .micro_batch_size = 32,
                                                                .epochs = 3,
                                                                .workers = workers,
                                                                .prefetch = prefetch,
                                                                .random = RandomStream(5, "data/train")});
    };
    std::vector<data::StepData> expected;
    const auto alone = loader(0, 1);
    while (std::optional<data::StepData> step = alone->next()) expected.push_back(std::move(*step));
    const auto per_epoch = static_cast<std::size_t>(alone->steps_per_epoch());
    REQUIRE(expected.size() == 3 * per_epoch);
    CHECK_FALSE(expected[0].batches[0].input().equal(expected[per_epoch].batches[0].input()));
    for (const int workers : {1, 2, 4})
      for (const int prefetch : {1, 4, 16}) {
        const auto found = loader(workers, prefetch);
        for (const data::StepData& step : expected) REQUIRE(same(found->next().value(), step));
        found->seek(1, 3);
        for (std::size_t at = per_epoch + 3; at < expected.size(); ++at)
          REQUIRE(same(found->next().value(), expected[at]));
      }
  }
}

}  // namespace graph_loader_tests
