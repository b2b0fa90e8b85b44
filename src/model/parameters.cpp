#include "model/parameters.h"

#include <cmath>
#include <functional>
#include <numeric>

#include "base/error.h"

namespace sauropod::model {
namespace {

class TableBuilder {
 public:
  explicit TableBuilder(const ModelOptions& options)
      : options_(options), deviation_(initial_deviation(options)) {}

  std::vector<Parameter> build() {
    const bool jurassic = options_.family == "jurassic";
    weight("embedding.token.weight", {options_.vocabulary, options_.hidden}, Split::vocabulary, "",
           deviation_);
    if (jurassic)
      once(weight("embedding.position.weight", {options_.context, options_.hidden}, Split::none, "",
                  deviation_));
    for (layer_ = 0; layer_ < options_.layers; ++layer_) block(jurassic);
    norm("final_norm", jurassic);
    if (!options_.tied_embeddings)
      weight("head.weight", {options_.vocabulary, options_.hidden}, Split::vocabulary, "",
             deviation_);
    return std::move(table_);
  }

 private:
  void block(bool jurassic) {
    const std::string prefix = fmt::format("layers.{}.", layer_);
    const int64_t h = options_.hidden, q = options_.heads * options_.head_size;
    const int64_t kv = options_.kv_heads * options_.head_size, ffn = options_.mlp_hidden;
    const double residual = deviation_ / std::sqrt(2.0 * static_cast<double>(options_.layers));

    norm(prefix + "attention.norm", jurassic);
    const std::string qkv = prefix + "attention.qkv";
    weight(prefix + "attention.query.weight", {q, h}, Split::rows, qkv + ".weight", deviation_);
    weight(prefix + "attention.key.weight", {kv, h}, Split::rows, qkv + ".weight", deviation_);
    weight(prefix + "attention.value.weight", {kv, h}, Split::rows, qkv + ".weight", deviation_);
    if (jurassic) {
      bias(prefix + "attention.query.bias", q, Split::rows, qkv + ".bias");
      bias(prefix + "attention.key.bias", kv, Split::rows, qkv + ".bias");
      bias(prefix + "attention.value.bias", kv, Split::rows, qkv + ".bias");
    }
    weight(prefix + "attention.output.weight", {h, q}, Split::columns, "", residual);
    if (jurassic) once(bias(prefix + "attention.output.bias", h, Split::none, ""));

    norm(prefix + "mlp.norm", jurassic);
    if (jurassic) {
      weight(prefix + "mlp.up.weight", {ffn, h}, Split::rows, "", deviation_);
      bias(prefix + "mlp.up.bias", ffn, Split::rows, "");
    } else {
      const std::string group = prefix + "mlp.gate_up.weight";
      weight(prefix + "mlp.gate.weight", {ffn, h}, Split::rows, group, deviation_);
      weight(prefix + "mlp.up.weight", {ffn, h}, Split::rows, group, deviation_);
    }
    weight(prefix + "mlp.down.weight", {h, ffn}, Split::columns, "", residual);
    if (jurassic) once(bias(prefix + "mlp.down.bias", h, Split::none, ""));
  }

  void norm(const std::string& name, bool with_bias) {
    table_.push_back({.name = name + ".weight",
                      .shape = {options_.hidden},
                      .layer = layer_,
                      .initial = Initial::ones});
    if (with_bias) bias(name + ".bias", options_.hidden, Split::none, "");
  }

  static void once(Parameter& parameter) { parameter.once = true; }

  Parameter& bias(const std::string& name, int64_t size, Split split, const std::string& group) {
    table_.push_back(
        {.name = name, .shape = {size}, .split = split, .layer = layer_, .group = group});
    return table_.back();
  }

  Parameter& weight(const std::string& name, std::vector<int64_t> shape, Split split,
              const std::string& group, double deviation) {
    table_.push_back({.name = name,
                      .shape = std::move(shape),
                      .split = split,
                      .layer = layer_,
                      .decay = true,
                      .initial = Initial::normal,
                      .deviation = deviation,
                      .group = group});
    return table_.back();
  }

  const ModelOptions& options_;
  const double deviation_;
  int64_t layer_ = -1;
  std::vector<Parameter> table_;
};

}  // namespace

int64_t Parameter::size() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::vector<int64_t> Parameter::begin() const {
  return offset.empty() ? std::vector<int64_t>(shape.size(), 0) : offset;
}

Parameter part_of(Parameter parameter, size_t dimension, int64_t begin, int64_t size) {
  SAUROPOD_CHECK(dimension < parameter.shape.size() && begin >= 0 && size >= 0 &&
                 begin + size <= parameter.shape[dimension]);
  if (parameter.whole.empty()) {
    parameter.offset = parameter.begin();
    parameter.whole = parameter.shape;
  }
  parameter.offset[dimension] += begin;
  parameter.shape[dimension] = size;
  return parameter;
}

double initial_deviation(const ModelOptions& options) {
  return std::min(0.02, std::sqrt(2.0 / (5.0 * static_cast<double>(options.hidden))));
}

std::vector<Parameter> parameter_table(const ModelOptions& options) {
  SAUROPOD_CHECK(options.vocabulary > 0 && options.head_size > 0, "options are not resolved");
  return TableBuilder(options).build();
}

int64_t parameter_count(const std::vector<Parameter>& table) {
  int64_t count = 0;
  for (const Parameter& parameter : table) count += parameter.size();
  return count;
}

}  // namespace sauropod::model
