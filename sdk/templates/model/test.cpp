#include <trainyard/model.hpp>
#include <trainyard/testing/expect.hpp>
#include <trainyard/testing/plugin.hpp>
#include <trainyard/testing/run.hpp>

using namespace trainyard;

int main() {
  testing::Made<Model> model(PLUGIN_FILE, {{"width", 16}});
  const BatchSchema schema = testing::tiny_schema();
  std::unique_ptr<Network> network = model->build({.schema = schema, .seed = 1});
  EXPECT(network->output_shape() == std::vector<std::int64_t>{3});
  EXPECT(network->parameters().size() == 6);
  EXPECT(network->dropout_places().sites.size() == 1);
  EXPECT(network->forward(testing::tiny_batch(schema, 5), {}).sizes() == at::IntArrayRef({5, 3}));

  // The same seed gives the same weights, and a few steps lower the loss.
  EXPECT(digest(model->build({.schema = schema, .seed = 1})->parameters()[0].tensor) ==
         digest(network->parameters()[0].tensor));
  testing::TinyRun run;
  run.use(std::move(network));
  run.step();
  const double before = run.loss();
  run.step(30);
  EXPECT(run.loss() < before);
  return testing::done();
}
