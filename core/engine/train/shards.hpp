// Tables of a run whose rows are sharded over the ranks (ShardsTables): each rank saves its own rows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <trainyard/checkpointer.hpp>
#include <trainyard/helpers/own_rows.hpp>
#include <trainyard/named_tensor.hpp>

#include "core/engine/distributed/world.hpp"
#include "core/engine/save/store.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::train {

/// Parameters that all ranks have whole, and those of which each has its own rows.
struct Parameters {
  std::vector<NamedTensor> replicated;
  std::vector<at::Tensor> sharded;
};
Parameters parameters_of(const Network& network);

/// Used on the loop thread.
class Shards {
 public:
  /// Returns null if the network has no such tables. Throws ConfigError for settings that exclude them.
  /// `network` and `world` outlive it.
  static std::unique_ptr<Shards> of(Network& network, distributed::World* world,
                                    const config::RunConfig& config);

  void begin_evaluation() { tables_.begin_evaluation(); }
  void end_evaluation() { tables_.end_evaluation(); }

  // Called by all ranks together:
  /// Takes the states that share a file with table rows out of the snapshot, and writes these files into
  /// `folder`, rank 0's. Returns, for rank 0, what a commit has to know of them.
  checkpoint::Written write(const std::string& folder, Snapshot& snapshot) const;
  /// Writes a file of whole weights.
  void write(const std::string& path, const std::vector<NamedTensor>& weights) const;
  const OwnRows rows;

 private:
  Shards(Network& network, ShardsTables& tables, distributed::World& world)
      : rows(network, tables, world), tables_(tables), world_(world) {}

  ShardsTables& tables_;
  distributed::World& world_;
};

}  // namespace trainyard::train
