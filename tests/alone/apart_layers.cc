// The apart device, with kernels that dense layers train by, and with TensorFlow's own allocator for
// accelerators, which waits for memory that is freed.

#define APART_HAS_TENSORFLOWS_ALLOCATOR
#define TF_InitKernel InitRowKernels
#include "apart_device.cc"
#undef TF_InitKernel

namespace {

// A matrix as it lies, or its transpose.
struct Matrix {
  float at(int64_t row, int64_t column) const {
    return transposed ? data[column * columns + row] : data[row * columns + column];
  }
  const float* data;
  int64_t columns;  // as it lies
  bool transposed;
};

struct Transposed {
  TF_Bool a = 0;
  TF_Bool b = 0;
};

void* ReadTransposed(TF_OpKernelConstruction* construction) {
  auto* const read = new Transposed;
  TF_Status* const status = TF_NewStatus();
  TF_OpKernelConstruction_GetAttrBool(construction, "transpose_a", &read->a, status);
  TF_OpKernelConstruction_GetAttrBool(construction, "transpose_b", &read->b, status);
  TF_DeleteStatus(status);
  return read;
}

void DeleteTransposed(void* read) { delete static_cast<Transposed*>(read); }

// Null, with the kernel's error set, if the device is full.
float* AllocateFloats(TF_OpKernelContext* context, const int64_t* shape, int axes) {
  TF_Status* const status = TF_NewStatus();
  int64_t count = 1;
  for (int axis = 0; axis < axes; ++axis) {
    count *= shape[axis];
  }
  TF_Tensor* const made = TF_AllocateOutput(context, 0, TF_FLOAT, shape, axes,
                                            4 * static_cast<size_t>(count), status);
  float* const data =
      TF_GetCode(status) == TF_OK ? TheMemory().At<float>(TF_TensorData(made)) : nullptr;
  if (data == nullptr) {
    TF_OpKernelContext_Failure(context, status);
  }
  TF_DeleteTensor(made);
  TF_DeleteStatus(status);
  return data;
}

void Multiply(void* state, TF_OpKernelContext* context) {
  const auto& transposed = *static_cast<Transposed*>(state);
  TF_Status* const status = TF_NewStatus();
  const Input a(context, 0, status);
  const Input b(context, 1, status);
  TF_DeleteStatus(status);
  const Matrix left{a.data<float>(), TF_Dim(a.tensor, 1), transposed.a != 0};
  const Matrix right{b.data<float>(), TF_Dim(b.tensor, 1), transposed.b != 0};
  const int64_t shape[] = {TF_Dim(a.tensor, left.transposed ? 1 : 0),
                           TF_Dim(b.tensor, right.transposed ? 0 : 1)};
  const int64_t depth = TF_Dim(a.tensor, left.transposed ? 0 : 1);
  float* const made = AllocateFloats(context, shape, 2);
  for (int64_t i = 0; made != nullptr && i < shape[0]; ++i) {
    for (int64_t j = 0; j < shape[1]; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < depth; ++k) {
        sum += left.at(i, k) * right.at(k, j);
      }
      made[i * shape[1] + j] = sum;
    }
  }
}

// Of a matrix, by element: those of the first input where those of the last are above 0.
void Rectify(void*, TF_OpKernelContext* context) {
  TF_Status* const status = TF_NewStatus();
  const int last = TF_NumInputs(context) - 1;
  const Input values(context, 0, status);
  const Input signs(context, last, status);
  TF_DeleteStatus(status);
  const int64_t shape[] = {TF_Dim(values.tensor, 0), TF_Dim(values.tensor, 1)};
  float* const made = AllocateFloats(context, shape, 2);
  for (int64_t i = 0; made != nullptr && i < shape[0] * shape[1]; ++i) {
    made[i] = signs.data<float>()[i] > 0 ? values.data<float>()[i] : 0;
  }
}

// Two matrices of one shape.
void Add(void*, TF_OpKernelContext* context) {
  TF_Status* const status = TF_NewStatus();
  const Input a(context, 0, status);
  const Input b(context, 1, status);
  TF_DeleteStatus(status);
  const int64_t shape[] = {TF_Dim(a.tensor, 0), TF_Dim(a.tensor, 1)};
  float* const made = AllocateFloats(context, shape, 2);
  for (int64_t i = 0; made != nullptr && i < shape[0] * shape[1]; ++i) {
    made[i] = a.data<float>()[i] + b.data<float>()[i];
  }
}

void Register(const char* op, void* (*make)(TF_OpKernelConstruction*),
              void (*compute)(void*, TF_OpKernelContext*), void (*destroy)(void*)) {
  TF_Status* const status = TF_NewStatus();
  TF_KernelBuilder* const builder = TF_NewKernelBuilder(op, kType, make, compute, destroy);
  TF_KernelBuilder_TypeConstraint(builder, "T", TF_FLOAT, status);
  TF_RegisterKernelBuilder(op, builder, status);
  TF_DeleteStatus(status);
}

}  // namespace

extern "C" void TF_InitKernel() {
  InitRowKernels();
  Register("AddV2", NoState, Add, DeleteNoState);
  Register("MatMul", ReadTransposed, Multiply, DeleteTransposed);
  Register("Relu", NoState, Rectify, DeleteNoState);
  Register("ReluGrad", NoState, Rectify, DeleteNoState);
}
