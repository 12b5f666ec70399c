// The device buffers of the probe, and one shape run, timed and checked on them.
#pragma once

#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "attention_probe_graph.h"
#include "attention_probe_kernels.h"

namespace megatoken::probe {

// Key heads with `group` query heads each. Strided views are columns of matrices with kWideColumns columns.
struct Shape {
  std::string name;
  int64_t group = 1;
  int64_t key_heads = 1;
  int64_t queries = 0;
  int64_t keys = 0;
  Mask mask = Mask::full;
  int64_t window = 0;
  bool wide = false;      // column slices of [rows, 4096] matrices for q, k, v, o and their gradients
  std::set<Role> narrow;  // wide: except these
  bool fold = false;      // [T, group * 128] read as [T * group, 128]: one query head (full mask only)
  Type o_type = Type::bf16;
  Type d_o_type = Type::bf16;
  Type dq_type = Type::bf16;
  Type dkv_type = Type::bf16;
  bool deterministic = false;
  bool dynamic_shape = false;
  int64_t plan = -1;
  bool lengths = false;       // true lengths given at run time
  int64_t true_queries = -1;  // used when lengths is set; -1: all
  int64_t true_keys = -1;
};

struct Options {
  int repeats = 3;
  int64_t check_rows = 0;  // sampled query rows and keys to compare with the reference
  double sustain_s = 0;    // run each pass for so long and report the median of the last third
  bool backward = true;
};

struct Errors {
  double norm = -1;   // ||a - b|| / ||b|| over all samples
  double worst = -1;  // the same for the worst (row, head)
};

struct PassResult {
  std::string error;
  std::string plan;
  BuildSeconds build;
  int64_t workspace = -1;
  std::vector<double> ms;
  double median_ms = 0;
  double tflops = 0;
};

struct Result {
  Shape shape;
  PassResult forward, backward;
  Errors o, dq, dk, dv;
  double lse = -1;          // largest |difference|
  int64_t not_finite = -1;  // in the regions that had to be written
  int64_t strays = -1;      // elements outside of those regions that were written (wide shapes)
  std::string note;
};

inline constexpr int64_t kWideRows = int64_t{1} << 20;
inline constexpr int64_t kWideColumns = 4096;

class Rig {
 public:
  Rig(const Library& library, const std::string& out_file, double seconds);
  ~Rig();
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  // Runs, prints one line, appends one JSON line. Past the time limit it only says that the shape was skipped.
  Result run(const Shape& shape, const Options& options);
  // Builds only; no device needed.
  Result build(const Shape& shape);
  // Graphs are built once and kept. While collecting, run() only notes what it would build; build_collected() then
  // builds all of it on several threads, each with its own cuDNN handle.
  std::shared_ptr<AttentionGraph> graph(AttentionGraph::Pass pass, const Problem& problem);
  void forget() { graphs_.clear(); }
  void collect(bool on) { collecting_ = on; }
  bool collecting() const { return collecting_; }
  void build_collected(int threads);
  void say(const std::string& section, const std::string& text);
  bool late() const;

  const Library& library() const { return library_; }
  cudaStream_t stream() const { return stream_; }
  // A call's tensors inside the buffers; second: gradients go to the second set of output buffers.
  std::map<int64_t, void*> tensors(const Shape& shape, const Problem& problem, bool second) const;
  static Problem problem(const Shape& shape);
  void* workspace(int64_t bytes);
  void set_lengths(const std::vector<int32_t>& queries, const std::vector<int32_t>& keys);
  void poison();
  float* scratch() const { return scratch_; }
  float* stats() const { return stats_; }
  void* offsets(int which, const std::vector<int64_t>& values);  // which: 0 queries, 1 keys, 2 stats
  std::vector<double> time(const std::function<void()>& call, int repeats);
  std::vector<double> time_for(const std::function<void()>& call, double seconds);

 private:
  void print(const Result& result);
  void check(const Shape& shape, const Problem& problem, const Options& options, Result& result);

  using Key = std::pair<AttentionGraph::Pass, Problem>;

  const Library& library_;
  bool collecting_ = false;
  std::vector<Key> wanted_;
  // Graphs that other threads built; their handles live as long as the graphs.
  std::vector<std::unique_ptr<Library>> builders_;
  std::map<std::string, std::shared_ptr<AttentionGraph>> graphs_;
  std::ofstream out_;
  std::chrono::steady_clock::time_point start_;
  double seconds_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  // Wide matrices, bf16. Contiguous shapes use their first bytes.
  void* q_ = nullptr;
  void* kv_ = nullptr;
  void* d_o_ = nullptr;
  void* o_ = nullptr;
  void* dq_ = nullptr;
  void* dkv_ = nullptr;
  float* stats_ = nullptr;
  float* scratch_ = nullptr;
  int32_t* lengths_ = nullptr;
  int64_t* offsets_ = nullptr;
  void* workspace_ = nullptr;
  int64_t workspace_bytes_ = 0;
};

double flops(const Shape& shape, bool backward);
std::vector<int64_t> sample(int64_t total, int64_t count, int64_t row_stride);
Errors compare(const std::vector<float>& got, const std::vector<float>& want);
double median(std::vector<double> values);

}  // namespace megatoken::probe
