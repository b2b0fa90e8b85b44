// The parameter table: names, sizes, the published shapes; and its memory: groups, alignment, initial values.
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "base/error.h"
#include "model/parameter_memory.h"

namespace sauropod::model {
namespace {

ModelOptions shape(std::string family, int64_t layers, int64_t hidden, int64_t heads,
                   int64_t vocabulary, int64_t context) {
  ModelOptions options;
  options.family = std::move(family);
  options.layers = layers;
  options.hidden = hidden;
  options.heads = heads;
  options.vocabulary = vocabulary;
  options.context = context;
  options.resolve(0);
  return options;
}

std::vector<std::string> names(const std::vector<Parameter>& table) {
  std::vector<std::string> result;
  for (const Parameter& parameter : table) result.push_back(parameter.name);
  return result;
}

TEST(ParameterTable, NamesInTheOrderOfMemory) {
  const std::vector<std::string> jurassic{
      "embedding.token.weight", "embedding.position.weight", "layers.0.attention.norm.weight",
      "layers.0.attention.norm.bias", "layers.0.attention.query.weight",
      "layers.0.attention.key.weight", "layers.0.attention.value.weight",
      "layers.0.attention.query.bias", "layers.0.attention.key.bias", "layers.0.attention.value.bias",
      "layers.0.attention.output.weight", "layers.0.attention.output.bias", "layers.0.mlp.norm.weight",
      "layers.0.mlp.norm.bias", "layers.0.mlp.up.weight", "layers.0.mlp.up.bias",
      "layers.0.mlp.down.weight", "layers.0.mlp.down.bias", "final_norm.weight", "final_norm.bias"};
  EXPECT_EQ(names(parameter_table(shape("jurassic", 1, 64, 4, 100, 32))), jurassic);
  const std::vector<std::string> llama{
      "embedding.token.weight", "layers.0.attention.norm.weight", "layers.0.attention.query.weight",
      "layers.0.attention.key.weight", "layers.0.attention.value.weight",
      "layers.0.attention.output.weight", "layers.0.mlp.norm.weight", "layers.0.mlp.gate.weight",
      "layers.0.mlp.up.weight", "layers.0.mlp.down.weight", "final_norm.weight", "head.weight"};
  ModelOptions options = shape("llama", 1, 64, 4, 100, 32);
  options.tied_embeddings = false;
  EXPECT_EQ(names(parameter_table(options)), llama);
  options.tied_embeddings = true;
  EXPECT_EQ(parameter_table(options).size(), llama.size() - 1);
}

TEST(ParameterTable, Shapes) {
  ModelOptions options = shape("llama", 2, 64, 4, 100, 32);
  options.kv_heads = 2;
  options.head_size = 24;
  options.mlp_hidden = 88;
  using Shape = std::vector<int64_t>;
  for (const Parameter& p : parameter_table(options)) {
    const auto ends = [&](const char* end) { return p.name.ends_with(end); };
    if (ends("query.weight")) { EXPECT_EQ(p.shape, (Shape{96, 64})); }
    if (ends("key.weight") || ends("value.weight")) { EXPECT_EQ(p.shape, (Shape{48, 64})); }
    if (ends("output.weight")) { EXPECT_EQ(p.shape, (Shape{64, 96})); }
    if (ends("gate.weight") || ends("up.weight")) { EXPECT_EQ(p.shape, (Shape{88, 64})); }
    if (ends("down.weight")) { EXPECT_EQ(p.shape, (Shape{64, 88})); }
    if (ends("norm.weight")) { EXPECT_EQ(p.shape, (Shape{64})); }
    if (ends("token.weight")) { EXPECT_EQ(p.shape, (Shape{100, 64})); }
    // Matrices decay, vectors do not.
    EXPECT_EQ(p.decay, p.shape.size() == 2) << p.name;
  }
}

// V h + C h + L (12 h² + 13 h) + 2 h: weights and biases of q, k, v, output (4h² + 4h), of the
// feed-forward layer (8h² + 5h) and two norms (4h) a block; the final norm.
int64_t jurassic_count(const ModelOptions& o) {
  const int64_t h = o.hidden;
  return o.vocabulary * h + o.context * h + o.layers * (12 * h * h + 13 * h) + 2 * h;
}

TEST(ParameterTable, CountsThePublishedModels) {
  // Lieber et al., 2021: J1-Large 7.5B, J1-Jumbo 178B.
  const ModelOptions large = shape("jurassic", 32, 4096, 32, 262144, 2048);
  EXPECT_EQ(parameter_count(parameter_table(large)), jurassic_count(large));
  EXPECT_NEAR(static_cast<double>(jurassic_count(large)), 7.5e9, 0.05e9);
  const ModelOptions jumbo = shape("jurassic", 76, 13824, 96, 262144, 2048);
  EXPECT_EQ(jumbo.head_size, 144);
  EXPECT_EQ(parameter_count(parameter_table(jumbo)), jurassic_count(jumbo));
  EXPECT_NEAR(static_cast<double>(jurassic_count(jumbo)), 178e9, 0.5e9);
  // GPT-2 small, Radford et al., 2019: 124,439,808.
  const ModelOptions gpt2 = shape("jurassic", 12, 768, 12, 50257, 1024);
  EXPECT_EQ(parameter_count(parameter_table(gpt2)), 124439808);
  // Llama 7B, Touvron et al., 2023: 6,738,415,616.
  ModelOptions llama = shape("llama", 32, 4096, 32, 32000, 2048);
  llama.tied_embeddings = false;
  EXPECT_EQ(llama.mlp_hidden, 10944);
  llama.mlp_hidden = 11008;  // theirs is a multiple of 256
  EXPECT_EQ(parameter_count(parameter_table(llama)), 6738415616);
}

TEST(ParameterTable, InitialDeviations) {
  const ModelOptions small = shape("jurassic", 8, 64, 4, 100, 32);
  EXPECT_EQ(initial_deviation(small), 0.02);
  const ModelOptions jumbo = shape("jurassic", 76, 13824, 96, 262144, 2048);
  EXPECT_NEAR(initial_deviation(jumbo), std::sqrt(2.0 / (5 * 13824)), 1e-12);
  for (const Parameter& p : parameter_table(small)) {
    const bool residual = p.name.ends_with("output.weight") || p.name.ends_with("down.weight");
    if (p.initial != Initial::normal) continue;
    EXPECT_NEAR(p.deviation, residual ? 0.02 / 4 : 0.02, 1e-12) << p.name;
  }
}

TEST(ModelOptions, RefusesShapesThatCantBeMeant) {
  const auto resolve = [](auto&& change) {
    ModelOptions options;
    options.vocabulary = 100;
    change(options);
    options.resolve(0);
  };
  EXPECT_NO_THROW(resolve([](ModelOptions&) {}));
  EXPECT_THROW(resolve([](ModelOptions& o) { o.family = "gpt"; }), base::Error);
  EXPECT_THROW(resolve([](ModelOptions& o) { o.heads = 7; }), base::Error);
  EXPECT_THROW(resolve([](ModelOptions& o) { o.kv_heads = 6; }), base::Error);
  EXPECT_THROW(resolve([](ModelOptions& o) { o.family = "llama", o.kv_heads = 5; }), base::Error);
  EXPECT_THROW(resolve([](ModelOptions& o) { o.head_size = 63; }), base::Error);
  EXPECT_THROW(resolve([](ModelOptions& o) { o.vocabulary = 0; }), base::Error);
  ModelOptions options;
  options.vocabulary = 100;
  EXPECT_THROW(options.resolve(101), base::Error);
}

TEST(ParameterMemory, GroupsAreContiguousAndTheRestIsAligned) {
  for (const char* family : {"jurassic", "llama"})
    for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp64}) {
      ModelOptions options = shape(family, 2, 24, 4, 37, 11);  // sizes that are no multiples of 16
      const ParameterMemory memory(parameter_table(options), precision, at::kCPU, true);
      const auto& table = memory.table();
      const auto offset = [&](size_t i) { return memory.view(memory.weights(), i).storage_offset(); };
      std::set<std::string> groups;
      int64_t end = 0;
      for (size_t i = 0; i < table.size(); ++i) {
        const bool continues =
            i > 0 && !table[i].group.empty() && table[i].group == table[i - 1].group;
        EXPECT_GE(offset(i), end) << table[i].name;
        if (continues) {
          EXPECT_EQ(offset(i), end) << table[i].name;
        } else {
          const at::Tensor weights = memory.view(memory.weights(), i);
          const uintptr_t alignment = precision == Precision::bf16 ? 32 : 64;
          const at::Tensor gradient = memory.view(memory.gradients(), i);
          EXPECT_EQ(reinterpret_cast<uintptr_t>(weights.data_ptr()) % alignment, 0u)
              << table[i].name;
          EXPECT_EQ(reinterpret_cast<uintptr_t>(gradient.data_ptr()) % 64, 0u) << table[i].name;
          EXPECT_TRUE(table[i].group.empty() || groups.insert(table[i].group).second)
              << table[i].group << " is in two pieces";
        }
        end = offset(i) + table[i].size();
        const ops::Weight weight = memory.weight(table[i].name);
        EXPECT_EQ(weight.value.sizes().vec(), table[i].shape);
        EXPECT_EQ(weight.value.storage_offset(), offset(i));
        EXPECT_EQ(weight.gradient.storage_offset(), offset(i));
        EXPECT_EQ(weight.gradient.scalar_type(),
                  precision == Precision::fp64 ? at::kDouble : at::kFloat);
      }
      EXPECT_GE(memory.flat_size(), end);
      // The whole of a group is its parts, one under the other.
      const ops::Weight qkv = memory.weight("layers.1.attention.qkv.weight");
      EXPECT_EQ(qkv.value.sizes().vec(), (std::vector<int64_t>{72, 24}));
      memory.weight("layers.1.attention.key.weight").value.fill_(5);
      EXPECT_TRUE(qkv.value.narrow(0, 24, 24).eq(5).all().item<bool>());
      EXPECT_EQ(qkv.value.ne(5).sum().item<int64_t>(), 48 * 24);
      EXPECT_FALSE(memory.weight("layers.1.attention.no_such.weight").defined());
      EXPECT_EQ(memory.weight("layers.0.mlp.gate_up.weight").defined(), options.family == "llama");
    }
}

