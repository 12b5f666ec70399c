// Prepared datasets kept from run to run, so that a large one is tokenized once.
#pragma once

#include <string>

#include "data/dataset.h"
#include "data/prepare.h"

namespace megatoken {

// $MEGATOKEN_CACHE, else ~/.cache/megatoken. Empty (MEGATOKEN_CACHE set to nothing, or no home): no cache.
std::string default_cache_dir();

// prepare_dataset, or the same from <cache_dir>/datasets/<key>.safetensors, where the key is a hash of the files'
// content, the tokenizer and every setting that matters. Only what took some work is kept (kCacheFromBytes of input, a
// tokenizer with an identity), and only where it takes a small part of the free space. An entry that is damaged in any
// way is passed over and replaced, one that can't be written costs a warning: the result never depends on the cache.
// Safe when several processes prepare the same dataset at once; entries may be deleted at any time.
PreparedDataset prepare_dataset_cached(const DatasetSpec& spec, const TextEncoder& encoder,
                                       const PrepareOptions& options, PrepareCounts& counts,
                                       const std::string& cache_dir);

inline constexpr int64 kCacheFromBytes = int64{1} << 20;

}  // namespace megatoken
