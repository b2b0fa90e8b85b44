#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "tokenizer/segment.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/trie.h"

namespace sauropod::tokenizer {

struct Tokenizer::State {
  std::string file, hash;
  std::string bytes;              // of all items, back to back
  std::vector<uint32_t> offsets;  // size + 1
  std::vector<uint32_t> costs;    // per id
  Trie trie;
  size_t longest = 1;
};

namespace {

// The cost of a sequence and, below it, its number of items: one comparison puts the more probable
// sequence first and, among equals, the one of fewer items. Costs are integers, so sums are exact and
// do not depend on the direction. The narrow form holds segments of up to 2^18 - 1 bytes: 2^18 - 1
// items, each of a cost below 2^26 above 20 bits for the count.
using Narrow = uint64_t;
constexpr size_t narrow_bytes = (size_t{1} << 18) - 1;
constexpr int narrow_shift = 20;
__extension__ using Wide = unsigned __int128;
constexpr int wide_shift = 64;

// Scratch of one thread; grows to the longest segment seen and is cut back after very long ones.
template <typename Sum>
struct Scratch {
  std::vector<Sum> best;      // of the text up to here
  std::vector<int32_t> item;  // the last of it
};
constexpr size_t kept_scratch = size_t{1} << 20;

template <typename Sum, int shift>
void viterbi(const Trie& trie, const uint32_t* costs, const uint32_t* offsets,
             std::string_view text, std::vector<int32_t>& append_to) {
  thread_local Scratch<Sum> scratch;
  const size_t size = text.size();
  if (scratch.best.size() < size + 1) {
    scratch.best.resize(size + 1);
    scratch.item.resize(size + 1);
  }
  Sum* best = scratch.best.data();
  int32_t* last = scratch.item.data();
  std::fill_n(best, size + 1, std::numeric_limits<Sum>::max());
  best[0] = 0;
  for (size_t begin = 0; begin < size; ++begin) {
    const Sum here = best[begin] + 1;
    Trie::Cell cell = trie.root();
    for (size_t end = begin; end < size;) {
      const auto byte = static_cast<unsigned char>(text[end]);
      cell = trie.child(cell, byte);
      if (!Trie::matches(cell, byte)) break;
      ++end;
      if (const int32_t item = Trie::item(cell); item >= 0) {
        const Sum sum = here + (static_cast<Sum>(costs[item]) << shift);
        // Of equal ways to `end`, the one whose last item is longest came first.
        if (sum < best[end]) {
          best[end] = sum;
          last[end] = item;
        }
      }
    }
  }
  const auto first = static_cast<std::ptrdiff_t>(append_to.size());
  for (size_t end = size; end > 0;) {
    const int32_t item = last[end];
    append_to.push_back(item);
    end -= offsets[item + 1] - offsets[item];
  }
  std::reverse(append_to.begin() + first, append_to.end());
  if (scratch.best.size() > kept_scratch) scratch = {};
}

}  // namespace

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  return parse(base::read_file(path), path.string());
}

Tokenizer Tokenizer::parse(std::string_view json_bytes, std::string_view name) {
  const FileContent content = read_file(json_bytes, name);
  auto state = std::make_shared<State>();
  state->file = json_bytes;
  state->hash = base::hash128(json_bytes);
  const size_t size = first_learned + content.items.size();
  state->offsets = {0, 0};
  state->costs = {0};
  for (int b = 0; b < 256; ++b) {
    state->bytes.push_back(static_cast<char>(b));
    state->offsets.push_back(static_cast<uint32_t>(state->bytes.size()));
    state->costs.push_back(content.byte_costs[b]);
  }
  for (const Item& item : content.items) {
    state->bytes += item.bytes;
    state->offsets.push_back(static_cast<uint32_t>(state->bytes.size()));
    state->costs.push_back(item.cost);
    state->longest = std::max(state->longest, item.bytes.size());
  }
  std::vector<int32_t> ids(size - 1);
  std::iota(ids.begin(), ids.end(), first_byte);
  const auto text_of = [&](int32_t id) {
    return std::string_view(state->bytes)
        .substr(state->offsets[id], state->offsets[id + 1] - state->offsets[id]);
  };
  std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return text_of(a) < text_of(b); });
  std::vector<std::string_view> keys;
  keys.reserve(ids.size());
  for (const int32_t id : ids) {
    if (!keys.empty() && keys.back() == text_of(id))
      base::fail("{}: item \"{}\" is there twice; the file was altered: take another copy or train again",
                 name, escape(text_of(id)));
    keys.push_back(text_of(id));
  }
  state->trie = Trie::build(keys, ids);
  return Tokenizer(std::move(state));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 1);
  encode(text, ids);
  return ids;
}

