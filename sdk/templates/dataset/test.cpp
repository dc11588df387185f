#include <trainyard/dataset.hpp>
#include <trainyard/testing/expect.hpp>
#include <trainyard/testing/plugin.hpp>

using namespace trainyard;

int main() {
  testing::Made<Dataset> train(PLUGIN_FILE, {{"size", 100}}), val(PLUGIN_FILE, {{"size", 100}});
  train->open("train");
  val->open("val");
  EXPECT(train->size() == 100);
  EXPECT(train->schema().inputs[0].shape == std::vector<std::int64_t>{2});

  const ReadContext context{.random = RandomStream(1, "data")};
  const std::vector<std::int64_t> some = {4, 7, 99};
  const Batch batch = train->read(some, context);
  EXPECT(batch.input().sizes() == at::IntArrayRef({3, 2}));
  for (int i = 0; i < 3; ++i) {
    const bool right = batch.input()[i][0].item<float>() >= 0.5F,
               above = batch.input()[i][1].item<float>() >= 0.5F;
    EXPECT((batch.target[i].item<std::int64_t>() == 1) == (right != above));
  }
  // A sample is the same in any batch, and another split has others.
  const std::vector<std::int64_t> one = {7};
  EXPECT(train->read(one, context).input()[0].equal(batch.input()[1]));
  EXPECT(!val->read(some, context).input().equal(batch.input()));
  return testing::done();
}
