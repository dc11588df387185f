#define CATCH_CONFIG_RUNNER
#include <dlfcn.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cfenv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace {

/// A process that is killed leaves all that it wrote: folders in memory will do. A save takes no time there,
/// and on ext4 without a journal a new file waits until an inode is found that nobody deleted of late.
void use_memory() {
  constexpr std::uintmax_t enough = 1 << 28;
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space("/dev/shm", error);
  if (!error && space.available > enough && access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
}

/// LibTorch asks once a process whether its half for GPUs is there: where there is a GPU, it is loaded before a test asks.
void use_gpu() {
  if (dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL);
}

std::fenv_t at_start;

/// A run sets how its thread computes (run.threads.flush_denormals): each test begins as the process did.
struct OwnArithmetic final : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testCaseStarting(const Catch::TestCaseInfo&) override { std::fesetenv(&at_start); }
};
CATCH_REGISTER_LISTENER(OwnArithmetic)

}  // namespace

int main(int argc, char** argv) {
  std::fegetenv(&at_start);
  use_memory();
  use_gpu();
  return Catch::Session().run(argc, argv);
}
