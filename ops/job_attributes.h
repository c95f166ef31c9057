// What the ops that start native engines share.

#ifndef TREPAK_OPS_JOB_ATTRIBUTES_H_
#define TREPAK_OPS_JOB_ATTRIBUTES_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/runtime/net/job_endpoints.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace trepak {

// This process's place in the job, but for the secret, as an op's attributes say it.
inline absl::Status JobFromAttributes(tensorflow::OpKernelConstruction* context, JobOptions* job) {
  int64_t rank = 0;
  int64_t size = 0;
  int64_t deadline = 0;
  TF_RETURN_IF_ERROR(context->GetAttr("rank", &rank));
  TF_RETURN_IF_ERROR(context->GetAttr("size", &size));
  TF_RETURN_IF_ERROR(context->GetAttr("host", &job->host));
  TF_RETURN_IF_ERROR(context->GetAttr("deadline_milliseconds", &deadline));
  TF_RETURN_IF_ERROR(context->GetAttr("encrypt", &job->encrypt));
  job->dscp.clear();  // lists are appended to
  TF_RETURN_IF_ERROR(context->GetAttr("dscp", &job->dscp));
  job->rank = static_cast<uint32_t>(rank);
  job->size = static_cast<uint32_t>(size);
  job->deadline = std::chrono::milliseconds(deadline);
  return absl::OkStatus();
}

inline std::vector<std::string> Strings(const tensorflow::Tensor& tensor) {
  const auto values = tensor.flat<tensorflow::tstring>();
  std::vector<std::string> strings;
  for (int64_t i = 0; i < values.size(); ++i) {
    strings.emplace_back(values(i));
  }
  return strings;
}

inline absl::Status SecretFrom(const tensorflow::Tensor& tensor, JobOptions* job) {
  const std::vector<std::string> secret = Strings(tensor);
  if (secret.size() != 1 || secret[0].size() != job->secret.size()) {
    return absl::InvalidArgumentError("the secret must be one string of 32 bytes");
  }
  std::copy(secret[0].begin(), secret[0].end(), job->secret.begin());
  return absl::OkStatus();
}

}  // namespace trepak

#endif  // TREPAK_OPS_JOB_ATTRIBUTES_H_