TEST(ParameterMemory, RangesCoverEveryParameterWithItsDecay) {
  const ParameterMemory memory(parameter_table(shape("jurassic", 2, 24, 4, 37, 11)), Precision::fp32,
                               at::kCPU, true);
  at::Tensor flat = at::zeros({memory.flat_size()});
  for (const auto& range : memory.ranges())
    flat.narrow(0, range.begin, range.end - range.begin).add_(range.decay ? 10 : 1);
  for (size_t i = 0; i < memory.table().size(); ++i)
    EXPECT_TRUE(memory.view(flat, i).eq(memory.table()[i].decay ? 10 : 1).all().item<bool>())
        << memory.table()[i].name;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

TEST(ParameterMemory, InitialValuesDependOnSeedAndNameOnly) {
  const std::vector<Parameter> table = parameter_table(shape("jurassic", 2, 64, 4, 301, 33));
  const int threads = at::get_num_threads();
  ParameterMemory one(table, Precision::fp32, at::kCPU, false);
  at::set_num_threads(1);
  one.initialize(3);
  for (const int count : {2, 3}) {
    at::set_num_threads(count);
    ParameterMemory many(table, Precision::fp32, at::kCPU, false);
    many.initialize(3);
    EXPECT_TRUE(same_bits(many.weights(), one.weights())) << count;
  }
  at::set_num_threads(threads);

  ParameterMemory other(table, Precision::fp32, at::kCPU, false);
  other.initialize(4);
  EXPECT_FALSE(same_bits(other.weights(), one.weights()));
  ParameterMemory wide(table, Precision::fp64, at::kCPU, false);
  ParameterMemory narrow(table, Precision::bf16, at::kCPU, true);
  // In two pieces, of which the first ends within a parameter.
  narrow.keep_lower_halves({{0, 1003, 0}, {1003, narrow.flat_size(), 1003}});
  wide.initialize(3);
  narrow.initialize(3);
  EXPECT_TRUE(same_bits(wide.weights().to(at::kFloat), one.weights()));
  EXPECT_TRUE(same_bits(narrow.copy_master(0, narrow.flat_size()), one.weights()));
  EXPECT_TRUE(same_bits(narrow.copy_master(100, 133), one.weights().narrow(0, 100, 33)));
  EXPECT_TRUE(same_bits(one.copy_master(0, one.flat_size()), one.weights()));
  // The weights are the nearest bf16: 2⁻⁸ of their size at most.
  const at::Tensor error = narrow.weights().to(at::kFloat).sub(one.weights()).abs();
  EXPECT_TRUE(error.le(one.weights().abs().mul(1.0 / 256)).all().item<bool>());
  EXPECT_GT(error.sum().item<double>(), 0);

  // A deeper model has the same embeddings: a value knows its own name only.
  const std::vector<Parameter> deeper = parameter_table(shape("jurassic", 3, 64, 4, 301, 33));
  ParameterMemory deep(deeper, Precision::fp32, at::kCPU, false);
  deep.initialize(3);
  EXPECT_TRUE(same_bits(deep.weight("embedding.token.weight").value,
                        one.weight("embedding.token.weight").value));
}

TEST(ParameterMemory, InitialValuesHaveTheTablesDistribution) {
  ParameterMemory memory(parameter_table(shape("jurassic", 2, 64, 4, 301, 33)), Precision::fp32,
                         at::kCPU, false);
  memory.initialize(3);
  for (size_t i = 0; i < memory.table().size(); ++i) {
    const Parameter& p = memory.table()[i];
    const at::Tensor x = memory.view(memory.weights(), i).to(at::kDouble);
    const auto size = static_cast<double>(p.size());
    if (p.initial == Initial::normal) {
      // Five standard errors.
      EXPECT_NEAR(x.mean().item<double>(), 0, 5 * p.deviation / std::sqrt(size)) << p.name;
      EXPECT_NEAR(std::sqrt(x.square().mean().item<double>()), p.deviation,
                  5 * p.deviation / std::sqrt(2 * size))
          << p.name;
    } else {
      EXPECT_TRUE(x.eq(p.initial == Initial::ones ? 1 : 0).all().item<bool>()) << p.name;
    }
  }
}

}  // namespace
}  // namespace sauropod::model
