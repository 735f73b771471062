// Matrix products by cuBLASLt.
#include "driver/vendor_library.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <cublasLt.h>
#include <fmt/format.h>

namespace tenon::cuda {
namespace {

// clang-format off
#define TENON_CUBLASLT_FUNCTIONS(X) \
  X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtGetVersion) X(cublasLtGetStatusString) \
  X(cublasLtMatmul) X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmulDescCreate) \
  X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute) X(cublasLtMatrixLayoutCreate) \
  X(cublasLtMatrixLayoutDestroy) X(cublasLtMatrixLayoutSetAttribute) \
  X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy) \
  X(cublasLtMatmulPreferenceSetAttribute)
// clang-format on

TENON_VENDOR_LIBRARY(Library, TENON_CUBLASLT_FUNCTIONS);

cudaDataType type_of(DType dtype) {
  return dtype == DType::f32 ? CUDA_R_32F : dtype == DType::f16 ? CUDA_R_16F : CUDA_R_16BF;
}

/// What tells calls apart that need another algorithm: all but the addresses.
using Key = std::array<std::int64_t, 13>;
Key key_of(const GemmCall& call) {
  return {call.rows,
          call.columns,
          call.depth,
          call.batch,
          call.y_step,
          static_cast<std::int64_t>(call.workspace_bytes),
          static_cast<std::int64_t>(call.dtype),
          static_cast<std::int64_t>(call.y_dtype),
          call.w_is_turned,
          call.w_repeats,
          call.has_bias,
          call.has_residual,
          call.allows_tf32};
}

void* pointer(Address address) { return reinterpret_cast<void*>(address); }

/// cuBLASLt's matrices lie by columns: it is given y's transpose, columns x rows, as w^T * x.
class CublasLt final : public VendorFunction<GemmCall> {
 public:
  CublasLt(const Library& library, cublasLtHandle_t handle) : lt_(library), handle_(handle) {}
  ~CublasLt() override { lt_.p_cublasLtDestroy(handle_); }

  std::optional<std::string> refuses(const GemmCall& call) override {
    const std::scoped_lock lock(mutex_);
    const Prepared& prepared = prepared_for(call);
    if (prepared.status == CUBLAS_STATUS_SUCCESS) return std::nullopt;
    return text(prepared.status);
  }

  std::optional<std::string> run(const GemmCall& call, void* stream) override {
    const std::scoped_lock lock(mutex_);
    Prepared& prepared = prepared_for(call);
    if (prepared.status != CUBLAS_STATUS_SUCCESS) return text(prepared.status);
    const float one = 1, zero = 0;
    if (call.has_bias) {
      const void* const bias = pointer(call.bias);
      lt_.p_cublasLtMatmulDescSetAttribute(prepared.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                           &bias, sizeof bias);
    }
    void* const y = pointer(call.y);
    const void* const c = call.has_residual ? pointer(call.residual) : y;
    const cublasStatus_t status = lt_.p_cublasLtMatmul(
        handle_, prepared.product, &one, pointer(call.w), prepared.w, pointer(call.x), prepared.x,
        call.has_residual ? &one : &zero, c, prepared.y, y, prepared.y, &prepared.algorithm,
        pointer(call.workspace), call.workspace_bytes, static_cast<cudaStream_t>(stream));
    if (status == CUBLAS_STATUS_SUCCESS) return std::nullopt;
    return text(status);
  }

 private:
  struct Prepared {
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t x = nullptr, w = nullptr, y = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
  };

  std::string text(cublasStatus_t status) const {
    return fmt::format("cuBLASLt: {}", lt_.p_cublasLtGetStatusString(status));
  }

  Prepared& prepared_for(const GemmCall& call) {
    const auto [found, is_new] = prepared_.try_emplace(key_of(call));
    if (is_new) prepare(call, found->second);
    return found->second;
  }

