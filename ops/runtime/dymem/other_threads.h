// Whether anybody in this process but the caller is at work.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_OTHER_THREADS_H_
#define TREPAK_OPS_RUNTIME_DYMEM_OTHER_THREADS_H_

namespace trepak {

// Whether another thread of this process runs now, reads from a disk, or would run if the machine
// had a processor left. False if all others sleep: they wait for a lock, a message, a time.
//
// Thread safety: may be called from any thread.
bool OtherThreadsRun();

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_OTHER_THREADS_H_
