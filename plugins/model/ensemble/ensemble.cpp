// An ensemble of networks that other runs have trained: a step of the run chooses one, by the validation split (network.hpp).
#include <string>
#include <utility>
#include <vector>

#include <trainyard/host.hpp>
#include <trainyard/model.hpp>

#include "network.hpp"

namespace {

using namespace trainyard;

class Ensemble final : public Model {
 public:
  struct Options {
    PluginList<Model> members;
    std::vector<std::string> from;
  };
  static void describe(Manifest<Options>& m) {
    m.name("ensemble")
        .version("1.0.0")
        .summary(
            "The mean of networks that other runs have trained; each step adds the one, perhaps again, with "
            "which it is best on the validation split.");
    m.provides("grows");
    m.needs("executor.type = boosting").needs("rows").needs("fp32");
    m.option("members", &Options::members,
             "the tables [model] of these runs, as [{ type = \"mlp\", hidden = [64] }]")
        .required();
    m.option("from", &Options::from,
             "the folders of these runs, in the same order, seen from this run's: \"../0007\". They are read "
             "by the first step alone: the ensemble keeps their weights. They are of runs with the same "
             "features of the data, which never trained on [data.val]. Empty: networks as they are drawn");
  }
  explicit Ensemble(const Options& options) : options_(options) {}

  std::unique_ptr<Network> build(const ModelContext& context) const override {
    const std::size_t count = options_.members.tables.size();
    if (count == 0 || (!options_.from.empty() && count != options_.from.size()))
      throw ConfigError("model.members has " + std::to_string(count) + " networks and model.from " +
                        std::to_string(options_.from.size()) +
                        " folders: give a folder for each, and one at least");
    if (context.schema.classes > 0 && !context.schema.target.shape.empty())
      throw ConfigError(
          "the data has several labels a sample, and members are chosen by one: take a run of "
          "one class a sample, or of numbers");
    std::vector<ensemble::Member> members;
    for (std::unique_ptr<Model>& model : make_plugins(host(), options_.members)) {
      std::unique_ptr<Network> network = model->build(context);
      members.push_back({std::move(model), std::move(network)});
    }
    return std::make_unique<ensemble::EnsembleNetwork>(std::move(members), options_.from, context.schema,
                                                       host());
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Ensemble)
