// The rows of a run's tables that lie on different ranks (ShardsTables): each rank saves its own.
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

/// Parameters that every rank has alike, and those of which it has its own rows.
struct Parameters {
  std::vector<NamedTensor> replicated;
  std::vector<at::Tensor> sharded;
};
Parameters parameters_of(const Network& network);

/// Loop thread.
class Shards {
 public:
  /// Null where the network has no such tables. Throws ConfigError for what a run with them cannot have.
  /// `network` and `world` outlive it.
  static std::unique_ptr<Shards> of(Network& network, distributed::World* world,
                                    const config::RunConfig& config);

  void begin_evaluation() { tables_.begin_evaluation(); }
  void end_evaluation() { tables_.end_evaluation(); }

  // All ranks together:
  /// Takes out of what is saved the files that rows of tables belong to, and has them written: to a folder that
  /// rank 0 gives. What a commit has to know of them, on rank 0.
  checkpoint::Written write(const std::string& folder, Snapshot& snapshot) const;
  /// A file of whole weights.
  void write(const std::string& path, const std::vector<NamedTensor>& weights) const;
  const OwnRows rows;

 private:
  Shards(Network& network, ShardsTables& tables, distributed::World& world)
      : rows(network, tables, world), tables_(tables), world_(world) {}

  ShardsTables& tables_;
  distributed::World& world_;
};

}  // namespace trainyard::train
