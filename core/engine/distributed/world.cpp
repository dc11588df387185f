#include "core/engine/distributed/world.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Logging.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <utility>

#include "core/engine/distributed/group.hpp"
#include "core/engine/distributed/nccl.hpp"

namespace trainyard::distributed {
namespace {

using Milliseconds = World::Milliseconds;
using Bytes = std::vector<std::uint8_t>;

constexpr auto grace = Milliseconds(3000);         ///< time for a rank that failed to say why
constexpr auto patience = Milliseconds(30'000);    ///< time for a process to take the place of a killed rank
constexpr auto heeding = Milliseconds(5000);       ///< time after which a signal ends a wait for the others
constexpr auto reconnecting = Milliseconds(1000);  ///< time for the heartbeat to reach the store again
constexpr auto endless = std::chrono::hours(24 * 365);
constexpr const char* failed_key = "failed";
constexpr const char* called_key = "replacement";  ///< number of the newest replacement

Bytes bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

std::string text(const Bytes& bytes) {
  return {bytes.begin(), bytes.end()};
}

std::string alive_key(int rank) {
  return "alive/" + std::to_string(rank);
}

/// Returns the key by which a rank says that it has read why the run ends.
std::string told_key(int rank) {
  return "told/" + std::to_string(rank);
}

/// Returns the key by which a rank says that it waits for the others in the meeting of a replacement.
std::string there_key(int meeting, int rank) {
  return "there/" + std::to_string(meeting) + "/" + std::to_string(rank);
}

/// Returns what helps a user of an error of c10d or Gloo: its first line, without the place in their sources.
std::string first_line(std::string what) {
  what = what.substr(0, what.find('\n'));
  if (what.starts_with("[")) what = what.substr(std::min(what.find("] ") + 2, what.size()));
  return what;
}

/// Returns each rank's last heartbeat, by a single request: with one per rank the store would get, each beat,
/// the square of their number. Blocks until every rank has sent one.
std::vector<Bytes> signs_of_life(c10d::Store& store, int ranks) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < ranks; ++rank) keys.push_back(alive_key(rank));
  return store.multiGet(keys);
}

/// Makes Gloo's connections and the thread that waits at them. While another thread of this rank sends, that
/// thread asks for events in a loop; as a batch thread it does not take the core from the one that sends.
std::shared_ptr<gloo::transport::Device> make_device(bool one_machine) {
  const auto make = [=] {
    const sched_param none{};
    if (sched_getscheduler(0) == SCHED_OTHER)
      sched_setscheduler(0, SCHED_BATCH, &none);                                       // Gloo's inherits it
    return one_machine ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")  // which resolves
                       : c10d::ProcessGroupGloo::createDefaultDevice();
  };
  return std::async(std::launch::async, make).get();
}

}  // namespace

struct World::Connection {
  c10::intrusive_ptr<c10d::Store> store;  ///< used by the loop's thread
  c10::intrusive_ptr<c10d::Store> beats;  ///< the heartbeat's connection, which no wait of that thread blocks
  std::unique_ptr<Group> all;
  std::atomic<bool> failed{false};  ///< on this rank or another: what is under way may never end

  Connection(const config::RankPlace& place, Milliseconds timeout)
      : store(open(place, timeout, place.serves)), beats(open(place, timeout, false)) {}

  /// `timeout` bounds each wait at the store.
  static c10::intrusive_ptr<c10d::Store> open(const config::RankPlace& place, Milliseconds timeout,
                                              bool serves) {
    c10d::TCPStoreOptions options;
    options.port = place.port;
    options.isServer = serves;
    options.numWorkers = place.size;
    options.waitWorkers = false;
    options.timeout = timeout;
    options.masterListenFd = place.listening;
    return c10::make_intrusive<c10d::PrefixStore>(
        "trainyard/" + place.start, c10::make_intrusive<c10d::TCPStore>(place.address, options));
  }

  std::unique_ptr<Group> make(World& world, const std::string& name, int rank, int size) const {
    const config::RankPlace& place = world.place_;
    const auto of_group = c10::make_intrusive<c10d::PrefixStore>(name, store);
    auto options = c10d::ProcessGroupGloo::Options::create(world.timeout_);
    options->devices.push_back(make_device(place.local_size == place.size));
    const auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(of_group, rank, size, std::move(options));
    // Wait until all of them are there: one that leaves again at once would pass for one that never came.
    std::vector<at::Tensor> there{at::zeros({1})};
    gloo->allreduce(there)->wait();
    // A rank that waits while another is paused is in no trouble: from here on heartbeats tell who is alive.
    gloo->setTimeout(endless);
    const auto nccl = [=, timeout = world.timeout_] {
      const c10::intrusive_ptr<c10d::Store> own = c10::make_intrusive<c10d::PrefixStore>("nccl", of_group);
      return Backend::reclaim(load_nccl(nccl_library())(own, rank, size, timeout));
    };
    return std::make_unique<Group>(gloo, nccl, world, world.under_way_);
  }
};

