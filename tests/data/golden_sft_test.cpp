// The rows that TRL's SFTTrainer trains on, from the same files (tools/golden_sft_rows.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/prepare.h"
#include "data/tokenizer_encoder.h"
#include "io/json.h"

namespace megatoken {
namespace {

const std::string kDir = std::string(MEGATOKEN_TEST_DATA) + "/data/golden_sft";

struct GoldenSft : ::testing::TestWithParam<const char*> {};

TEST_P(GoldenSft, RowsEqualTrls) {
  const nlohmann::json golden = read_json_file(kDir + "/cases.json").at(GetParam());
  DatasetSpec spec{.name = kDir + "/" + golden.at("file").get<std::string>()};
  const std::string unit = golden.value("sample_by", "document");
  spec.unit = unit == "line" ? TextUnit::line : unit == "paragraph" ? TextUnit::paragraph : TextUnit::document;
  spec.text_field = golden.value("dataset_text_field", "text");
  PrepareOptions options{.vocab_size = 400, .threads = 2};
  if (golden.contains("max_length")) {
    options.max_length = golden["max_length"].get<int64>();
    options.max_length_given = true;
  }
  if (golden.contains("completion_only_loss"))
    options.completion_only_loss = golden["completion_only_loss"].get<bool>();
  const std::string tokenizer = kDir + "/" + golden.at("tokenizer").get<std::string>();
  const TextEncoder encoder = make_text_encoder(std::make_shared<const Tokenizer>(Tokenizer::load(tokenizer)));
  PrepareCounts counts;
  const PreparedDataset dataset = prepare_dataset(spec, encoder, options, counts);

  // TRL keeps rows without a target, or drops them unseen; here they are dropped and counted.
  int64 row = 0;
  for (const nlohmann::json& expected : golden.at("rows")) {
    const auto ids = expected.at("input_ids").get<std::vector<std::int32_t>>();
    const auto labels = expected.at("labels").get<std::vector<std::int32_t>>();
    if (count_targets(labels) == 0) continue;
    ASSERT_LT(row, dataset.rows());
    EXPECT_THAT(dataset.ids(row), ::testing::ElementsAreArray(ids)) << row;
    for (int64 i = 0; i < dataset.length(row); ++i)
      ASSERT_EQ(dataset.label(row, i), labels[static_cast<std::size_t>(i)]) << "row " << row << " token " << i;
    ++row;
  }
  EXPECT_EQ(row, dataset.rows());
  EXPECT_EQ(row + counts.dropped_rows, counts.rows_read);
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenSft,
                         ::testing::Values("text", "text_cut", "text_bos", "content", "prompt", "prompt_bos",
                                           "prompt_cut", "prompt_full", "ids", "ids_cut", "list", "line", "paragraph",
                                           "document", "document_cut"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace megatoken
