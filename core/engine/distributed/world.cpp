#include "core/engine/distributed/world.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <pthread.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

namespace trainyard::distributed {
namespace {

using Milliseconds = World::Milliseconds;
using SteadyClock = std::chrono::steady_clock;
using Bytes = std::vector<std::uint8_t>;
using Backend = c10::intrusive_ptr<c10d::Backend>;

constexpr auto grace = Milliseconds(3000);  ///< for the one that failed to say why
constexpr const char* failed_key = "failed";

Bytes bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

std::string alive_key(int rank) {
  return "alive/" + std::to_string(rank);
}

/// It has read why the run ends.
std::string told_key(int rank) {
  return "told/" + std::to_string(rank);
}

/// What of an error of c10d or Gloo is worth a user's while: its first line, without where in their sources.
std::string first_line(std::string what) {
  what = what.substr(0, what.find('\n'));
  if (what.starts_with("[")) what = what.substr(std::min(what.find("] ") + 2, what.size()));
  return what;
}

/// Waits in pieces, so that a rank that only went silent is noticed too.
class Work final : public Exchange {
 public:
  Work(c10::intrusive_ptr<c10d::Work> work, World& world) : work_(std::move(work)), world_(world) {}

  void wait() override {
    while (!wait_a_second()) world_.check_silence();
  }

 private:
  /// Whether it is done. Throws where it failed.
  bool wait_a_second() {
    const bool ended = work_->isCompleted();  // asked first: it may end while the wait gives up
    try {
      return work_->wait(Milliseconds(1000));
    } catch (const std::exception& error) {
      if (ended) throw world_.explain(error.what());
      return false;
    }
  }

  c10::intrusive_ptr<c10d::Work> work_;
  World& world_;
};

/// The collectives of a c10d backend.
class Group final : public RankGroup {
 public:
  Group(Backend backend, World& world) : backend_(std::move(backend)), world_(world) {}

  int rank() const override { return backend_->getRank(); }
  int size() const override { return backend_->getSize(); }

  std::unique_ptr<Exchange> all_reduce(const at::Tensor& tensor) override {
    return begin([&] {
      std::vector<at::Tensor> tensors{tensor};
      return backend_->allreduce(tensors);
    });
  }
  std::unique_ptr<Exchange> all_gather(const at::Tensor& all, const at::Tensor& own) override {
    return begin([&] {
      at::Tensor output = all, input = own;
      return backend_->_allgather_base(output, input);
    });
  }
  std::unique_ptr<Exchange> reduce_scatter(const at::Tensor& own, const at::Tensor& all) override {
    return begin([&] {
      at::Tensor output = own, input = all;
      return backend_->_reduce_scatter_base(output, input);
    });
  }
  std::unique_ptr<Exchange> broadcast(const at::Tensor& tensor, int root) override {
    return begin([&] {
      std::vector<at::Tensor> tensors{tensor};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      return backend_->broadcast(tensors, options);
    });
  }

 private:
  template <class Begin>
  std::unique_ptr<Exchange> begin(Begin&& begin) {
    try {
      return std::make_unique<Work>(begin(), world_);
    } catch (const std::exception& error) {
      throw world_.explain(error.what());
    }
  }

  Backend backend_;
  World& world_;
};

}  // namespace

struct World::Connection {
  c10::intrusive_ptr<c10d::Store> store;  ///< of the loop's thread
  c10::intrusive_ptr<c10d::Store> beats;  ///< another connection, which no wait of that thread holds up
  std::unique_ptr<Group> all;
  std::atomic<bool> failed{false};  ///< this rank or another: what is under way may never end

  Connection(const config::RankPlace& place, Milliseconds timeout) {
    c10d::TCPStoreOptions options;
    options.port = place.port;
    options.isServer = place.serves;
    options.numWorkers = place.size;
    options.waitWorkers = false;
    options.timeout = timeout;
    options.masterListenFd = place.listening;
    const auto base = c10::make_intrusive<c10d::TCPStore>(place.address, options);
    const std::string prefix = "trainyard/" + place.start;
    store = c10::make_intrusive<c10d::PrefixStore>(prefix, base);
    beats = c10::make_intrusive<c10d::PrefixStore>(prefix, base->clone());
  }

