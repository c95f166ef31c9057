// What RNA's ops share.

#ifndef TREPAK_OPS_RNA_OPS_H_
#define TREPAK_OPS_RNA_OPS_H_

#include "ops/runtime/rna/rna_engine.h"
#include "ops/stream_ops.h"

namespace trepak {

using RnaOp = StreamOp<RnaEngine>;

}  // namespace trepak

#endif  // TREPAK_OPS_RNA_OPS_H_
