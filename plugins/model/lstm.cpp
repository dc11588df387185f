#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/model.hpp>

#include "checks.hpp"

namespace {

using namespace trainyard;

class Lstm final : public Model {
 public:
  struct Options {
    std::int64_t n_layer = 2;
    std::int64_t embedding = 64;
    std::int64_t hidden = 128;
  };
  static void describe(Manifest<Options>& m) {
    m.name("lstm").version("1.0.0").summary(
        "Recurrent language model: an embedding, LSTM layers with a dropout site after each, a linear "
        "output.");
    m.provides("graph");
    m.option("n_layer", &Options::n_layer, "LSTM layers").range(1, 1 << 16);
    m.option("embedding", &Options::embedding, "width of the token embedding").min(1);
    m.option("hidden", &Options::hidden, "width of the LSTM layers").min(1);
  }
  explicit Lstm(const Options& options) : options_(options) {}

  std::unique_ptr<Network> build(const ModelContext& context) const override {
    models::require_tokens(context.schema);
    GraphBuilder b(context.schema, context.seed);
    ValueId x = b.embedding(b.input(), "embedding", context.schema.vocabulary, options_.embedding).output;
    for (std::int64_t layer = 0; layer < options_.n_layer; ++layer) {
      const std::string name = "lstm" + std::to_string(layer + 1);
      x = b.dropout(b.lstm(x, name, options_.hidden), name + ".dropout", 2);
    }
    return std::make_unique<GraphNetwork>(b.finish(b.linear(x, "head", context.schema.vocabulary)));
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Lstm)
