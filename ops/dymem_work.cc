#include "ops/dymem_work.h"

#include <cstdint>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/grappler/costs/graph_properties.h"
#include "tensorflow/core/grappler/costs/op_level_cost_estimator.h"
#include "tensorflow/core/protobuf/device_properties.pb.h"

namespace trepak {
namespace {

namespace tf = tensorflow;
using tf::OpInfo;

// A device that does an operation, and moves a byte, in a nanosecond each: times are counts.
class Counter : public tf::grappler::OpLevelCostEstimator {
 public:
  tf::grappler::DeviceInfo GetDeviceInfo(const tf::DeviceProperties&) const override {
    return tf::grappler::DeviceInfo(1, 1);
  }
};

OpInfo::TensorProperties WithBatch(OpInfo::TensorProperties tensor, int64_t batch) {
  for (int axis = 0; axis < tensor.shape().dim_size(); ++axis) {
    if (tensor.shape().dim(axis).size() < 0) {
      tensor.mutable_shape()->mutable_dim(axis)->set_size(axis == 0 ? batch : 1);
    }
  }
  return tensor;
}

struct Counts {
  double operations = 0;
  double bytes = 0;
};

Counts Count(const Counter& counter, const tf::NodeDef& node,
             const tf::grappler::GraphProperties& properties, int64_t batch) {
  tf::grappler::OpContext context;
  context.name = node.name();
  context.op_info.set_op(node.op());
  *context.op_info.mutable_attr() = node.attr();
  context.op_info.mutable_device()->set_type("CPU");
  for (const auto& input : properties.GetInputProperties(node.name())) {
    *context.op_info.add_inputs() = WithBatch(input, batch);
  }
  for (const auto& output : properties.GetOutputProperties(node.name())) {
    *context.op_info.add_outputs() = WithBatch(output, batch);
  }
  const tf::grappler::Costs costs = counter.PredictCosts(context);
  return {static_cast<double>(costs.compute_time.count()),
          static_cast<double>(costs.memory_time.count())};
}

}  // namespace

absl::Status WorkOf(const tf::grappler::GrapplerItem& item, std::vector<NodeWork>* work) {
  constexpr int64_t kFew = 8;
  constexpr int64_t kMany = 16;
  tf::grappler::GraphProperties properties(item);
  TF_RETURN_IF_ERROR(properties.InferStatically(/*assume_valid_feeds=*/false));
  const Counter counter;
  for (const tf::NodeDef& node : item.graph.node()) {
    const Counts few = Count(counter, node, properties, kFew);
    const Counts many = Count(counter, node, properties, kMany);
    NodeWork added;
    added.operations_per_sample = (many.operations - few.operations) / (kMany - kFew);
    added.bytes_per_sample = (many.bytes - few.bytes) / (kMany - kFew);
    added.operations = few.operations - kFew * added.operations_per_sample;
    added.bytes = few.bytes - kFew * added.bytes_per_sample;
    work->push_back(added);
  }
  return absl::OkStatus();
}

}  // namespace trepak
