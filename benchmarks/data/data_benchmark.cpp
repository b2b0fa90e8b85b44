// How fast training samples are read: opening a corpus, the table that an epoch builds once,
// samples in order and at random places. Run in a folder with 0.5 GB to spare; prints one JSON
// object.
//
//   data_benchmark [documents = 1000000] [context = 2048]
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/random.h"
#include "data/training_data.h"
#include "formats/indexed_dataset.h"

namespace {

double seconds_of(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  using namespace sauropod;
  const uint64_t documents = argc > 1 ? std::stoull(argv[1]) : 1000000;
  const int64_t context = argc > 2 ? std::stoll(argv[2]) : 2048;
  const auto folder = std::filesystem::path("data_benchmark." + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  nlohmann::ordered_json result = {{"documents", documents}, {"context", context}};
  {
    // Lengths from 1 to 2^10, small ones more often: about 150 tokens in the mean.
    formats::IndexedDatasetWriter writer(folder / "train", formats::TokenType::int32);
    std::vector<int32_t> tokens(1024, 77);
    for (uint64_t d = 0; d < documents; ++d) {
      const uint64_t bits = base::random_bits(1, d);
      writer.add_document(std::span(tokens).first(1 + bits % (uint64_t{1} << (bits >> 32) % 11)),
                          "generated");
    }
    result["write_seconds"] = seconds_of([&] {
      writer.finish();
      writer.commit();
    });
    result["tokens"] = writer.tokens();
  }
  std::unique_ptr<data::TrainingData> data;
  result["open_seconds"] = seconds_of([&] {
    data = std::make_unique<data::TrainingData>(
        std::vector<data::CorpusOptions>{{(folder / "train").string()}}, context, 1);
  });
  result["describe_seconds"] = seconds_of([&] { data->describe(); });
  std::vector<int32_t> sample(static_cast<size_t>(context) + 1);
  result["first_sample_seconds"] = seconds_of([&] { data->sample(0, sample); });
  constexpr uint64_t kSamples = 20000;
  const auto rate = [&](const auto& index_of) {
    const double seconds = seconds_of([&] {
      for (uint64_t i = 0; i < kSamples; ++i) data->sample(index_of(i), sample);
    });
    return static_cast<double>(kSamples * static_cast<uint64_t>(context)) / seconds;
  };
  result["tokens_per_second"] = rate([](uint64_t i) { return i; });
  const uint64_t epoch = data->tokens() / static_cast<uint64_t>(context);
  result["tokens_per_second_at_random"] =
      rate([&](uint64_t i) { return base::random_bits(2, i) % epoch; });
  std::printf("%s\n", result.dump(2).c_str());
  std::filesystem::remove_all(folder);
}