World::World(config::RankPlace place, Milliseconds timeout, Pulse pulse)
    : place_(std::move(place)), local_size_(place_.local_size), timeout_(timeout), pulse_(pulse) {
  // Gloo writes to a rank that may be gone: an error of the exchange is to come of it, not the process's end.
  ::signal(SIGPIPE, SIG_IGN);
  try {
    connection_ = std::make_unique<Connection>(place_, newcomer() ? patience : timeout_);
    connection_->store->set(alive_key(place_.rank), bytes("0"));
    if (newcomer()) {  // the others hear at once that it comes
      called();
      return;
    }
    connection_->all = connection_->make(*this, "all", place_.rank, place_.size);
    for (const std::string& each : gather(std::to_string(place_.local_size)))
      if (std::stoi(each) != place_.local_size || place_.size % place_.local_size != 0) local_size_ = 1;
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

void World::replace_lost() {
  c10::initLogging();  // TORCH_CPP_LOG_LEVEL: c10d would tell of each lost connection, with its stack
  const std::int32_t rank = place_.rank;
  replaces_ = newcomer() || (place_.launcher && write(*place_.launcher, &rank, sizeof rank) == sizeof rank);
}

RankGroup& World::everybody() {
  if (!connection_ || !connection_->all) throw DistributedError("the ranks are not together");
  return *connection_->all;
}

/// Gives up the group of all ranks without waiting for what is under way: who it waits for may be gone.
void World::leave() noexcept {
  under_way_.abort();
  try {
    std::thread([all = std::move(connection_->all)]() mutable { all.reset(); }).detach();
  } catch (const std::exception&) {
    // No thread could be started: this has waited, after all.
  }
}

void World::connect(at::Device device) {
  if (device.is_cpu() || newcomer()) return;  // a newcomer connects once it has met the others
  all_reduce(at::zeros({1}, device))->wait();
  settle();
}

std::unique_ptr<RankGroup> World::group(const std::vector<int>& ranks) {
  lent_ = true;
  return make_group(ranks);
}

std::unique_ptr<RankGroup> World::make_group(const std::vector<int>& ranks) {
  const std::string name = prefix() + "group/" + std::to_string(groups_++);
  const auto self = std::ranges::find(ranks, place_.rank);
  if (self == ranks.end()) return nullptr;
  await_members(name, ranks);
  return explained([&] {
    return connection_->make(*this, name, static_cast<int>(self - ranks.begin()),
                             static_cast<int>(ranks.size()));
  });
}

/// Waits until all members have come to make a group; throws the trouble of one that does not come.
void World::await_members(const std::string& group, const std::vector<int>& ranks) {
  const auto key_of = [&](int rank) { return "at/" + group + "/" + std::to_string(rank); };
  std::vector<std::string> all;
  for (const int each : ranks) all.push_back(key_of(each));
  const auto until = SteadyClock::now() + timeout_;
  explained([&] {
    c10d::Store& store = *connection_->store;
    store.set(key_of(rank()), bytes("there"));
    for (; !store.check(all); std::this_thread::sleep_for(Milliseconds(5))) {
      if (store.check({trouble_key()})) throw DistributedError(text(store.get(trouble_key())));
      if (store.check({failed_key}) || SteadyClock::now() > until)
        throw explain("no group of ranks was made");
      check_others();
    }
  });
}

std::string World::trouble_key() const {
  return prefix() + "trouble/" + std::to_string(agreements_);
}

std::string World::agree(const std::string& trouble) {
  return explained([&] {
    c10d::Store& store = *connection_->store;
    if (!trouble.empty())
      store.compareSet(trouble_key(), {}, bytes("rank " + std::to_string(rank()) + ": " + trouble));
    // A rank in trouble has come to fewer groups: all go on from the same count.
    for (const std::string& each : gather(std::to_string(groups_)))
      groups_ = std::max(groups_, std::stoi(each));
    const std::string key = trouble_key();
    ++agreements_;
    return store.check({key}) ? text(store.get(key)) : "";
  });
}

std::string World::share(std::string_view own, int root, const std::vector<int>& group) {
  const std::unique_ptr<RankGroup> members = make_group(group);
  if (!members) return {};
  const auto place = static_cast<int>(std::ranges::find(group, root) - group.begin());
  const at::Tensor length = at::empty({1}, at::kLong);
  *length.mutable_data_ptr<std::int64_t>() = std::ssize(own);
  members->broadcast(length, place)->wait();
  const at::Tensor text = at::empty({*length.const_data_ptr<std::int64_t>()}, at::kByte);
  if (rank() == root) std::memcpy(text.mutable_data_ptr(), own.data(), own.size());
  if (text.numel() > 0) members->broadcast(text, place)->wait();
  return {static_cast<const char*>(text.const_data_ptr()), text.nbytes()};
}

// ---- rank recovery

/// Returns the prefix of the store's keys since the last meeting.
std::string World::prefix() const {
  return met_ == 0 ? "" : "meeting/" + std::to_string(met_) + "/";
}

/// Returns the number of the newest replacement that any process knows of, this one's own included. The
/// launcher counts them.
int World::called() const {
  c10d::Store& store = *connection_->store;
  for (;;) {
    const Bytes known = store.check({called_key}) ? store.get(called_key) : Bytes();
    const int newest = known.empty() ? 0 : std::stoi(text(known));
    if (newest >= place_.replacement) return newest;
    store.compareSet(called_key, known, bytes(std::to_string(place_.replacement)));
  }
}

/// Waits until all ranks are in a meeting; returns false if another is called, or the wait has to end.
bool World::await(int meeting, SteadyClock::time_point until) const {
  c10d::Store& store = *connection_->store;
  store.set(alive_key(rank()), bytes("0"));  // the store may be a new one
  store.set(there_key(meeting, rank()), bytes("yes"));
  std::vector<std::string> all;
  for (int each = 0; each < size(); ++each) all.push_back(there_key(meeting, each));
  while (!store.check(all)) {
    if (called() != meeting || store.check({failed_key}) || told_to_end() || SteadyClock::now() > until)
      return false;
    std::this_thread::sleep_for(Milliseconds(10));
  }
  return true;
}

/// Tries one meeting of all ranks; returns nothing if they do not come together this time.
std::vector<std::string> World::meet(std::string_view own, SteadyClock::time_point until) {
  if (!connection_) connection_ = std::make_unique<Connection>(place_, heeding);  // meet_again() retries
  const int meeting = called();
  if (meeting <= met_) return {};
  // The others come at their next exchange, which may be long after what they do now.
  if (!await(meeting, std::max(until, SteadyClock::now() + timeout_))) return {};
  met_ = meeting;
  called_ = meeting;
  groups_ = agreements_ = 0;
  connection_->failed = false;
  connection_->all = connection_->make(*this, prefix() + "all", rank(), size());
  return gather(own);
}

std::vector<std::string> World::meet_again(std::string_view own) {
  const auto until = SteadyClock::now() + patience;
  heeds_from_ = SteadyClock::now() + heeding;
  heart_ = {};
  std::string why = "no process took the place of one that is gone";
  while (SteadyClock::now() < until) {
    if (told_to_end()) throw DistributedError("a rank was lost, and a signal ended the wait for another one");
    try {
      if (connection_) leave();  // whoever waits for this rank there goes to the meeting as well
      std::vector<std::string> all = meet(own, until);
      if (!all.empty()) {
        silent_ = lost_ = -1;
        storeless_ = false;
        heart_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
        return all;
      }
    } catch (const std::exception& error) {
      why = first_line(error.what());
      drop_dead_store();
    }
    if (const std::optional<std::string> said = last_words()) throw DistributedError(*said);
    std::this_thread::sleep_for(Milliseconds(10));
  }
  if (!connection_)
    throw DistributedError("the store at " + place_.address + ":" + std::to_string(place_.port) +
                           " is gone, with rank 0 that held it (" + why + ")");
  throw blame(why);
}

bool World::exchange_failed() const {
  return !connection_ || connection_->failed;
}

/// Drops the connection to a store that is gone with rank 0; rank 0's replacement opens a new store.
void World::drop_dead_store() noexcept {
  try {
    if (connection_) connection_->store->check({failed_key});
  } catch (const std::exception&) {
    if (!place_.serves) connection_.reset();
  }
}

/// Returns what a rank that failed by itself said last, if one did.
std::optional<std::string> World::last_words() const noexcept {
  try {
    if (!connection_ || !connection_->store->check({failed_key})) return std::nullopt;
    return text(connection_->store->get(failed_key));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// ---- the end

void World::fail(const std::string& why) noexcept {
  if (!connection_) return;
  connection_->failed = true;
  try {
    const std::string text = "rank " + std::to_string(place_.rank) + " failed: " + why;
    connection_->store->compareSet(failed_key, {}, bytes(text));
  } catch (const std::exception&) {
    // The store is gone with the rank that held it: the others know.
  }
  leave();  // closes the connections at which the others wait
  linger();
}

/// Notes that this rank knows why the run ends; the store's rank waits until the others have read it, too.
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
    // The store is gone, and nobody reads it any more.
  }
}

DistributedError World::explain(const std::string& what) {
  connection_->failed = true;
  if (!replaces_) return blame(what);
  const std::optional<std::string> said = last_words();  // else meet_again() finds out
  return DistributedError(said ? *said : "an exchange between the ranks failed: " + first_line(what));
}

/// Returns the error that names the rank that said why it failed, or that shows no sign of life meanwhile.
DistributedError World::blame(const std::string& what) {
  try {
    c10d::Store& store = *connection_->store;
    const std::vector<Bytes> before = signs_of_life(store, size());
    for (const auto until = SteadyClock::now() + grace; SteadyClock::now() < until;) {
      if (const std::optional<std::string> said = last_words()) {
        linger();
        return DistributedError(*said);
      }
      std::this_thread::sleep_for(Milliseconds(50));
    }
    const std::vector<Bytes> after = signs_of_life(store, size());
    for (int rank = 0; rank < size(); ++rank) {
      if (after[static_cast<std::size_t>(rank)] != before[static_cast<std::size_t>(rank)]) continue;
      store.set(told_key(rank), bytes("gone"));  // nobody is to wait for it to read why
      return DistributedError("rank " + std::to_string(rank) + " is gone, without a word (" +
                              first_line(what) + ")");
    }
  } catch (const std::exception&) {
    return DistributedError("the store at " + place_.address + ":" + std::to_string(place_.port) +
                            " is gone, with rank 0 or the launcher that held it (" + first_line(what) + ")");
  }
  return DistributedError("an exchange between the ranks failed: " + first_line(what));
}

void World::check_others() {
  const auto no_sign = [](int rank, Milliseconds time) {
    return "rank " + std::to_string(rank) + " has given no sign of life for " +
           std::to_string(time.count() / 1000) + " s";
  };
  if (const int rank = silent_.exchange(-1); rank >= 0 && warn_)
    warn_(no_sign(rank, pulse_.silence) + "; the others wait for it");
  if (const int rank = lost_; rank >= 0)
    throw DistributedError(no_sign(rank, timeout_) + " (distributed.timeout)");
  if (said_) throw explain("another rank has failed");
  if (storeless_)
    throw explain("the store has not answered for " + std::to_string(timeout_.count() / 1000) +
                  " s (distributed.timeout)");
  if (replaces_ && called_ > met_) throw explain("the other ranks have left it");
}

/// Runs the heartbeat's thread: says that this rank is alive, and looks for the others. If the store does not
/// answer, each beat connects to it again, until the timeout.
void World::watch(const std::stop_token& stop) {
  pthread_setname_np(pthread_self(), "heartbeat");
  struct Seen {
    Bytes beat;
    SteadyClock::time_point at = SteadyClock::now();
    bool told = false;
  };
  std::vector<Seen> seen(static_cast<std::size_t>(size()));
  auto answered = SteadyClock::now();
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  for (std::int64_t beats = 1;
       !wake.wait_for(lock, stop, pulse_.beat, [] { return false; }) && !stop.stop_requested(); ++beats)
    try {
      c10d::Store& store = *connection_->beats;
      store.set(alive_key(place_.rank), bytes(std::to_string(beats)));
      std::vector<Bytes> signs = signs_of_life(store, size());
      for (int rank = 0; rank < size(); ++rank) {
        Seen& other = seen[static_cast<std::size_t>(rank)];
        Bytes& now = signs[static_cast<std::size_t>(rank)];
        if (now != other.beat) other = {std::move(now)};
        const auto since = SteadyClock::now() - other.at;
        if (since > pulse_.silence && !std::exchange(other.told, true)) silent_ = rank;
        if (since > std::max(timeout_, pulse_.silence)) lost_ = rank;
      }
      said_ = store.check({failed_key});
      if (replaces_ && store.check({called_key})) called_ = std::stoi(text(store.get(called_key)));
      answered = SteadyClock::now();
    } catch (const std::exception&) {
      storeless_ = SteadyClock::now() - answered > timeout_;
      if (storeless_) return;
      try {
        connection_->beats = Connection::open(place_, reconnecting, false);
        seen.assign(seen.size(), {});  // nobody could be heard meanwhile
      } catch (const std::exception&) {
        // The next beat tries again.
      }
    }
}

std::unique_ptr<World> join(Milliseconds timeout) {
  config::RankPlace place = config::RankPlace::of_process();
  return place.size == 1 ? nullptr : std::make_unique<World>(std::move(place), timeout, World::Pulse());
}

}  // namespace trainyard::distributed
