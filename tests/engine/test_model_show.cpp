#include <catch2/catch.hpp>

#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>

#include "core/engine/verbs/model_show.hpp"

namespace test_model_show_tests {

using namespace trainyard;

TEST_CASE("model show prints layers, shapes, costs and dropout sites", "[model_show]") {
  BatchSchema schema;
  schema.inputs = {{"image", {1, 28, 28}}};
  GraphBuilder b(schema, 0);
  const ValueId x = b.relu(b.linear(b.flatten(b.input()), "fc1", 128));
  const GraphNetwork network(b.finish(b.linear(b.dropout(x, "fc1.dropout"), "fc2", 10)));
  const std::string text = train::show(*network.graph(), network.dropout_places(), {});
  CHECK(text ==
        "layer        operator  output              parameters  multiply-adds\n"
        "image        input     [batch, 1, 28, 28]\n"
        "flatten1     Flatten   [batch, 784]\n"
        "fc1          Gemm      [batch, 128]           100,480        100,352\n"
        "relu1        Relu      [batch, 128]\n"
        "fc1.dropout  Dropout   [batch, 128]\n"
        "fc2          Gemm      [batch, 10]              1,290          1,280\n"
        "total                  one sample             101,770        101,632\n"
        "dropout sites:\n"
        "  fc1.dropout  axis 1  width 128\n"
        "weights that dropout may mask:\n"
        "  fc1.weight  [128, 784]\n"
        "  fc2.weight  [10, 128]\n");
}

}  // namespace test_model_show_tests
