// Keys of the data (TRL's ScriptArguments and the data part of SFTConfig).
#include "spec/run_config.h"
#include "spec/run_config_keys.h"

namespace megatoken {
namespace {

using enum ValueType;

constexpr std::string_view kNoWorkers = "data is read ahead by the program itself";
constexpr std::string_view kMapped = "files are mapped, not loaded";
constexpr std::string_view kNoPadding = "batches are flat lists of documents; nothing is padded";

const KeyInfo kRows[] = {
    honoured("dataset_name", text, "",
             "a .jsonl, .json or .txt file, a directory or a glob; or json or text with data_files",
             [](RunConfig& c, const KeyValue& v) { c.data.dataset_name = v.text(); })
        .or_null(),
    honoured("data_files", list, "", "files of dataset_name: json or text",
             [](RunConfig& c, const KeyValue& v) { c.data.data_files = v.texts(); })
        .or_null(),
    honoured("dataset_train_split", text, "train", "the split to train on, where the dataset has splits",
             [](RunConfig& c, const KeyValue& v) { c.data.train_split = v.text(); }),
    honoured("dataset_test_split", text, "test", "the split to evaluate on, where the dataset has splits",
             [](RunConfig& c, const KeyValue& v) { c.data.test_split = v.text(); }),
    honoured("eval_dataset", text, "", "the dataset to evaluate on, as dataset_name; not set: the test split",
             [](RunConfig& c, const KeyValue& v) { c.data.eval_dataset = v.text(); })
        .or_null(),
    honoured("sample_by", choice, "document",
             "what a row of a text file is: line, paragraph or document (the whole file)",
             [](RunConfig& c, const KeyValue& v) {
               c.data.sample_by = v.choice<SampleBy>(
                   {{"line", SampleBy::line}, {"paragraph", SampleBy::paragraph}, {"document", SampleBy::document}});
             }),
    honoured("dataset_text_field", text, "text", "the column that holds the text",
             [](RunConfig& c, const KeyValue& v) { c.data.text_field = v.text(); }),
    honoured("max_length", integer, "1024",
             "tokens of the longest sequence, over all ranks; null: no limit. A longer row needs it to be given",
             [](RunConfig& c, const KeyValue& v) {
               c.data.max_length_given = true;
               c.data.max_length = v.is_null() ? std::nullopt : std::optional<int64>(v.integer(2, int64{1} << 40));
             })
        .or_null()
        .also("max_seq_length"),
    honoured(
        "long_rows", choice, "truncate",
        "what becomes of a row over max_length: truncate (what follows is dropped, and counted), split (consecutive "
        "windows) or concatenate (all rows, short ones too, are laid one behind the other and cut every max_length "
        "tokens; positions and attention run across them)",
        [](RunConfig& c, const KeyValue& v) {
          c.data.long_rows_given = true;
          c.data.long_rows = v.choice<LongRows>(
              {{"truncate", LongRows::truncate}, {"split", LongRows::split}, {"concatenate", LongRows::concatenate}});
        }),
    honoured("truncation_mode", choice, "keep_start", "which end of a long row is kept: keep_start",
             [](RunConfig&, const KeyValue& v) {
               if (v.text() == "keep_end") v.fail("keep_end is refused: rows are cut at their end");
               v.choice<bool>({{"keep_start", true}});
             }),
    honoured("completion_only_loss", flag, "",
             "loss on the completion only; not set: on the completion of prompt-completion rows, on all of text rows",
             [](RunConfig& c, const KeyValue& v) {
               if (!v.is_null()) c.data.completion_only_loss = v.flag();
             })
        .or_null(),
    honoured("eos_token", text, "", "the token that ends a row; not set: the tokenizer's",
             [](RunConfig& c, const KeyValue& v) { c.data.eos_token = v.text(); })
        .or_null(),
    honoured("shuffle_dataset", flag, "false", "shuffle the rows once, before anything else",
             [](RunConfig& c, const KeyValue& v) { c.data.shuffle_dataset = v.flag(); }),
    honoured(
        "train_sampling_strategy", choice, "random", "the order of rows in an epoch: random or sequential",
        [](RunConfig& c, const KeyValue& v) {
          if (v.text() == "group_by_length") v.fail("group_by_length is refused: it is not supported");
          c.data.sampling = v.choice<Sampling>({{"random", Sampling::random}, {"sequential", Sampling::sequential}});
        }),
    honoured("seed", integer, "42", "of weights made from config.json and, without data_seed, of the order of rows",
             [](RunConfig& c, const KeyValue& v) { c.data.seed = v.integer(0); }),
    honoured("data_seed", integer, "", "of the order of rows; not set: seed",
             [](RunConfig& c, const KeyValue& v) {
               if (!v.is_null()) c.data.data_seed = v.integer(0);
             })
        .or_null(),

    container_row("dataset_kwargs", "TRL's options of dataset preparation"),
    refused("dataset_kwargs.skip_prepare_dataset", "false",
            "rows are always prepared; pre-tokenized rows have input_ids"),
    accepted("dataset_kwargs.add_special_tokens", "TRL no longer reads it either"),
    accepted("dataset_kwargs.append_concat_token", "TRL no longer reads it either"),
    accepted("dataset_num_proc", "rows are prepared by threads of the program"),
    accepted("dataset_batch_size", kMapped),
    accepted("dataset_streaming", kMapped),
    accepted("streaming", kMapped),
    accepted("remove_unused_columns", "columns that aren't needed are never read"),
    accepted("length_column_name", "lengths are counted"),
    accepted("packing_strategy", "it only applies with packing"),
    accepted("padding_free", kNoPadding),
    accepted("pad_token", kNoPadding),
    accepted("pad_to_multiple_of", kNoPadding),
    accepted("dataloader_num_workers", kNoWorkers),
    accepted("dataloader_pin_memory", kNoWorkers),
    accepted("dataloader_persistent_workers", kNoWorkers),
    accepted("dataloader_prefetch_factor", kNoWorkers),
    accepted("dataloader_multiprocessing_context", kNoWorkers),
    accepted("dataloader_in_order", kNoWorkers),
    refused("assistant_only_loss", "false", "chat rows are not supported yet"),
    refused("chat_template_path", "", "chat rows are not supported yet"),
    refused("dataloader_drop_last", "false", "the last short batch is trained on, scaled by its own count"),
    refused("dataset_config", R"("default"|"")", "a local dataset has no configurations; name its directory instead"),
    refused("datasets", "[]", "mixtures of datasets are not supported; put the rows into one file or directory"),
    refused("test_split_size", "", "cutting off a test split is not supported; give eval_dataset"),
    refused(
        "packing", "false",
        "packing is not supported yet; rows are batched without padding anyway, and long_rows: concatenate joins short "
        "texts (as packing_strategy: wrapped does)"),
    refused("eval_packing", "false", "packing is not supported yet"),
    refused("group_by_length", "false", "it is not supported"),
    refused("label_names", "[]", "labels are made from the rows"),
    refused("num_of_sequences", "1024", "it belonged to an older packing, which is not supported"),
    refused("chars_per_token", "", "it belonged to an older packing, which is not supported"),
};

}  // namespace

std::span<const KeyInfo> data_key_rows() { return kRows; }

}  // namespace megatoken
