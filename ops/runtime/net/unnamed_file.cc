#include "ops/runtime/net/unnamed_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>

namespace trepak {

int OpenUnnamed(const std::string& folder, const std::string& prefix) {
  const int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) {
    return file;
  }
  std::string name = folder + "/" + prefix + "XXXXXX";
  const int named = mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) {
    (void)unlink(name.c_str());
  }
  return named;
}

}  // namespace trepak
