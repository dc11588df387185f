// What ranks exchange on devices: by which backend, who waits, and what is said where there is none. There is
// no device where tensors are `meta`; GPUs are tried where there are any.
#include <ATen/ATen.h>  // first: it has a CHECK of its own

#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>

#include <fstream>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "support/folder.hpp"
#include "support/ranks.hpp"

#include "core/engine/distributed/group.hpp"
#include "core/engine/distributed/nccl.hpp"
#include "core/engine/train/device.hpp"

namespace trainyard::distributed {
namespace {

using Catch::Matchers::Contains;
using test::on_ranks;

/// Goes on until a test ends it.
struct FakeWork final : c10d::Work {
  std::atomic<bool> aborted{false};
  int streams = 0;  ///< that wait for it

  using c10d::Work::finish;
  void synchronize() override { ++streams; }
  bool wait(std::chrono::milliseconds) override { throw std::logic_error("the host waits"); }
  void abort() override { aborted = true; }
};

struct FakeBackend final : c10d::Backend {
  std::vector<std::string> asked;
  c10::intrusive_ptr<FakeWork> newest;
  int aborts = 0;

  FakeBackend() : Backend(1, 4) {}
  c10::intrusive_ptr<c10d::Work> begin(const char* what) {
    asked.emplace_back(what);
    return newest = c10::make_intrusive<FakeWork>();
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    return begin("all_reduce");
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor&, at::Tensor&,
                                                 const c10d::AllgatherOptions&) override {
    return begin("all_gather");
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor&, at::Tensor&,
                                                      const c10d::ReduceScatterOptions&) override {
    return begin("reduce_scatter");
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>&,
                                           const c10d::BroadcastOptions& options) override {
    return begin(options.rootRank == 2 ? "broadcast of 2" : "broadcast");
  }
  void abort() override { ++aborts; }
};

struct FakeLookout final : Lookout {
  int looks = 0, patience = 1 << 30;

  void check_others() override {
    if (++looks > patience) throw DistributedError("rank 3 is silent");
  }
  std::chrono::milliseconds pause() const override { return std::chrono::milliseconds(1); }
  DistributedError explain(const std::string& what) override {
    return DistributedError("explained: " + what);
  }
};

struct Fakes {
  c10::intrusive_ptr<FakeBackend> host = c10::make_intrusive<FakeBackend>();
  c10::intrusive_ptr<FakeBackend> device = c10::make_intrusive<FakeBackend>();
  int made = 0;
  FakeLookout others;
  UnderWay under_way;
  std::optional<Group> group;

