// For tests: a disk that is full.

#ifndef TREPAK_OPS_RUNTIME_NET_FULL_DISK_H_
#define TREPAK_OPS_RUNTIME_NET_FULL_DISK_H_

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

namespace trepak {

// While it is there, files of this process can't grow beyond a size, as if the disk were full.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);  // as Python has it
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    rlimit now = before_;
    now.rlim_cur = bytes;
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &now), 0);
  }
  ~FullDisk() {
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before_), 0);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_ = {};
  void (*handler_)(int) = nullptr;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_FULL_DISK_H_
