// The ops of a device issued on a step's compute stream, each with its exact accesses and cost declared in one place.
// Absent optional arguments are declared as empty accesses, which every context ignores.
// Every member is asynchronous on CUDA and done on return on the CPU; in counting and checking contexts no kernel runs.
#pragma once

#include "comm/group.h"
#include "ops/op_table.h"
#include "step/step_context.h"

namespace megatoken {

class StepOps {
 public:
  // table: never called unless the context executes.
  StepOps(StepContext& context, const OpTable& table) : context_(context), table_(table) {}

  StepContext& context() const { return context_; }
  const OpTable& table() const { return table_; }

  void gemm(std::string_view name, const Gemm& op);
  void rms_norm(std::string_view name, const RmsNorm& op);
  void rms_norm_backward(std::string_view name, const RmsNormBackward& op);
  void norm_rope(std::string_view name, const NormRope& op);
  void norm_rope_backward(std::string_view name, const NormRopeBackward& op);
  void swiglu(std::string_view name, const Swiglu& op);
  void swiglu_backward(std::string_view name, const SwigluBackward& op);
  void embedding(std::string_view name, const Embedding& op);
  void embedding_backward(std::string_view name, const EmbeddingBackward& op);
  void gather_rows(std::string_view name, const GatherRows& op);
  void scatter_rows(std::string_view name, const ScatterRows& op);
  void convert(std::string_view name, const Convert& op);
  void accumulate(std::string_view name, const Accumulate& op);
  void add_bias(std::string_view name, const AddBias& op);
  void bias_gradient(std::string_view name, const BiasGradient& op);
  void fill_zero(std::string_view name, const FillZero& op);
  void sum_squares(std::string_view name, const SumSquares& op);
  void cross_entropy(std::string_view name, const CrossEntropy& op);
  void adamw(std::string_view name, const Adamw& op);
  void router(std::string_view name, const Router& op);
  void router_backward(std::string_view name, const RouterBackward& op);
  void router_statistics(std::string_view name, const RouterStatistics& op);
  void balance_loss(std::string_view name, const BalanceLoss& op);
  void combine_experts(std::string_view name, const CombineExperts& op);
  void expert_swiglu_backward(std::string_view name, const ExpertSwigluBackward& op);
  void sigmoid(std::string_view name, const Sigmoid& op);
  void sigmoid_backward(std::string_view name, const SigmoidBackward& op);
  // These take their workspace from a buffer of the context.
  void sort_by_expert(std::string_view name, SortByExpert op);
  void grouped_gemm(std::string_view name, GroupedGemm op);
  // Attention ops take their workspace from a buffer of the context.
  void attention_forward(std::string_view name, AttentionForward op);
  void attention_merge(std::string_view name, const AttentionMerge& op);
  void attention_backward(std::string_view name, AttentionBackward op);

  // Copies equal shapes on a transfer stream (h2d or d2h) after the given tickets.
  Ticket copy(StreamId stream, std::string_view name, const View& from, const View& to,
              std::initializer_list<Ticket> after = {});

  // Collectives on the exchange stream; group may be null when the context does not execute. ranks: the group's size.
  // all_gather: to is ranks pieces of from's bytes. reduce_scatter: from is ranks pieces of to's elements, float32.
  Ticket all_gather(std::string_view name, Group* group, int64 ranks, const View& from, const View& to,
                    std::initializer_list<Ticket> after = {});
  Ticket reduce_scatter(std::string_view name, Group* group, int64 ranks, const View& from, const View& to,
                        std::initializer_list<Ticket> after = {});

  // For ops issued on the context itself. Nothing is wrapped up where nothing runs: planning counts thousands of ops.
  template <typename F>
  Kernel kernel(F f) const {
    return context_.executing() ? Kernel(std::move(f)) : Kernel();
  }

 private:
  StepContext& context_;
  const OpTable& table_;
};

}  // namespace megatoken
