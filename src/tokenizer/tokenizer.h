// A vocabulary and its encoder: a unigram language model over byte strings (Kudo 2018) whose items may
// span words. Described in docs/tokenizer.md.
//
// Ids: 0 is `<|endofdocument|>`, which stands for no bytes and is never produced from text; 1 to 256
// are the bytes 0x00 to 0xFF, so that every byte string can be encoded and decodes to itself; then
// come the learned items, the most probable first.
//
// A Tokenizer does not change after it was made: every member is const and may be called from any
// number of threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sauropod::tokenizer {

class Tokenizer {
 public:
  static constexpr int32_t first_byte = 1;
  static constexpr int32_t first_learned = 257;

  // Reads a tokenizer file. Throws base::Error that says what is wrong and where.
  static Tokenizer load(const std::filesystem::path& path);
  // The same from the file's bytes; `name` stands for the path in messages.
  static Tokenizer parse(std::string_view json_bytes, std::string_view name);

  // The most probable sequence of items for the text; see "The best sequence" in docs/tokenizer.md.
  // Takes time linear in the text, and memory for twelve bytes per byte of the longest segment.
  std::vector<int32_t> encode(std::string_view text) const;
  void encode(std::string_view text, std::vector<int32_t>& append_to) const;
  // The same for text that is known to be one segment, or part of one.
  void encode_segment(std::string_view segment, std::vector<int32_t>& append_to) const;

  // Throws base::Error (usage) for an id outside the vocabulary.
  std::string decode(std::span<const int32_t> ids) const;

  // The bytes of an item; empty for specials. Valid for the tokenizer's life.
  std::string_view bytes_of(int32_t id) const;
  // Negative log-probability in units of 2^-20 nats; 0 for specials, which have none.
  uint32_t cost_of(int32_t id) const;
  // The id of the item with these bytes, or -1.
  int32_t find(std::string_view bytes) const;
  int32_t size() const;
  int32_t end_of_document() const { return 0; }
  std::string_view end_of_document_name() const { return "<|endofdocument|>"; }
  // The length of the longest item, in bytes.
  size_t longest_item() const;

  // The last place in the beginning of a segment at which it can be cut in two that are encoded alone
  // with the same result, whatever follows: no item can reach across, and the two bytes behind it are
  // there and no dots, so that a dot of the second part looks at no letter of the first. 0 when there
  // is none. Takes linear time.
  size_t safe_cut(std::string_view part) const;

  const std::string& file() const;  // the exact bytes of the file
  const std::string& hash() const;  // XXH3-128 of them

 private:
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

// How many words an item has, which spaces separate. 2 or more makes it a multi-word item.
int word_count(std::string_view item);

}  // namespace sauropod::tokenizer
