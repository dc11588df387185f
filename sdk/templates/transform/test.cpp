#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/testing/expect.hpp>
#include <trainyard/testing/plugin.hpp>
#include <trainyard/testing/run.hpp>
#include <trainyard/transform.hpp>

using namespace trainyard;

int main() {
  const BatchSchema schema = testing::tiny_schema();
  const auto build = [&](bool bent) {
    GraphBuilder b(schema, 1);
    const ValueId hidden = b.linear(b.flatten(b.input()), "fc1", 4);
    return std::make_unique<GraphNetwork>(b.finish(b.linear(bent ? b.relu(hidden) : hidden, "fc2", 3)));
  };
  testing::Made<Transform> transform(PLUGIN_FILE);
  const Batch batch = testing::tiny_batch(schema, 5);
  const at::Tensor bent = build(true)->forward(batch, {}), straight = build(false)->forward(batch, {});
  const at::Tensor made = transform->apply(build(true), {schema, 1})->forward(batch, {});
  EXPECT(made.equal(straight));
  EXPECT(!made.equal(bent));

  testing::Made<Transform> other(PLUGIN_FILE, {{"op", "Tanh"}});
  EXPECT(other->apply(build(true), {schema, 1})->forward(batch, {}).equal(bent));
  return testing::done();
}