  Fakes() {
    const auto make = [this]() -> Backend {
      ++made;
      return device;
    };
    group.emplace(host, make, others, under_way);
  }
};

at::Tensor on_device(std::int64_t length) {
  return at::zeros({length}, at::kMeta);
}

TEST_CASE("Tensors are exchanged by the backend of where they lie, made when the first one asks for it") {
  Fakes fakes;
  Group& group = *fakes.group;
  CHECK(group.rank() == 1);
  CHECK(group.size() == 4);
  const std::vector<std::string> all{"all_reduce", "all_gather", "reduce_scatter", "broadcast of 2"};
  const auto exchange = [&](const auto& make) {
    group.all_reduce(make(8));
    group.all_gather(make(8), make(2));
    group.reduce_scatter(make(2), make(8));
    group.broadcast(make(8), 2);
  };
  exchange([](std::int64_t length) { return at::zeros({length}); });
  CHECK(fakes.host->asked == all);
  CHECK(fakes.made == 0);
  exchange(on_device);
  CHECK(fakes.host->asked == all);
  CHECK(fakes.device->asked == all);
  CHECK(fakes.made == 1);
  CHECK(fakes.device->aborts == 0);
  fakes.group.reset();
  CHECK(fakes.device->aborts == 1);
  CHECK(fakes.host->aborts == 0);
}

TEST_CASE("The device waits for what is exchanged there; the host does so where it reads") {
  Fakes fakes;
  const auto first = fakes.group->all_reduce(on_device(8));
  const auto first_work = fakes.device->newest;
  first->wait();
  CHECK(first_work->streams == 1);
  const auto second = fakes.group->all_reduce(on_device(8));
  const auto second_work = fakes.device->newest;
  CHECK(fakes.others.looks == 0);
  std::atomic<bool> over{false};
  std::thread device([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    first_work->finish();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    over = true;
    second_work->finish();
  });
  fakes.under_way.settle(fakes.others);
  CHECK(over);
  CHECK(fakes.others.looks > 0);
  device.join();
  const int looks = fakes.others.looks;
  fakes.under_way.settle(fakes.others);  // nothing is left
  CHECK(fakes.others.looks == looks);
  CHECK_FALSE(first_work->aborted);
}

TEST_CASE("Where the others are gone the device is not left waiting for them") {
  Fakes fakes;
  fakes.group->all_reduce(on_device(8))->wait();
  const auto first = fakes.device->newest;
  fakes.group->all_reduce(on_device(8))->wait();
  const auto second = fakes.device->newest;
  fakes.others.patience = 20'000;
  CHECK_THROWS_WITH(fakes.under_way.settle(fakes.others), "rank 3 is silent");
  CHECK(first->aborted);
  CHECK(second->aborted);
}

TEST_CASE("What fails on the device is explained as what fails in memory is") {
  Fakes fakes;
  fakes.group->all_reduce(on_device(8))->wait();
  fakes.device->newest->finish(std::make_exception_ptr(std::runtime_error("NCCL error: a cable")));
  CHECK_THROWS_MATCHES(fakes.under_way.settle(fakes.others), DistributedError,
                       Catch::Message("explained: NCCL error: a cable"));
}

TEST_CASE("A rank that waits for others' devices reads why one of them failed") {
  constexpr World::Pulse quick{.beat = World::Milliseconds(50), .silence = World::Milliseconds(8000)};
  std::string said;
  CHECK_THROWS(on_ranks(
      2,
      [&](World& world) {
        if (world.rank() == 1) {
          world.fail("its GPU is gone");
          throw std::runtime_error("failed");
        }
        try {
          for (int turn = 0; turn < 1000; ++turn) {  // no connection breaks under it
            world.check_others();
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          }
        } catch (const DistributedError& error) {
          said = error.what();
          throw;
        }
      },
      0, quick));
  CHECK(said == "rank 1 failed: its GPU is gone");
}

struct FakeRanks final : Ranks {
  int local = 0, locals = 1;

