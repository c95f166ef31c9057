// A library of its own, for LD_PRELOAD: makes Open MPI's ranks sleep while they wait.
//
// Open MPI polls. With mpi_yield_when_idle it calls sched_yield between two polls, which still
// fills the CPU with polling, and Horovod's background threads wait for each other in every cycle,
// even while nobody trains. Where many ranks share a few cores (a lab), that takes the time of
// those that compute. Here sched_yield sleeps when Open MPI calls it, the longer the longer it has
// waited; all other callers get the real one.
//
// Thread-safe; each thread keeps the begin of its wait.

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>

namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds kShortest{100'000};  // little beside Horovod's cycle of 1 ms
constexpr nanoseconds kLongest{500'000};

nanoseconds Now() { return std::chrono::steady_clock::now().time_since_epoch(); }

// Sleeps for a quarter of the time waited so far.
int Sleep() {
  thread_local nanoseconds begin{0};
  thread_local nanoseconds end{0};  // of the last sleep
  const nanoseconds now = Now();
  if (now - end > kShortest) {
    begin = now;  // between the two polls something came: another wait
  }
  const timespec pause{0, std::clamp((now - begin) / 4, kShortest, kLongest).count()};
  const int result = nanosleep(&pause, nullptr);
  end = Now();
  return result;
}

bool IsOfOpenMpi(const void* caller) {
  Dl_info about;
  return dladdr(caller, &about) != 0 && about.dli_fname != nullptr &&
         std::strstr(about.dli_fname, "libopen-pal") != nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int sched_yield() {
  // A thread that polls calls from one place, and to look it up costs more than a poll.
  thread_local const void* last_caller = nullptr;
  thread_local bool is_of_open_mpi = false;
  const void* const caller = __builtin_return_address(0);
  if (caller != last_caller) {
    is_of_open_mpi = IsOfOpenMpi(caller);
    last_caller = caller;
  }
  return is_of_open_mpi ? Sleep() : static_cast<int>(syscall(SYS_sched_yield));
}