  Backend make(const config::RankPlace& place, const std::string& name, int rank, int size,
               Milliseconds timeout) const {
    auto options = c10d::ProcessGroupGloo::Options::create(timeout);
    // Ranks of one machine need no name of it that resolves.
    options->devices.push_back(place.local_size == place.size
                                   ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                   : c10d::ProcessGroupGloo::createDefaultDevice());
    auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>(name, store), rank, size, std::move(options));
    // Until all of them are there: one that leaves again at once would pass for one that never came.
    std::vector<at::Tensor> there{at::zeros({1})};
    group->allreduce(there)->wait();
    return group;
  }
};

World::World(config::RankPlace place, Milliseconds timeout, Pulse pulse)
    : place_(std::move(place)), timeout_(timeout), pulse_(pulse) {
  try {
    connection_ = std::make_unique<Connection>(place_, timeout_);
    connection_->store->set(alive_key(place_.rank), bytes("0"));
    connection_->all =
        std::make_unique<Group>(connection_->make(place_, "all", place_.rank, place_.size, timeout_), *this);
  } catch (const std::exception& error) {
    std::string missing;
    for (int rank = 0; connection_ && rank < place_.size; ++rank) try {
        if (!connection_->store->check({alive_key(rank)})) missing += " " + std::to_string(rank);
      } catch (const std::exception&) {
        break;
      }
    throw DistributedError(
        "rank " + std::to_string(place_.rank) + " of " + std::to_string(place_.size) +
        " did not find the others at " + place_.address + ":" + std::to_string(place_.port) +
        (missing.empty() ? "" : "; never seen: rank" + missing) + ": " + first_line(error.what()));
  }
  heart_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

World::~World() {
  if (connection_ && connection_->failed) leave();
}

/// Where something is still under way, the end of it must not be waited for: whoever it waits for may be gone.
void World::leave() noexcept {
  try {
    std::thread([all = std::move(connection_->all)]() mutable { all.reset(); }).detach();
  } catch (const std::exception&) {
    // No thread to be had: waited for, after all.
  }
}

std::unique_ptr<Exchange> World::all_reduce(const at::Tensor& tensor) {
  return connection_->all->all_reduce(tensor);
}

std::unique_ptr<Exchange> World::all_gather(const at::Tensor& all, const at::Tensor& own) {
  return connection_->all->all_gather(all, own);
}

std::unique_ptr<Exchange> World::reduce_scatter(const at::Tensor& own, const at::Tensor& all) {
  return connection_->all->reduce_scatter(own, all);
}

std::unique_ptr<Exchange> World::broadcast(const at::Tensor& tensor, int root) {
  return connection_->all->broadcast(tensor, root);
}

std::unique_ptr<RankGroup> World::group(const std::vector<int>& ranks) {
  const std::string name = "group/" + std::to_string(groups_++);
  const auto self = std::ranges::find(ranks, place_.rank);
  if (self == ranks.end()) return nullptr;
  try {
    return std::make_unique<Group>(connection_->make(place_, name, static_cast<int>(self - ranks.begin()),
                                                     static_cast<int>(ranks.size()), timeout_),
                                   *this);
  } catch (const std::exception& error) {
    throw explain(error.what());
  }
}

std::vector<std::string> World::gather(std::string_view own) {
  const at::Tensor length = at::empty({1}, at::kLong), lengths = at::empty({size()}, at::kLong);
  *length.mutable_data_ptr<std::int64_t>() = std::ssize(own);
  all_gather(lengths, length)->wait();
  const std::int64_t* each = lengths.const_data_ptr<std::int64_t>();
  const std::int64_t longest = std::max<std::int64_t>(1, *std::max_element(each, each + size()));
  const at::Tensor text = at::zeros({longest}, at::kByte), texts = at::empty({longest * size()}, at::kByte);
  std::memcpy(text.mutable_data_ptr(), own.data(), own.size());
  all_gather(texts, text)->wait();
  std::vector<std::string> all;
  for (int rank = 0; rank < size(); ++rank)
    all.emplace_back(static_cast<const char*>(texts.const_data_ptr()) + rank * longest,
                     static_cast<std::size_t>(each[rank]));
  return all;
}

std::string World::from_first(std::string_view own) {
  return gather(rank() == 0 ? own : std::string_view()).front();
}

void World::fail(const std::string& why) noexcept {
  connection_->failed = true;
  try {
    const std::string text = "rank " + std::to_string(place_.rank) + " failed: " + why;
    connection_->store->compareSet(failed_key, {}, bytes(text));
  } catch (const std::exception&) {
    // The store is gone with the rank that held it: they know.
  }
  leave();  // closes what the others wait at
  linger();
}

/// Of the rank that holds the store: the others are to read there why the run ends.
void World::linger() noexcept {
  try {
    c10d::Store& store = *connection_->store;
    store.set(told_key(place_.rank), bytes("yes"));
    std::vector<std::string> all;
    for (int rank = 0; rank < size(); ++rank) all.push_back(told_key(rank));
    const auto until = SteadyClock::now() + grace;
    while (place_.serves && SteadyClock::now() < until && !store.check(all))
      std::this_thread::sleep_for(Milliseconds(20));
  } catch (const std::exception&) {
    // Nobody reads there any more.
  }
}

DistributedError World::explain(const std::string& what) {
  connection_->failed = true;
  const auto until = SteadyClock::now() + grace;
  std::vector<Bytes> before(static_cast<std::size_t>(size()));
  try {
    for (int rank = 0; rank < size(); ++rank)
      before[static_cast<std::size_t>(rank)] = connection_->store->get(alive_key(rank));
    while (SteadyClock::now() < until) {
      if (connection_->store->check({failed_key})) {
        const Bytes text = connection_->store->get(failed_key);
        linger();
        return DistributedError(std::string(text.begin(), text.end()));
      }
      std::this_thread::sleep_for(Milliseconds(50));
    }
    for (int rank = 0; rank < size(); ++rank)
      if (connection_->store->get(alive_key(rank)) == before[static_cast<std::size_t>(rank)])
        return DistributedError("rank " + std::to_string(rank) + " is gone, without a word (" +
                                first_line(what) + ")");
  } catch (const std::exception&) {
    return DistributedError("the store at " + place_.address + ":" + std::to_string(place_.port) +
                            " is gone, with rank 0 or the launcher that held it (" + first_line(what) + ")");
  }
  return DistributedError("an exchange between the ranks failed: " + first_line(what));
}

void World::check_silence() {
  const auto no_sign = [](int rank, Milliseconds time) {
    return "rank " + std::to_string(rank) + " has given no sign of life for " +
           std::to_string(time.count() / 1000) + " s";
  };
  if (const int rank = silent_.exchange(-1); rank >= 0 && tell_)
    tell_(no_sign(rank, pulse_.silence) + "; the others wait for it");
  if (const int rank = lost_; rank >= 0)
    throw DistributedError(no_sign(rank, timeout_) + " (distributed.timeout)");
}

/// Says that this rank is alive, and listens for the others.
void World::watch(const std::stop_token& stop) {
  pthread_setname_np(pthread_self(), "heartbeat");
  struct Seen {
    Bytes beat;
    SteadyClock::time_point at = SteadyClock::now();
    bool told = false;
  };
  std::vector<Seen> seen(static_cast<std::size_t>(size()));
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  for (std::int64_t beats = 1;
       !wake.wait_for(lock, stop, pulse_.beat, [] { return false; }) && !stop.stop_requested(); ++beats)
    try {
      c10d::Store& store = *connection_->beats;
      store.set(alive_key(place_.rank), bytes(std::to_string(beats)));
      for (int rank = 0; rank < size(); ++rank) {
        Seen& other = seen[static_cast<std::size_t>(rank)];
        Bytes now = store.check({alive_key(rank)}) ? store.get(alive_key(rank)) : Bytes();
        if (now != other.beat) other = {std::move(now)};
        const auto since = SteadyClock::now() - other.at;
        if (since > pulse_.silence && !std::exchange(other.told, true)) silent_ = rank;
        if (since > std::max(timeout_, pulse_.silence)) lost_ = rank;
      }
    } catch (const std::exception&) {
      return;  // the store is gone; the next collective tells
    }
}

std::unique_ptr<World> join(Milliseconds timeout) {
  config::RankPlace place = config::RankPlace::of_process();
  return place.size == 1 ? nullptr : std::make_unique<World>(std::move(place), timeout, World::Pulse());
}

}  // namespace trainyard::distributed