  FakeRanks(int local, int locals) : local(local), locals(locals) {}
  int rank() const override { return local; }
  int size() const override { return locals; }
  int local_rank() const override { return local; }
  int local_size() const override { return locals; }
  std::unique_ptr<Exchange> all_reduce(const at::Tensor&) override { return {}; }
  std::unique_ptr<Exchange> all_gather(const at::Tensor&, const at::Tensor&) override { return {}; }
  std::unique_ptr<Exchange> reduce_scatter(const at::Tensor&, const at::Tensor&) override { return {}; }
  std::unique_ptr<Exchange> broadcast(const at::Tensor&, int) override { return {}; }
  std::unique_ptr<RankGroup> group(const std::vector<int>&) override { return {}; }
};

TEST_CASE("Each rank has the GPU of its number on its machine") {
  using train::choose_device;
  const FakeRanks third(2, 4), alone(0, 1);
  CHECK(choose_device("cuda", 4, &third) == at::Device(at::kCUDA, 2));
  CHECK(choose_device("cuda", 8, &third) == at::Device(at::kCUDA, 2));
  CHECK(choose_device("cuda", 1, &alone) == at::Device(at::kCUDA, 0));
  CHECK(choose_device("cuda:1", 2, &alone) == at::Device(at::kCUDA, 1));
  CHECK(choose_device("cuda:1", 2, nullptr) == at::Device(at::kCUDA, 1));
  CHECK_THROWS_WITH(
      choose_device("cuda", 3, &third),
      "run.device = \"cuda\": each of the 4 ranks of this machine needs a GPU, and it has 3 usable "
      "GPUs; start no more ranks than that, or set run.device = \"cpu\"");
  CHECK_THROWS_WITH(choose_device("cuda:1", 1, nullptr),
                    "run.device = \"cuda:1\": this machine has 1 usable GPUs; set run.device = \"cpu\"");
}

TEST_CASE("Without NCCL it is said what to install") {
  const test::Folder folder;
  const std::string path = folder / "trainyard_nccl.so";
  CHECK_THROWS_WITH(load_nccl(path), Contains("this build is without it (there is no " + path + ")") &&
                                         Contains("libnccl-dev") && Contains("run.device = \"cpu\""));
  std::ofstream(path) << "no library";
  CHECK_THROWS_WITH(load_nccl(path), Contains("does not load (" + path) && Contains("nvidia-nccl-cu13"));
}

bool cuda_loads() {
  static const bool loads = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) != nullptr;
  return loads;
}

int gpus() {
  return cuda_loads() ? at::detail::getCUDAHooks().deviceCount() : 0;
}

bool fewer_than(int wanted) {
  if (gpus() >= wanted) return false;
  WARN("skipped: it takes " << wanted << " GPUs");
  return true;
}

TEST_CASE("CUDA: NCCL's library loads where LibTorch's CUDA half does") {
  if (!cuda_loads()) {
    WARN("skipped: LibTorch's CUDA half does not load here");
    return;
  }
  MakeNccl* const make = load_nccl(nccl_library());
  REQUIRE(make != nullptr);
  if (gpus() == 0)
    CHECK_THROWS_WITH(make(c10::make_intrusive<c10d::HashStore>(), 0, 1, std::chrono::seconds(1)),
                      Contains("no GPUs found"));
}

/// The collectives of a group on this rank's GPU, against what they give in memory.
void compare(RankGroup& group, World& world, at::Device device) {
  const int size = group.size();
  const at::Tensor each = at::arange(6 * size * size).to(at::kFloat).view({size, -1}).div(7.0).sin();
  const at::Tensor own = each[group.rank()].contiguous().to(device);
  const auto same = [&](const at::Tensor& found, const at::Tensor& expected) {
    world.settle();
    CHECK_HERE(found.device() == device);
    CHECK_HERE(at::allclose(found.cpu(), expected, 1e-6, 1e-7));
  };
  at::Tensor sum = own.clone();
  group.all_reduce(sum)->wait();
  same(sum, each.sum(0));
  at::Tensor all = at::empty({each.numel()}, own.options());
  group.all_gather(all, own)->wait();
  same(all, each.flatten());
  at::Tensor part = at::empty({own.numel() / size}, own.options());
  group.reduce_scatter(part, own)->wait();
  same(part, each.sum(0).chunk(size)[static_cast<std::size_t>(group.rank())]);
  at::Tensor of_last = own.clone();
  group.broadcast(of_last, size - 1)->wait();
  same(of_last, each[size - 1]);
}

void compare_on_gpus(int ranks) {
  on_ranks(ranks, [](World& world) {
    const at::Device device = train::make_device("cuda", &world);
    world.connect(device);
    compare(world, world, device);
    std::vector<int> reversed;
    for (int rank = world.size(); rank-- > 0;) reversed.push_back(rank);
    compare(*world.group(reversed), world, device);
  });
}

TEST_CASE("CUDA: a rank alone on its GPU exchanges with itself") {
  if (fewer_than(1)) return;
  compare_on_gpus(1);
}

TEST_CASE("CUDA: two ranks exchange on their GPUs what they would in memory") {
  if (fewer_than(2)) return;
  compare_on_gpus(2);
}

}  // namespace
}  // namespace trainyard::distributed
