#include "ops/cuda/gemm_plan.h"

#include <array>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "ops/cuda/cublaslt.h"

namespace megatoken::cuda {
namespace {

void require(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    throw TrainError("cuBLASLt: {}: {}", what, cublaslt().status_string(status));
}

// Largest power of 2, at most 256, that divides an address.
std::uint32_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p) | 256u;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

cudaDataType_t type_of(DType dtype) { return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

// Everything an algorithm is chosen by.
struct Key {
  int64 m, n, k, a_stride, b_stride, c_stride, d_stride;
  std::array<std::uint32_t, 4> alignments;  // a, b, c, d
  DType d_type;
  bool transpose_a, transpose_b, addend, in_place;
  auto operator<=>(const Key&) const = default;
};

// A view of one row may have any stride; cuBLASLt wants at least the width.
int64 leading(const View& v) { return v.rows <= 1 ? v.cols : v.row_stride; }

Key key_of(const Gemm& g) {
  const bool addend = !g.c.absent();
  const View& c = addend ? g.c : g.d;
  return {g.m(),
          g.n(),
          g.k(),
          leading(g.a),
          leading(g.b),
          leading(c),
          leading(g.d),
          {alignment_of(g.a.data), alignment_of(g.b.data), alignment_of(c.data), alignment_of(g.d.data)},
          g.d.dtype,
          g.transpose_a,
          g.transpose_b,
          addend,
          addend && c.data == g.d.data};
}

class Layout {
 public:
  // Row-major rows x cols is column-major cols x rows.
  Layout(DType dtype, int64 rows, int64 cols, int64 stride) {
    require(cublaslt().layout_create(&layout_, type_of(dtype), static_cast<std::uint64_t>(cols),
                                     static_cast<std::uint64_t>(rows), stride),
            "describing a matrix");
  }
  ~Layout() { cublaslt().layout_destroy(layout_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

// cuBLASLt multiplies column-major matrices: d^T = op(b)^T op(a)^T, so b comes first.
class Plan {
 public:
  Plan(cublasLtHandle_t handle, const Key& key, int64 workspace_bytes)
      : a_(DType::bf16, key.transpose_a ? key.k : key.m, key.transpose_a ? key.m : key.k, key.a_stride),
        b_(DType::bf16, key.transpose_b ? key.n : key.k, key.transpose_b ? key.k : key.n, key.b_stride),
        c_(key.d_type, key.m, key.n, key.c_stride),
        d_(key.d_type, key.m, key.n, key.d_stride) {
    const CublasLt& lt = cublaslt();
    require(lt.desc_create(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
    const auto set_operation = [&](cublasLtMatmulDescAttributes_t attribute, bool transpose) {
      const cublasOperation_t operation = transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
      require(lt.desc_set(desc_, attribute, &operation, sizeof(operation)), "describing a product");
    };
    set_operation(CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b);
    set_operation(CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a);

    cublasLtMatmulPreference_t preference = nullptr;
    require(lt.preference_create(&preference), "choosing an algorithm");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      require(lt.preference_set(preference, attribute, &value, sizeof(value)), "choosing an algorithm");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_bytes));
    // Parts of a sum split over k are added up in float32, never in the output's type.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignments[1]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignments[0]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignments[2]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignments[3]);
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status = lt.heuristic(handle, desc_, b_.get(), a_.get(), c_.get(), d_.get(), preference, 1,
                                               &result, &found);
    lt.preference_destroy(preference);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) require(status, "choosing an algorithm");
    usable_ = status == CUBLAS_STATUS_SUCCESS && found == 1 && result.state == CUBLAS_STATUS_SUCCESS;
    algorithm_ = result.algo;
  }
  ~Plan() { cublaslt().desc_destroy(desc_); }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  bool usable() const { return usable_; }
  void run(cublasLtHandle_t handle, CudaStream& stream, const Gemm& g) const {
    const float one = 1, beta = g.c.absent() ? 0.0f : 1.0f;
    const View& c = g.c.absent() ? g.d : g.c;
    require(cublaslt().matmul(handle, desc_, &one, g.b.data, b_.get(), g.a.data, a_.get(), &beta, c.data, c_.get(),
                              g.d.data, d_.get(), &algorithm_, stream.scratch(),
                              static_cast<std::size_t>(stream.scratch_bytes()), stream.native()),
            "multiplying");
  }

 private:
  Layout a_, b_, c_, d_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  bool usable_ = false;
};

// Lives with a stream.
class Plans {
 public:
  explicit Plans(CudaStream& stream) : workspace_bytes_(stream.scratch_bytes()) {
    require(cublaslt().create(&handle_), "starting the library");
  }
  ~Plans() {
    plans_.clear();
    cublaslt().destroy(handle_);
  }
  Plans(const Plans&) = delete;
  Plans& operator=(const Plans&) = delete;

  bool run(CudaStream& stream, const Gemm& gemm) {
    if (plans_.size() >= kMostPlans) plans_.clear();  // batches of ever new lengths
    const auto [at, added] = plans_.try_emplace(key_of(gemm), handle_, key_of(gemm), workspace_bytes_);
    if (added && !at->second.usable())
      log_warning("cuBLASLt has no algorithm for a product of {} x {} x {}; a slow kernel takes its place", gemm.m(),
                  gemm.n(), gemm.k());
    if (!at->second.usable()) return false;
    at->second.run(handle_, stream, gemm);
    return true;
  }

 private:
  static constexpr std::size_t kMostPlans = 4096;
  cublasLtHandle_t handle_ = nullptr;
  int64 workspace_bytes_;
  std::map<Key, Plan> plans_;
};

}  // namespace

bool gemm_cublaslt(CudaStream& stream, const Gemm& gemm) { return stream.attached<Plans>().run(stream, gemm); }

}  // namespace megatoken::cuda
