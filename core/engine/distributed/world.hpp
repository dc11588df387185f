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

  /// How the ranks know that each is alive.
  struct Pulse {
    Milliseconds beat{500};
    Milliseconds silence{8000};  ///< of a rank, after which it is told
  };

  /// Waits until all ranks are there, `timeout` at most, as for a rank that falls silent later. The process
  /// ignores SIGPIPE from then on. Throws DistributedError.
  World(config::RankPlace place, Milliseconds timeout, Pulse pulse);
  ~World() override;

  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }
  int local_rank() const override { return place_.local_rank; }
  /// 1 where the machines have not all as many.
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
  /// Throws where a rank says in agree() why it does not come.
  std::unique_ptr<RankGroup> group(const std::vector<int>& ranks) override;
  /// What keeps the first rank from going on that has such trouble, the same on all; empty where none has. All ranks
  /// call it behind what may have made groups, and may have failed on one of them. A collective that waits.
  std::string agree(const std::string& trouble);

  /// On GPUs the first exchange takes seconds: `device`, of the run, has it here, on all ranks. Throws
  /// ConfigError where this build cannot.
  void connect(at::Device device);
  /// The host waits for all that was exchanged on the device, not the device alone: ahead of reading what
  /// came of it. Throws DistributedError.
  void settle() { under_way_.settle(*this); }

  /// Tells the launcher that this rank can go on without one that is killed. Not where another program has
  /// started the ranks.
  void replace_lost();
  bool replaces_lost() const { return replaces_; }
  /// Whether this process has taken the place of one that was killed, and has not met the others yet: it
  /// calls no collective before meet_again().
  bool newcomer() const { return met_ < place_.replacement; }
  /// Whether somebody has groups of ranks (group), which end where a rank is lost.
  bool has_groups() const { return lent_; }
  /// Where an exchange failed (exchange_failed): waits until who was lost is replaced and all ranks are there
  /// again. Gives what each says of itself. Groups made before serve no more. Throws DistributedError where
  /// no process comes, or where a rank failed by itself.
  std::vector<std::string> meet_again(std::string_view own);
  /// The number of a signal, once there is one: such waits end by it, some seconds after they have begun.
  void heed(const std::atomic<int>& signal) { signal_ = &signal; }
  /// Since the last meeting: another rank may be gone.
  bool exchange_failed() const;
  /// What rank `root` gives, on the ranks of `group` alone; `root` is among them, and all ranks call it.
  std::string share(std::string_view own, int root, const std::vector<int>& group);

  /// What each rank gives, in their order. A collective that waits.
  std::vector<std::string> gather(std::string_view own) { return trainyard::gather(*this, own); }
  /// What rank 0 gives; others give nothing. A collective that waits.
  std::string from_first(std::string_view own) {
    return gather(rank() == 0 ? own : std::string_view()).front();
  }

  /// Says to the others why this rank leaves them; they stop waiting for it. Once, and last.
  void fail(const std::string& why) noexcept;
  DistributedError explain(const std::string& what) override;
  /// Called, on a thread that waits for a collective, with each rank that has become silent.
  void on_silence(std::function<void(const std::string& what)> tell) { tell_ = std::move(tell); }
  /// Throws where a rank has been silent for as long as the timeout or has failed, and where the others have
  /// left to meet again.
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
  std::function<void(const std::string&)> tell_;
  const std::atomic<int>* signal_ = nullptr;
  SteadyClock::time_point heeds_from_;
  std::atomic<int> silent_{-1};         ///< a rank, not told yet
  std::atomic<int> lost_{-1};           ///< one that has been silent for too long
  std::atomic<int> called_{0};          ///< the newest replacement that the heartbeat has heard of
  std::atomic<bool> said_{false};       ///< a rank has said why it failed
  std::atomic<bool> storeless_{false};  ///< the store has not answered the heartbeat for the timeout
  std::jthread heart_;                  ///< last: ends before what it uses
};

/// Null for a run of one rank.
std::unique_ptr<World> join(std::chrono::milliseconds timeout);

}  // namespace trainyard::distributed
