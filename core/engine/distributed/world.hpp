// The ranks of a run, by c10d: a store that all of them reach (TCPStore), and collectives (Gloo; on GPUs
// NCCL).
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <c10/core/Device.h>

#include <trainyard/helpers/gather.hpp>
#include <trainyard/ranks.hpp>

#include "core/engine/distributed/lookout.hpp"
#include "core/engine/distributed/under_way.hpp"
#include "core/runfile/rank_place.hpp"

namespace trainyard::distributed {

class World final : public Ranks, public Lookout {
 public:
  using Milliseconds = std::chrono::milliseconds;
  using SteadyClock = std::chrono::steady_clock;

  /// How the ranks know that each is alive: by heartbeats.
  struct Pulse {
    Milliseconds beat{500};
    Milliseconds silence{8000};  ///< time without a heartbeat after which a rank is reported
  };

  /// Waits until all ranks are there, at most for `timeout`, which also holds for a rank that falls silent
  /// later. The process ignores SIGPIPE from then on. Throws DistributedError.
  World(config::RankPlace place, Milliseconds timeout, Pulse pulse);
  ~World() override;

  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }
  int local_rank() const override { return place_.local_rank; }
  /// Returns the number of ranks on this machine; 1 if the machines have different numbers.
  int local_size() const override { return local_size_; }
  std::unique_ptr<Exchange> all_reduce(const at::Tensor& tensor) override {
    return everybody().all_reduce(tensor);
  }
  std::unique_ptr<Exchange> all_gather(const at::Tensor& all, const at::Tensor& own) override {
    return everybody().all_gather(all, own);
  }
  std::unique_ptr<Exchange> reduce_scatter(const at::Tensor& own, const at::Tensor& all) override {
    return everybody().reduce_scatter(own, all);
  }
  std::unique_ptr<Exchange> broadcast(const at::Tensor& tensor, int root) override {
    return everybody().broadcast(tensor, root);
  }
  /// Throws if a rank says in agree() why it does not come.
  std::unique_ptr<RankGroup> group(const std::vector<int>& ranks) override;
  /// Returns the trouble of the first rank that has some, the same on all ranks; empty if none has. All ranks
  /// call it after code that may have made groups and may have failed on one of them. A blocking collective.
  std::string agree(const std::string& trouble);

  /// Makes the first exchange on `device`, the run's, on all ranks, as on GPUs that takes seconds. Throws
  /// ConfigError if this build cannot.
  void connect(at::Device device);
  /// Blocks the host, not only the device, until all exchanges on the device are complete; called before
  /// their results are read. Throws DistributedError.
  void settle() { under_way_.settle(*this); }

  /// Tells the launcher that this rank can go on without one that is killed (rank recovery). Has no effect if
  /// another program has started the ranks.
  void replace_lost();
  bool replaces_lost() const { return replaces_; }
  /// Returns true if this process has taken the place of a killed rank and has not met the others yet: it
  /// calls no collective before meet_again().
  bool newcomer() const { return met_ < place_.replacement; }
  /// Returns true if somebody has made groups of ranks (group), which end when a rank is lost.
  bool has_groups() const { return lent_; }
  /// Called after an exchange failed (exchange_failed): waits until lost ranks are replaced and all ranks are
  /// there again. Returns what each says of itself. Earlier groups are of no use any more. Throws
  /// DistributedError if no process takes the place, or if a rank failed by itself.
  std::vector<std::string> meet_again(std::string_view own);
  /// `signal` holds a signal's number once there is one: it ends such waits some seconds after they began.
  void heed(const std::atomic<int>& signal) { signal_ = &signal; }
  /// Returns true if an exchange failed since the last meeting: another rank may be gone.
  bool exchange_failed() const;
  /// Returns what rank `root` gives to the ranks of `group`, it among them; "" elsewhere. All ranks call it.
  std::string share(std::string_view own, int root, const std::vector<int>& group);

  /// Returns what each rank gives, in their order. A blocking collective.
  std::vector<std::string> gather(std::string_view own) { return trainyard::gather(*this, own); }
  /// Returns what rank 0 gives; the others give nothing. A blocking collective.
  std::string from_first(std::string_view own) {
    return gather(rank() == 0 ? own : std::string_view()).front();
  }

  /// Tells the others why this rank leaves them; they stop waiting for it. Called once, as the last call.
  void fail(const std::string& why) noexcept;
  DistributedError explain(const std::string& what) override;
  /// `tell` is called with each rank that has become silent, on a thread that waits for a collective.
  void on_silence(std::function<void(const std::string& what)> warn) { warn_ = std::move(warn); }
  /// Throws if a rank has been silent for the timeout or has failed, if the store has not answered for as
  /// long, or if the others have left to meet again.
  void check_others() override;
  Milliseconds pause() const override { return Milliseconds(replaces_ ? 200 : 1000); }

 private:
  struct Connection;
  RankGroup& everybody();
  std::unique_ptr<RankGroup> make_group(const std::vector<int>& ranks);
  void await_members(const std::string& group, const std::vector<int>& ranks);
  std::string trouble_key() const;
  std::vector<std::string> meet(std::string_view own, SteadyClock::time_point until);
  bool await(int meeting, SteadyClock::time_point until) const;
  int called() const;
  bool told_to_end() const { return signal_ && *signal_ > 0 && SteadyClock::now() > heeds_from_; }
  void drop_dead_store() noexcept;
  std::optional<std::string> last_words() const noexcept;
  DistributedError blame(const std::string& what);
  std::string prefix() const;
  void watch(const std::stop_token& stop);
  void leave() noexcept;
  void linger() noexcept;

  const config::RankPlace place_;
  int local_size_;
  const Milliseconds timeout_;
  const Pulse pulse_;
  UnderWay under_way_;
  std::unique_ptr<Connection> connection_;
  int groups_ = 0;
  bool lent_ = false;
  int agreements_ = 0;
  bool replaces_ = false;
  int met_ = 0;  ///< the number of the last replacement whose meeting this rank came to
  std::function<void(const std::string&)> warn_;
  const std::atomic<int>* signal_ = nullptr;
  SteadyClock::time_point heeds_from_;
  std::atomic<int> silent_{-1};         ///< a silent rank that is not reported yet; -1: none
  std::atomic<int> lost_{-1};           ///< a rank that has been silent for too long; -1: none
  std::atomic<int> called_{0};          ///< the newest replacement that the heartbeat has heard of
  std::atomic<bool> said_{false};       ///< a rank has said why it failed
  std::atomic<bool> storeless_{false};  ///< the store has not answered the heartbeat for the timeout
  std::jthread heart_;                  ///< the last member: it ends before what it uses
};

/// Joins the ranks that the environment of the process names. Returns null for a run of one rank.
std::unique_ptr<World> join(std::chrono::milliseconds timeout);

}  // namespace trainyard::distributed