  /// Descriptors stay as long as the library: there are as many as sizes.
  void prepare(const GemmCall& call, Prepared& out) {
    const auto attempt = [&out](cublasStatus_t status) {
      if (out.status == CUBLAS_STATUS_SUCCESS) out.status = status;
      return out.status == CUBLAS_STATUS_SUCCESS;
    };
    const cublasComputeType_t compute = call.dtype == DType::f32 && call.allows_tf32
                                            ? CUBLAS_COMPUTE_32F_FAST_TF32
                                            : CUBLAS_COMPUTE_32F;
    if (!attempt(lt_.p_cublasLtMatmulDescCreate(&out.product, compute, CUDA_R_32F))) return;
    const auto set = [&](cublasLtMatmulDescAttributes_t what, auto value) {
      attempt(lt_.p_cublasLtMatmulDescSetAttribute(out.product, what, &value, sizeof value));
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, call.w_is_turned ? CUBLAS_OP_N : CUBLAS_OP_T);
    if (call.has_bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(call.y_dtype));
    }
    const std::int64_t w_rows = call.w_is_turned ? call.columns : call.depth;
    const std::int64_t w_columns = call.w_is_turned ? call.depth : call.columns;
    const cudaDataType type = type_of(call.dtype);
    const std::int64_t w_step = call.w_repeats ? 0 : w_rows * w_columns;
    attempt(layout(out.w, type, w_rows, w_columns, w_rows, call.batch, w_step));
    attempt(
        layout(out.x, type, call.depth, call.rows, call.depth, call.batch, call.depth * call.rows));
    attempt(layout(out.y, type_of(call.y_dtype), call.columns, call.rows, call.y_step, call.batch,
                   call.y_step * call.rows));
    if (out.status == CUBLAS_STATUS_SUCCESS) attempt(choose(call, out));
  }

  cublasStatus_t layout(cublasLtMatrixLayout_t& out, cudaDataType type, std::int64_t rows,
                        std::int64_t columns, std::int64_t column_step, std::int64_t batch,
                        std::int64_t step) {
    cublasStatus_t status =
        lt_.p_cublasLtMatrixLayoutCreate(&out, type, static_cast<std::uint64_t>(rows),
                                         static_cast<std::uint64_t>(columns), column_step);
    if (status != CUBLAS_STATUS_SUCCESS || batch == 1) return status;
    const auto count = static_cast<std::int32_t>(batch);
    status = lt_.p_cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                    sizeof count);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return lt_.p_cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                  &step, sizeof step);
  }

  cublasStatus_t choose(const GemmCall& call, Prepared& out) {
    cublasLtMatmulPreference_t preference = nullptr;
    cublasStatus_t status = lt_.p_cublasLtMatmulPreferenceCreate(&preference);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
      if (status != CUBLAS_STATUS_SUCCESS) return;
      status = lt_.p_cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value);
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, call.workspace_bytes);
    for (const auto what :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      set(what, static_cast<std::uint32_t>(routine_alignment));
    }
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = lt_.p_cublasLtMatmulAlgoGetHeuristic(handle_, out.product, out.w, out.x, out.y,
                                                    out.y, preference, 1, &result, &found);
    }
    if (status == CUBLAS_STATUS_SUCCESS && found == 0) status = CUBLAS_STATUS_NOT_SUPPORTED;
    out.algorithm = result.algo;
    lt_.p_cublasLtMatmulPreferenceDestroy(preference);
    return status;
  }

  const Library& lt_;
  cublasLtHandle_t handle_;
  std::mutex mutex_;
  std::map<Key, Prepared> prepared_;
};

}  // namespace

Vendor<GemmCall> open_cublaslt() {
  static const Library library("libcublasLt.so.13");
  if (const std::string& missing = library.found.missing(); !missing.empty()) {
    return {nullptr, "no cuBLASLt: " + missing};
  }
  cublasLtHandle_t handle = nullptr;
  const cublasStatus_t status = library.p_cublasLtCreate(&handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return {nullptr, fmt::format("no cuBLASLt: {}", library.p_cublasLtGetStatusString(status))};
  }
  return {std::make_unique<CublasLt>(library, handle),
          "cuBLASLt " + version_text(library.p_cublasLtGetVersion())};
}

}  // namespace tenon::cuda
