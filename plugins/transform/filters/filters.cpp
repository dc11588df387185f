// Networks with fewer filters: outputs of layers are cut out of the weights that make them, and what reads them out of all
// that comes behind, through residual sums and concatenations.
#include <trainyard/error.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/transform.hpp>

#include "cut.hpp"

namespace {

using namespace trainyard;

class Filters final : public Transform {
 public:
  struct Options {
    std::string kept;
  };
  static void describe(Manifest<Options>& m) {
    m.name("filters").version("1.0.0").summary("Cuts filters out of the network, with all that reads them.");
    m.needs("graph").needs("no members").needs("no sharded_rows");
    m.option("kept", &Options::kept,
             "file that says which outputs of which layers stay, as trainyard prune writes it; empty: all")
        .file();
  }
  explicit Filters(const Options& options) : options_(options) {}

  std::unique_ptr<Network> apply(std::unique_ptr<Network> network, const ModelContext&) const override {
    if (options_.kept.empty()) return network;
    const filters::Kept kept = filters::read_kept(options_.kept);
    const filters::Channels channels(*network->graph());
    try {
      return std::make_unique<GraphNetwork>(
          filters::cut(*network->graph(), channels, filters::gone_by(channels, kept)));
    } catch (const ConfigError& error) {
      throw ConfigError("kept = \"" + options_.kept + "\": " + error.what());
    }
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Filters)