void Tokenizer::encode(std::string_view text, std::vector<int32_t>& append_to) const {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = segment_end(text, begin);
    encode_segment(text.substr(begin, end - begin), append_to);
    begin = end;
  }
}

void Tokenizer::encode_segment(std::string_view segment, std::vector<int32_t>& append_to) const {
  const State& state = *state_;
  if (segment.size() == 1) {
    append_to.push_back(first_byte + static_cast<unsigned char>(segment[0]));
  } else if (segment.size() <= narrow_bytes) {
    viterbi<Narrow, narrow_shift>(state.trie, state.costs.data(), state.offsets.data(), segment,
                                  append_to);
  } else {
    viterbi<Wide, wide_shift>(state.trie, state.costs.data(), state.offsets.data(), segment,
                              append_to);
  }
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  text.reserve(ids.size() * 4);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= size())
      base::fail_usage(
          "cannot decode id {} (number {} of the sequence): this vocabulary has the ids 0 to {}; was the text encoded with another tokenizer?",
          ids[i], i + 1, size() - 1);
    text += bytes_of(ids[i]);
  }
  return text;
}

std::string_view Tokenizer::bytes_of(int32_t id) const {
  SAUROPOD_CHECK(id >= 0 && id < size(), "id {}", id);
  const uint32_t begin = state_->offsets[id], end = state_->offsets[id + 1];
  return {state_->bytes.data() + begin, end - begin};
}

uint32_t Tokenizer::cost_of(int32_t id) const {
  SAUROPOD_CHECK(id >= 0 && id < size(), "id {}", id);
  return state_->costs[id];
}

int32_t Tokenizer::find(std::string_view bytes) const { return state_->trie.find(bytes); }
int32_t Tokenizer::size() const { return static_cast<int32_t>(state_->costs.size()); }
size_t Tokenizer::longest_item() const { return state_->longest; }
const std::string& Tokenizer::file() const { return state_->file; }
const std::string& Tokenizer::hash() const { return state_->hash; }

size_t Tokenizer::safe_cut(std::string_view part) const {
  size_t cut = 0, reach = 0;
  for (size_t at = 0; at < part.size(); ++at) {
    if (reach <= at && at + 2 <= part.size() && part[at] != '.' && part[at + 1] != '.') cut = at;
    Trie::Cell cell = state_->trie.root();
    size_t end = at;
    for (; end < part.size(); ++end) {
      const auto byte = static_cast<unsigned char>(part[end]);
      cell = state_->trie.child(cell, byte);
      if (!Trie::matches(cell, byte)) break;
      if (Trie::item(cell) >= 0) reach = std::max(reach, end + 1);
    }
    // An item may go on beyond what is known.
    if (end == part.size()) break;
  }
  return cut;
}

int word_count(std::string_view item) {
  int words = 0;
  bool inside = false;
  for (const char c : item) {
    if (c == ' ') {
      inside = false;
    } else if (!inside) {
      inside = true;
      ++words;
    }
  }
  return words;
}

}  // namespace sauropod::tokenizer
