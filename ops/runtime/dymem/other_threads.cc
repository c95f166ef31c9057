#include "ops/runtime/dymem/other_threads.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace trepak {
namespace {

// Of /proc/self/task/NUMBER/stat, "NUMBER (NAME) STATE ...": a name may have brackets of its own.
bool Runs(const std::string& stat) {
  const size_t at = stat.rfind(") ");
  const char state = at == std::string::npos ? 'X' : stat[at + 2];
  return state == 'R' || state == 'D';
}

}  // namespace

bool OtherThreadsRun() {
  const std::string self = std::to_string(syscall(SYS_gettid));
  std::error_code ignored;  // a system without /proc: nobody is known to run
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator thread("/proc/self/task", ignored); thread != end;
       thread.increment(ignored)) {
    std::string stat;
    std::getline(std::ifstream(thread->path() / "stat"), stat);  // empty if it has ended
    if (thread->path().filename() != self && Runs(stat)) {
      return true;
    }
  }
  return false;
}

}  // namespace trepak
