// What ElasticBSP's ops share.

#ifndef TREPAK_OPS_ELASTIC_BSP_OPS_H_
#define TREPAK_OPS_ELASTIC_BSP_OPS_H_

#include <map>
#include <string>

#include "ops/runtime/elastic_bsp/elastic_bsp_engine.h"
#include "ops/stream_ops.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace trepak {

using ElasticBspOp = StreamOp<ElasticBspEngine>;

// How far workers may go, as an op's attributes say it.
inline absl::Status RulesFromAttributes(tensorflow::OpKernelConstruction* context,
                                        ElasticBspScheduler::Rules* rules) {
  using Model = ElasticBspScheduler::Model;
  using Kind = Expectation::Kind;
  static const std::map<std::string, Model> models = {
      {"elastic_bsp", Model::kElasticBsp}, {"ssp", Model::kSsp}, {"asp", Model::kAsp}};
  static const std::map<std::string, Kind> kinds = {
      {"last", Kind::kLast}, {"mean", Kind::kMean}, {"exponential", Kind::kExponential}};
  std::string model;
  std::string prediction;
  int64_t lookahead = 0;
  int64_t staleness = 0;
  TF_RETURN_IF_ERROR(context->GetAttr("model", &model));
  TF_RETURN_IF_ERROR(context->GetAttr("prediction", &prediction));
  TF_RETURN_IF_ERROR(context->GetAttr("lookahead", &lookahead));
  TF_RETURN_IF_ERROR(context->GetAttr("staleness", &staleness));
  rules->model = models.at(model);
  rules->prediction = kinds.at(prediction);
  rules->lookahead = static_cast<uint32_t>(lookahead);
  rules->staleness = static_cast<uint32_t>(staleness);
  return absl::OkStatus();
}

}  // namespace trepak

#endif  // TREPAK_OPS_ELASTIC_BSP_OPS_H_
