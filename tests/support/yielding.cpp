// Gloo's thread that waits for sockets is told of one again and again, and asks again at once, while another thread has the lock of
// its pair: where tests share the cores, for as long as that one is kept from running. It lets others run then. Programs of tests have
// this in place of the C library's, and scripts give it to what they start (e2e/support/host.py).
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they watch the C library's

extern "C" __attribute__((visibility("default"))) int epoll_wait(int descriptor, epoll_event* events,
                                                                 int most, int timeout) {
  thread_local int before = -1;
  thread_local std::uint64_t told = 0;
  thread_local int again = 0;
  const long count = syscall(SYS_epoll_pwait, descriptor, events, most, timeout, nullptr, _NSIG / 8);
  const std::uint64_t tells = count > 0 ? events[0].data.u64 : 0;
  again = count == 1 && descriptor == before && tells == told ? again + 1 : 0;
  if (again > 2) sched_yield();
  before = descriptor;
  told = tells;
  return static_cast<int>(count);
}

#endif
