// Chunks and the stores of tasks, by numbers; views of chunks as DLPack has them.

#include <dlpack/dlpack.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/calls.h"
#include "ops/numbered.h"
#include "ops/runtime/chicle/chunk.h"
#include "ops/runtime/chicle/chunk_store.h"
#include "ops/status_adapter.h"

namespace trepak {

void from_json(const Json& given, ChunkField& field) {
  field.name = given.at("name").get<std::string>();
  field.code = given.at("code").get<uint8_t>();
  field.bits = given.at("bits").get<uint8_t>();
  field.is_state = given.at("is_state").get<bool>();
  field.is_sparse = given.at("is_sparse").get<bool>();
  field.shape = given.at("shape").get<std::vector<int64_t>>();
  field.nonzeros = given.at("nonzeros").get<uint64_t>();
}

void to_json(Json& made, const ChunkField& field) {
  made = {{"name", field.name},         {"code", field.code},           {"bits", field.bits},
          {"is_state", field.is_state}, {"is_sparse", field.is_sparse}, {"shape", field.shape},
          {"nonzeros", field.nonzeros}};
}

namespace {

// What keeps the memory of a view, and its shape.
struct View {
  std::shared_ptr<Chunk> chunk;
  std::vector<int64_t> shape;
};

template <typename Object>
absl::Status Find(const Arguments& given, const std::string& name,
                  std::shared_ptr<Object>* object) {
  *object = Numbered<Object>::Global().Find(given.Get<int64_t>(name));
  return *object == nullptr ? absl::NotFoundError("trepak: there is no such " + name)
                            : absl::OkStatus();
}

template <typename Managed>
uintptr_t Managing(std::unique_ptr<View> view, void* data, DLDataType type, Managed** made) {
  auto* const managed = new Managed();
  managed->dl_tensor.data = data;
  managed->dl_tensor.device = {kDLCPU, 0};
  managed->dl_tensor.ndim = static_cast<int32_t>(view->shape.size());
  managed->dl_tensor.dtype = type;
  managed->dl_tensor.shape = view->shape.data();
  managed->dl_tensor.strides = nullptr;
  managed->dl_tensor.byte_offset = 0;
  managed->manager_ctx = view.release();
  managed->deleter = [](Managed* self) {
    delete static_cast<View*>(self->manager_ctx);
    delete self;
  };
  *made = managed;
  return reinterpret_cast<uintptr_t>(managed);
}

absl::Status MakeChunk(const Arguments& given, Json* result) {
  std::shared_ptr<Chunk> chunk;
  TF_RETURN_IF_ERROR(
      ToAbslStatus(Chunk::Make(given.Get<uint64_t>("id"), given.Get<uint32_t>("samples"),
                               given.Get<std::vector<ChunkField>>("fields"), &chunk)));
  *result = Numbered<Chunk>::Global().Add(std::move(chunk));
  return absl::OkStatus();
}

absl::Status MeasureChunk(const Arguments& given, Json* result) {
  *result =
      Chunk::BytesOf(given.Get<uint32_t>("samples"), given.Get<std::vector<ChunkField>>("fields"));
  return absl::OkStatus();
}

absl::Status DropChunk(const Arguments& given, Json*) {
  Numbered<Chunk>::Global().Take(given.Get<int64_t>("chunk"));
  return absl::OkStatus();
}

absl::Status TellOfChunk(const Arguments& given, Json* result) {
  std::shared_ptr<Chunk> chunk;
  TF_RETURN_IF_ERROR(Find(given, "chunk", &chunk));
  *result = {{"id", chunk->id()},
             {"samples", chunk->samples()},
             {"bytes", chunk->bytes()},
             {"fields", chunk->fields()}};
  return absl::OkStatus();
}

absl::Status CheckChunk(const Arguments& given, Json*) {
  std::shared_ptr<Chunk> chunk;
  TF_RETURN_IF_ERROR(Find(given, "chunk", &chunk));
  return ToAbslStatus(chunk->CheckRows());
}

// chunk, field; part: "starts", "columns", "values" or "committed"; versioned: as DLPack 1 has it,
// with the flag that says whether the view is writable.
absl::Status ViewChunk(const Arguments& given, Json* result) {
  std::shared_ptr<Chunk> chunk;
  TF_RETURN_IF_ERROR(Find(given, "chunk", &chunk));
  const int i = chunk->Find(given.Get<std::string>("field"));
  if (i < 0) {
    return absl::NotFoundError("trepak: the chunk has no field " + given.Get<std::string>("field"));
  }
  const ChunkField& field = chunk->fields()[i];
  const ChunkArrays& arrays = chunk->arrays()[i];
  const auto part = given.Get<std::string>("part");
  DLDataType type = {field.code, field.bits, 1};
  auto view = std::make_unique<View>();
  view->chunk = chunk;
  void* data = nullptr;
  if (part == "starts") {
    data = const_cast<int64_t*>(arrays.starts);
    type = {kDLInt, 64, 1};
    view->shape = {int64_t{chunk->samples()} + 1};
  } else if (part == "columns") {
    data = const_cast<int32_t*>(arrays.columns);
    type = {kDLInt, 32, 1};
    view->shape = {static_cast<int64_t>(field.nonzeros)};
  } else {
    data = part == "committed" ? arrays.committed : arrays.values;
    view->shape = {static_cast<int64_t>(field.is_sparse ? field.nonzeros : chunk->samples())};
    if (!field.is_sparse) {
      view->shape.insert(view->shape.end(), field.shape.begin(), field.shape.end());
    }
  }
  if (data == nullptr) {
    return absl::NotFoundError("trepak: field " + field.name + " of a chunk has no " + part);
  }
  if (!given.Get<bool>("versioned")) {
    DLManagedTensor* made = nullptr;
    *result = Managing(std::move(view), data, type, &made);
    return absl::OkStatus();
  }
  DLManagedTensorVersioned* made = nullptr;
  *result = Managing(std::move(view), data, type, &made);
  made->version = {1, 0};
  made->flags = given.Get<bool>("is_writable") ? 0 : DLPACK_FLAG_BITMASK_READ_ONLY;
  return absl::OkStatus();
}

absl::Status MakeStore(const Arguments&, Json* result) {
  *result = Numbered<ChunkStore>::Global().Add(std::make_shared<ChunkStore>());
  return absl::OkStatus();
}

absl::Status DropStore(const Arguments& given, Json*) {
  Numbered<ChunkStore>::Global().Take(given.Get<int64_t>("store"));
  return absl::OkStatus();
}

absl::Status AddToStore(const Arguments& given, Json*) {
  std::shared_ptr<ChunkStore> store;
  std::shared_ptr<Chunk> chunk;
  TF_RETURN_IF_ERROR(Find(given, "store", &store));
  TF_RETURN_IF_ERROR(Find(given, "chunk", &chunk));
  return ToAbslStatus(store->Add(std::move(chunk)));
}

absl::Status TakeFromStore(const Arguments& given, Json*) {
  std::shared_ptr<ChunkStore> store;
  TF_RETURN_IF_ERROR(Find(given, "store", &store));
  std::shared_ptr<Chunk> chunk;
  return ToAbslStatus(store->Take(given.Get<uint64_t>("id"), &chunk));
}

absl::Status CheckOwner(const Arguments& given, Json*) {
  std::shared_ptr<ChunkStore> store;
  TF_RETURN_IF_ERROR(Find(given, "store", &store));
  return ToAbslStatus(store->CheckThatTaskOwns(given.Get<std::string>("what")));
}

absl::Status ActOnStore(const Arguments& given, Json*) {
  std::shared_ptr<ChunkStore> store;
  TF_RETURN_IF_ERROR(Find(given, "store", &store));
  const auto action = given.Get<std::string>("action");
  if (action == "begin") {
    return ToAbslStatus(store->Begin(given.Get<bool>("checked")));
  }
  if (action == "end") {
    return ToAbslStatus(store->End(given.Get<bool>("checked")));
  }
  if (action == "commit") {
    return ToAbslStatus(store->Commit());
  }
  if (action == "restore") {
    store->Restore();
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("trepak: a store knows no action " + action);
}

[[maybe_unused]] const bool kRegistered = RegisterCalls({{"chicle_make_chunk", MakeChunk},
                                                         {"chicle_chunk_bytes", MeasureChunk},
                                                         {"chicle_drop_chunk", DropChunk},
                                                         {"chicle_chunk", TellOfChunk},
                                                         {"chicle_check_chunk", CheckChunk},
                                                         {"chicle_view_chunk", ViewChunk},
                                                         {"chicle_make_store", MakeStore},
                                                         {"chicle_drop_store", DropStore},
                                                         {"chicle_add", AddToStore},
                                                         {"chicle_take", TakeFromStore},
                                                         {"chicle_check_owner", CheckOwner},
                                                         {"chicle_act", ActOnStore}});

}  // namespace
}  // namespace trepak
