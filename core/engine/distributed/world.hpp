// The ranks of a run, by c10d: a store that all of them reach (TCPStore), and collectives (Gloo).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <trainyard/ranks.hpp>

#include "core/runfile/rank_place.hpp"

namespace trainyard::distributed {

class World final : public Ranks {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// How the ranks know that each is alive.
  struct Pulse {
    Milliseconds beat{500};
    Milliseconds silence{8000};  ///< of a rank, after which it is told
  };

  /// Waits until all ranks are there, `timeout` at most. Throws DistributedError.
  World(config::RankPlace place, Milliseconds timeout, Pulse pulse);
  ~World() override;

  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }
  int local_rank() const override { return place_.local_rank; }
  int local_size() const override { return place_.local_size; }
  std::unique_ptr<Exchange> all_reduce(const at::Tensor& tensor) override;
  std::unique_ptr<Exchange> all_gather(const at::Tensor& all, const at::Tensor& own) override;
  std::unique_ptr<Exchange> reduce_scatter(const at::Tensor& own, const at::Tensor& all) override;
  std::unique_ptr<Exchange> broadcast(const at::Tensor& tensor, int root) override;
  std::unique_ptr<RankGroup> group(const std::vector<int>& ranks) override;

  /// What each rank gives, in their order. A collective that waits.
  std::vector<std::string> gather(std::string_view own);
  /// What rank 0 gives; others give nothing. A collective that waits.
  std::string from_first(std::string_view own);

  /// Says to the others why this rank leaves them; they stop waiting for it. Once, and last.
  void fail(const std::string& why) noexcept;
  /// What the host is to tell of the failure of a collective: the rank that is to blame, and what it said.
  DistributedError explain(const std::string& what);
  /// Called, on a thread that waits for a collective, with each rank that has become silent.
  void on_silence(std::function<void(const std::string& what)> tell) { tell_ = std::move(tell); }
  /// Tells of a rank that has become silent; throws where one has been so for as long as the timeout.
  void check_silence();

 private:
  struct Connection;
  void watch(const std::stop_token& stop);
  void leave() noexcept;
  void linger() noexcept;

  const config::RankPlace place_;
  const Milliseconds timeout_;
  const Pulse pulse_;
  std::unique_ptr<Connection> connection_;
  int groups_ = 0;
  std::function<void(const std::string&)> tell_;
  std::atomic<int> silent_{-1};  ///< a rank, not told yet
  std::atomic<int> lost_{-1};    ///< one that has been silent for too long
  std::jthread heart_;           ///< last: ends before what it uses
};

/// Null for a run of one rank.
std::unique_ptr<World> join(std::chrono::milliseconds timeout);

}  // namespace trainyard::distributed
