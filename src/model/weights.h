// Weights between checkpoint files and this rank's shards. Each rank reads only its own slices.
#pragma once

#include <cstdint>
#include <string>

#include "comm/group.h"
#include "io/checkpoint_reader.h"
#include "io/safetensors_writer.h"
#include "parallel/sharded_parameters.h"
#include "spec/model_spec.h"

namespace megatoken {

// How the checkpoint stores experts: fused where the first sparse layer's gate_up_proj is one tensor.
ExpertLayout expert_layout_of(const ModelSpec& spec, const CheckpointReader& reader);

// Throws FileError naming the tensor and file when one is missing, has another shape or type, or has no place in the
// model. Nothing is left at random values. A tied model's lm_head.weight is ignored, as transformers ties it.
void check_weights(const ModelSpec& spec, const std::vector<BucketSpec>& buckets, const CheckpointReader& reader);
void load_weights(ShardedParameters& parameters, Stream& stream, const CheckpointReader& reader);

// Random weights as transformers initializes them: matrices normal(0, initializer_range), norms 1, biases 0. They depend
// on the seed alone, not on how they are sharded.
void initialize_weights(ShardedParameters& parameters, Stream& stream, const ModelSpec& spec, std::uint64_t seed);

// What a checkpoint file holds of each parameter: the state's kind and the prefix of the tensor's name.
struct SavedState {
  StateKind kind;
  std::string prefix;  // "" for weights; "exp_avg."
};

// Declarations in parameter order for a writer.
std::vector<TensorDeclaration> declare_tensors(const std::vector<BucketSpec>& buckets, const std::vector<SavedState>& states,
                                               DType dtype);
// Brings every rank's pieces to the writing rank. Collective over the shards' group; writer is null on the others. dtype
// as declared (f32, or bf16 for weights).
void save_state(const ShardedParameters& parameters, Stream& stream, Group& shards, const SavedState& state, DType dtype,
                SafetensorsWriter* writer);
// Reads this rank's pieces of "<prefix><parameter>" tensors, float32. FileError when one is missing or misshapen.
void load_state(ShardedParameters& parameters, Stream& stream, const SavedState& state, const CheckpointReader& reader);

}  // namespace megatoken
