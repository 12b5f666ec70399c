#include "train/rehearsal.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace megatoken {
namespace {

Job job_of(const std::string& more) {
  const std::string model = std::string(MEGATOKEN_TEST_DATA) + "/golden/qwen3_tied";
  return make_job(parse_run_config("model_name_or_path: " + model + "\nuse_cpu: true\nbf16: false\ndtype: float32\n" +
                                       "per_device_train_batch_size: 1\nmax_length: 96\n" + more,
                                   "test"),
                  Purpose::rehearse, 8);
}

TEST(Rehearsal, RunsOneRanksShareOfAnyMeshAndScales) {
  for (const std::string mesh : {"num_processes: 8\ncp_size: 8\n", "num_processes: 8\ncp_size: 2\ndp_shard_size: 2\n",
                                 "num_processes: 8\ncp_size: 8\nparallelism_config_cp_comm_strategy: alltoall\n"})
    for (const std::string places :
         {"", "layer_input: host\nattention_output: host\ngradients: host\nparameters: host\n"}) {
      SCOPED_TRACE(mesh + places);
      const Job job =
          job_of(mesh + places + (mesh.find("dp_shard") == std::string::npos ? "" : "dp_replicate_size: 2\n"));
      for (const int64 rank : {0, 5}) {
        RehearsalOptions options;
        options.rank = rank;
        const Rehearsal all = rehearse(job, options);
        EXPECT_EQ(all.layers, job.model.num_layers);
        EXPECT_EQ(all.arena_bytes, job.plan.arena[0]);
        EXPECT_GT(all.step_time_s, 0);
        EXPECT_GT(all.exchange_s, 0);
        options.layers = 1;
        const Rehearsal one = rehearse(job, options);
        EXPECT_EQ(one.layers, 1);
        EXPECT_LE(one.arena_bytes, all.arena_bytes);
        EXPECT_GT(one.step_time_s, one.micro_batch_s);
        EXPECT_EQ(json_of(job, one)["peak_device_bytes"], job.plan.device_bytes());
      }
    }
}

TEST(Rehearsal, RefusesRanksAndLayersThatAreNotThere) {
  const Job job = job_of("num_processes: 8\ncp_size: 8\n");
  EXPECT_THROW(rehearse(job, {.rank = 8}), ConfigError);
  EXPECT_THROW(rehearse(job, {.layers = job.model.num_layers + 1}), ConfigError);
  EXPECT_THROW(rehearse(job_of("num_processes: 8\ncp_size: 8\nhost_memory: 1MiB\n"), {}), FitError);
}

}  // namespace
}  // namespace megatoken
