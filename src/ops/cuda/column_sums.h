// Column sums in two stages with a fixed order, so that they have the same bits in every run.
#pragma once

#include "device/cuda/cuda_stream.h"

namespace megatoken::cuda {

// How many partial sums of `cols` float32 columns a kernel over `rows` rows should leave in the stream's scratch: at
// most `most`, each of at least `least_rows` rows. Depends on shapes and the stream's kind alone.
int64 num_partials(const CudaStream& stream, int64 rows, int64 cols, int64 least_rows, int64 most);

// sum[j] += partial[0][j] + partial[1][j] + ...; partial is [count][cols] in the stream's scratch.
void add_partials(CudaStream& stream, int64 count, int64 cols, float* sum);

}  // namespace megatoken::cuda
