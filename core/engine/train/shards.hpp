// The rows of a run's tables that lie on different ranks (ShardsTables): whole where weights are looked at or
// saved, a rank's own where they are loaded.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include <trainyard/named_tensor.hpp>
#include <trainyard/network.hpp>
#include <trainyard/optimizer.hpp>
#include <trainyard/sharded.hpp>
#include <trainyard/state.hpp>

#include "core/engine/distributed/world.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::train {

/// Parameters that every rank has alike, and those of which it has its own rows.
struct Parameters {
  std::vector<NamedTensor> replicated;
  std::vector<at::Tensor> sharded;
};
Parameters parameters_of(const Network& network);

/// Loop thread. Who gathers, waits for all ranks.
class Shards {
 public:
  /// Null where the network has no such tables. Throws ConfigError for what a run with them cannot have.
  /// `network` and `world` outlive it.
  static std::unique_ptr<Shards> of(Network& network, distributed::World* world,
                                    const config::RunConfig& config);

  /// Whole tables, for evaluations too, until release().
  void gather();
  void release();

  /// With whole tables, where they are gathered.
  std::vector<NamedTensor> whole(std::vector<NamedTensor> weights) const;
  /// Of the optimizer: what it has of each row, of all ranks. Gathers.
  State gathered(State state) const;
  /// What a rank has of a whole table, or of what an optimizer has of its rows; anything else as it is.
  at::Tensor own(std::string_view name, const at::Tensor& whole) const;
  /// What a rank has of saved states; what they lack of a table stays as `now` has it.
  std::vector<State> own(std::vector<State> states, const std::vector<State>& now) const;
  /// Without anything of the tables.
  std::vector<State> without(std::vector<State> states) const;

 private:
  Shards(Network& network, ShardsTables& tables, distributed::World& world)
      : network_(network), tables_(tables), world_(world), all_(tables.sharded()) {}
  const ShardedTable* table_of(std::string_view name) const;
  at::Tensor gathered(const at::Tensor& own, std::int64_t rows) const;

  Network& network_;
  ShardsTables& tables_;
  distributed::World& world_;
  const std::vector<ShardedTable> all_;
  std::vector<at::Tensor> whole_;  ///< in the order of all_; empty: not gathered
};

}  // namespace trainyard::train
