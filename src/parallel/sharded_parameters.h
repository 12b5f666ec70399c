// One rank's share of the training state: every bucket is cut in `shards` equal pieces (ZeRO-3, Rajbhandari et al.
// 2020; FSDP2), each holding weights in the compute type, float32 gradients and Adam moments. A bf16 weight carries a
// 16-bit remainder that makes the float32 master exact (ops/adamw.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "device/device.h"
#include "parallel/bucket.h"
#include "step/step_context.h"

namespace megatoken {

enum class StateKind { master, gradient, exp_avg, exp_avg_sq };

// Where the state lives. What is in host memory is streamed through the device: weights before they are used, gradients
// behind the layer that made them, all of it by the update (optim/update.h).
struct StatePlaces {
  Place optimizer = Place::device;  // moments and, of bf16 weights, the remainders of the masters
  Place gradients = Place::device;
  Place weights = Place::device;

  bool operator==(const StatePlaces&) const = default;
};

class ShardedParameters {
 public:
  // device: where the state is allocated (gradients and moments zeroed, weights undefined); null: sizes only, for
  // plans.
  ShardedParameters(std::vector<BucketSpec> buckets, DType dtype, int64 shards, int64 shard_rank, Device* device,
                    StatePlaces places = {});

  const std::vector<BucketSpec>& buckets() const { return buckets_; }
  DType dtype() const { return dtype_; }
  int64 shards() const { return shards_; }
  const StatePlaces& places() const { return places_; }
  // Elements of one rank's piece of a bucket; the last piece may end in padding.
  int64 shard_elements(int64 bucket) const;
  int64 padded_elements(int64 bucket) const { return shard_elements(bucket) * shards_; }
  int64 shard_begin(int64 bucket) const { return shard_elements(bucket) * shard_rank_; }

  // Pieces of the state as [1, shard_elements] views of a step.
  View weight(StepContext& ctx, int64 bucket) const;
  View remainder(StepContext& ctx, int64 bucket) const;  // absent when the dtype is f32
  View gradient(StepContext& ctx, int64 bucket) const;
  View exp_avg(StepContext& ctx, int64 bucket) const;
  View exp_avg_sq(StepContext& ctx, int64 bucket) const;

  // Host access to `count` elements of this rank's piece, from element `first` of the piece; blocking, outside of
  // steps.
  void read(Stream& stream, StateKind kind, int64 bucket, int64 first, int64 count, float* to) const;
  void write(Stream& stream, StateKind kind, int64 bucket, int64 first, int64 count, const float* from);

  // Name and bytes of every persistent array, for the plan's table.
  struct Storage {
    std::string name;
    Place place;
    int64 bytes;
  };
  std::vector<Storage> storage() const;
  int64 storage_bytes(Place place) const;

  // The pieces of parameters that fall into this rank's piece of a bucket.
  struct Span {
    const ParameterSpec* parameter;
    int64 first;  // element of the parameter
    int64 count;
    int64 offset_in_shard;  // element of the piece
  };
  std::vector<Span> spans(int64 bucket) const;

 private:
  // A persistent array of a bucket: where it lies in the bucket's memory of its place.
  struct Piece {
    Place place = Place::device;
    int64 offset = 0;
    int64 bytes = 0;
  };
  struct Layout {
    Piece weight, remainder, gradient, exp_avg, exp_avg_sq;
    int64 size[kNumPlaces] = {};
  };
  Layout layout(int64 bucket) const;
  View part(StepContext& ctx, const char* what, int64 bucket, Piece Layout::*piece, DType dtype) const;
  // Null for plans.
  std::byte* data(int64 bucket, const Piece& piece) const;
  // The float32 array of a kind, from element `first`; the weights' own array for masters.
  std::byte* element(StateKind kind, int64 bucket, int64 first) const;

  std::vector<BucketSpec> buckets_;
  DType dtype_;
  int64 shards_;
  int64 shard_rank_;
  StatePlaces places_;
  std::vector<Memory> memory_[kNumPlaces];  // one a bucket; empty for plans
};

}  // namespace megatoken
