// report.html from logs as they may be found: of one step, half-written, of 100,000 steps. With MEGATOKEN_KEEP_PAGES
// the pages stay there for tests/report/browser_test.py.
#include "train/run_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "spec/run_config.h"
#include "train/training_support.h"

namespace megatoken {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string step_line(int step) {
  nlohmann::ordered_json line = {{"step", step},
                                 {"epoch", 0.1},
                                 {"loss", 5.0 / (1 + 0.001 * step)},
                                 {"grad_norm", 1.5},
                                 {"learning_rate", 1e-5},
                                 {"num_tokens", 1000 * step},
                                 {"tokens_per_second", 1234.5},
                                 {"mean_token_accuracy", 0.25},
                                 {"step_time_s", 0.8},
                                 {"mfu", nullptr},
                                 {"peak_device_bytes", 1 << 20},
                                 {"peak_host_bytes", 1 << 24}};
  return line.dump() + "\n";
}

std::string page_of(const std::string& name, const std::string& log, int total_steps) {
  const TemporaryDirectory directory;
  const std::string model = std::string(MEGATOKEN_TEST_DATA) + "/golden/qwen3_tied";
  const Job job =
      make_job(parse_run_config("model_name_or_path: " + model + "\ndataset_name: " + model +
                                    "/train.jsonl\nuse_cpu: true\nmax_length: 64\noutput_dir: " + directory.path + "\n",
                                "run.yaml"),
               Purpose::train, 1);
  const std::string path = directory.path + "/trainer_log.jsonl";
  std::ofstream(path) << log;
  RunPage page(job, total_steps, path);
  page.write();
  std::ifstream in(page.path());
  const std::string html{std::istreambuf_iterator<char>(in), {}};
  if (const char* keep = std::getenv("MEGATOKEN_KEEP_PAGES"))
    std::ofstream(std::string(keep) + "/" + name + ".html") << html;
  EXPECT_THAT(html, Not(HasSubstr("nan")));
  EXPECT_THAT(html, Not(HasSubstr("inf,")));
  EXPECT_THAT(html, HasSubstr("Length of the training rows"));
  EXPECT_THAT(html, HasSubstr("Configuration as given"));
  return html;
}

TEST(RunPage, OfAnEmptyLog) {
  const std::string html = page_of("empty-log", "", 10);
  EXPECT_THAT(html, HasSubstr("<dd>0 of 10</dd>"));
  EXPECT_THAT(html, Not(HasSubstr("<h2>Loss</h2>")));
}

TEST(RunPage, OfOneStep) {
  const std::string html = page_of("one-line", step_line(1), 1);
  EXPECT_THAT(html, HasSubstr("<dd>1 of 1</dd>"));
  EXPECT_THAT(html, HasSubstr("<h2>Loss</h2>"));
}

// A line cut off by a full disk or a kill, lines that are no JSON or no object, numbers that are null.
TEST(RunPage, OfAHalfWrittenLog) {
  const std::string html =
      page_of("half-written",
              step_line(1) + "\n[1, 2]\n\x01\xff\n{\"step\": \"two\"}\n{\"dropped_rows\": 3}\n" + step_line(2) +
                  "{\"step\": 3, \"loss\": null, \"grad_norm\": null}\n{\"step\": 3, \"eval_loss\": 2.5, "
                  "\"eval_loss_by_position\": [1, null, 3]}\n" +
                  "{\"step\": 3, \"loss\": 4, \"step_time_s\": \"x\"}\n" + step_line(4).substr(0, 40),
              10);
  EXPECT_THAT(html, HasSubstr("<dd>3 of 10</dd>"));
  EXPECT_THAT(html, HasSubstr("2.5000"));
}

TEST(RunPage, OfAHundredThousandSteps) {
  std::string log;
  for (int step = 1; step <= 100000; ++step) log += step_line(step);
  const std::string html = page_of("hundred-thousand", log, 100000);
  EXPECT_THAT(html, HasSubstr("<dd>100000 of 100000</dd>"));
  EXPECT_LT(html.size(), 200000u);
}

}  // namespace
}  // namespace megatoken
