// Files that never have a name in their folder, for what only this process needs.

#ifndef TREPAK_OPS_RUNTIME_NET_UNNAMED_FILE_H_
#define TREPAK_OPS_RUNTIME_NET_UNNAMED_FILE_H_

#include <string>

namespace trepak {

// Makes a file without a name in the folder and opens it to read and write, so that nothing is left
// of it, however the process ends. Not all file systems can: there it has a name for a moment,
// which begins with `prefix`. Returns its number, which the caller owns and closes; or -1, and
// errno says why. May be called from any thread.
int OpenUnnamed(const std::string& folder, const std::string& prefix);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_UNNAMED_FILE_H_
