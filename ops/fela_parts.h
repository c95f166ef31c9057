// The parts of a session of Fela, behind the worker and the token server.

#ifndef TREPAK_OPS_FELA_PARTS_H_
#define TREPAK_OPS_FELA_PARTS_H_

#include <cstddef>

#include "ops/worker_ops.h"

namespace trepak {

enum : size_t { kFelaPeerPart = kCoordinatorPart + 1 };

}  // namespace trepak

#endif  // TREPAK_OPS_FELA_PARTS_H_
