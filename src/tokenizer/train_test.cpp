// Training: the same file from any number of threads, the rules for items, text that is too small.
#include "tokenizer/train.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "base/error.h"
#include "tokenizer/chunks.h"
#include "tokenizer/grams.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/trie.h"
#include "tokenizer/utf8.h"

namespace sauropod::tokenizer {
namespace {

// Sentences of a made-up language with fixed phrases and names in it, rules, code and stray bytes.
std::string sample_text(int sentences, unsigned seed = 11) {
  std::mt19937 random(seed);
  std::vector<std::string> words;
  for (int i = 0; i < 400; ++i) {
    std::string word;
    for (size_t c = 2 + random() % 8; c > 0; --c) word.push_back("aeiourstlnmdkp"[random() % 14]);
    words.push_back(word);
  }
  const std::vector<std::string> phrases = {"of the",    "in the middle of", "New York City", "the U.S. Senate", "Dr. Maria Lopez",
                                            "as well as", "Python 3",         "rock'n'roll star", "café crème"};
  std::string text;
  for (int s = 0; s < sentences; ++s) {
    std::string sentence = "The";
    for (size_t w = 4 + random() % 10; w > 0; --w) {
      sentence += " ";
      sentence += random() % 3 == 0 ? phrases[random() % phrases.size()] : words[random() % random() % words.size()];
      if (random() % 12 == 0) sentence += random() % 2 == 0 ? "," : " (see below)";
    }
    text += sentence + (random() % 4 == 0 ? ".\n" : ". ");
    if (random() % 15 == 0) text += "\n" + std::string(random() % 70, '-') + "\n    if x == y_z:\n        return foo[i]\n";
    if (random() % 40 == 0) text += "\xFF\xC3(\xE2\x96\x81 日本語の文 " + std::string(random() % 9, ' ') + "\r\n";
  }
  return text;
}

TrainingResult train_on(const std::vector<std::string>& documents, TrainingOptions options) {
  CorpusBuilder builder(options.threads);
  for (const std::string& document : documents) builder.add(document);
  return train(builder.finish(), options);
}

TEST(Training, SameFileFromAnyNumberOfThreads) {
  // Several pieces of 1 MB, so that threads have something to share, and several batches of them.
  std::vector<std::string> documents;
  for (unsigned d = 0; d < 4; ++d) documents.push_back(sample_text(20'000, d));
  for (unsigned d = 0; d < 100; ++d) documents.push_back(sample_text(20, 100 + d));
  const std::string one = train_on(documents, {.vocabulary_size = 1500, .threads = 1}).file;
  EXPECT_EQ(train_on(documents, {.vocabulary_size = 1500, .threads = 2}).file, one);
  EXPECT_EQ(train_on(documents, {.vocabulary_size = 1500, .threads = 3}).file, one);
}

TEST(Training, ItemsKeepTheRules) {
  const std::string text = sample_text(6000);
  for (const int max_words : {1, 2, 4}) {
    const TrainingResult result = train_on({text}, {.vocabulary_size = 1200, .max_words = max_words});
    const Tokenizer tokenizer = Tokenizer::parse(result.file, "x");
    EXPECT_EQ(tokenizer.size(), 1200);
    int64_t multi_word = 0;
    for (int32_t id = Tokenizer::first_learned; id < tokenizer.size(); ++id) {
      const std::string_view item = tokenizer.bytes_of(id);
      const int words = word_count(item);
      EXPECT_LE(words, max_words) << item;
      for (size_t at = 0; at < item.size();) {
        const int length = decode_utf8(item, at).length;
        ASSERT_GT(length, 0) << escape(item) << " has a broken character";
        at += static_cast<size_t>(length);
      }
      if (item.find_first_not_of('\n') != std::string_view::npos) {
        EXPECT_EQ(item.find_first_of("\n,()"), std::string_view::npos) << escape(item);
      }
      if (words < 2) continue;
      ++multi_word;
      // Whole words with their leading spaces; a dot belongs to the last one when a space follows.
      const std::string followed = std::string(item) + " x";
      std::vector<Chunk> chunks;
      cut_chunks(followed, chunks);
      chunks.pop_back();
      EXPECT_EQ(chunks.size(), static_cast<size_t>(words)) << item;
      EXPECT_EQ(chunks.front().kind, ChunkKind::word) << item;
      for (const Chunk& chunk : chunks) EXPECT_NE(chunk.kind, ChunkKind::other) << item;
    }
    EXPECT_EQ(multi_word, result.multi_word);
    if (max_words == 1) {
      EXPECT_EQ(multi_word, 0);
    } else {
      EXPECT_GE(tokenizer.find(" of the"), 0);
    }
    if (max_words == 4) {
      for (const char* phrase : {" New York City", " in the middle of", " the U.S. Senate", " as well as"})
        EXPECT_GE(tokenizer.find(phrase), 0) << phrase;
    }
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

TEST(Training, ItemsOfSeveralWordsSaveTokens) {
  const std::string text = sample_text(6000), held_out = sample_text(1000, 12);
  const auto tokens = [&](int max_words) {
    return Tokenizer::parse(train_on({text + held_out}, {.vocabulary_size = 1200, .max_words = max_words}).file, "x")
        .encode(held_out)
        .size();
  };
  EXPECT_LT(static_cast<double>(tokens(4)), 0.8 * static_cast<double>(tokens(1)));
}

TEST(Training, SmallTextGivesWhatItHas) {
  const TrainingResult result = train_on({"hello hello hello hello\n"}, {.vocabulary_size = 5000});
  EXPECT_LT(result.size, 5000);
  EXPECT_GT(result.size, 257);
  const Tokenizer tokenizer = Tokenizer::parse(result.file, "x");
  EXPECT_EQ(tokenizer.size(), result.size);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("other text")), "other text");
  // A vocabulary of bytes alone is one.
  EXPECT_EQ(train_on({"hello hello hello"}, {.vocabulary_size = 257}).size, 257);
}

TEST(Training, BinaryDataIsKeptAsBytes) {
  std::mt19937 random(2);
  std::string bytes(200'000, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  const TrainingResult result = train_on({bytes, std::string(100'000, '\0')}, {.vocabulary_size = 1000});
  const Tokenizer tokenizer = Tokenizer::parse(result.file, "x");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(bytes)), bytes);
}

TEST(Training, RefusesWhatCannotBeMeant) {
  const auto fails = [](TrainingOptions options, const char* text = "some text\n") {
    EXPECT_THROW(train_on({text}, options), base::Error);
  };
  fails({.vocabulary_size = 256});
  fails({.vocabulary_size = -1});
  fails({.vocabulary_size = int64_t{1} << 40});
  fails({.vocabulary_size = 1000, .max_words = 0});
  fails({.vocabulary_size = 1000, .max_words = 5});
  fails({.vocabulary_size = 1000, .min_count = 1});
  fails({.vocabulary_size = 1000}, "");
}

TEST(Chunks, CoverTheSegmentAndFindWords) {
  const auto cut = [](std::string_view text) {
    std::vector<Chunk> chunks;
    cut_chunks(text, chunks);
    std::string shown;
    for (const Chunk& chunk : chunks) {
      if (!shown.empty()) shown += "|";
      shown += std::string(chunk.bytes);
      if (chunk.kind == ChunkKind::word) shown += "*";
      if (chunk.kind == ChunkKind::number) shown += "#";
    }
    return shown;
  };
  EXPECT_EQ(cut("The New York Times"), "The| New*| York*| Times*");
  EXPECT_EQ(cut(" the U.S. Senate"), " the*| U.S.*| Senate*");
  EXPECT_EQ(cut(" following: Python 3.11 isn't"), " following*|:| Python*| 3.11#| isn't*");
  EXPECT_EQ(cut("    return self.x_y[0]  "), "   | return*| self.x_y|[0]|  ");
  EXPECT_EQ(cut("\t\tx\x01\xFFy"), "\t\t|x|\x01|\xFF|y");
  EXPECT_EQ(cut(" :class:`Foo` ``a``"), " :class:`Foo`| ``a``");
  EXPECT_EQ(cut(" caf\xC3\xA9 \xE2\x80\x9Cquoted\xE2\x80\x9D end\xE2\x80\x99s"),
            " caf\xC3\xA9*| \xE2\x80\x9Cquoted\xE2\x80\x9D| end\xE2\x80\x99s*");
  EXPECT_EQ(cut(" rock-and-roll -x- a.b. c"), " rock-and-roll*| -x-| a.b.*| c*");
  std::mt19937 random(8);
  for (int i = 0; i < 500; ++i) {
    std::string text;
    for (size_t c = 1 + random() % 200; c > 0; --c)
      text.push_back(random() % 4 == 0 ? static_cast<char>(random()) : "ab .'-_1\xC3\xA9\t`"[random() % 13]);
    std::vector<Chunk> chunks;
    cut_chunks(text, chunks);
    std::string joined;
    for (const Chunk& chunk : chunks) {
      EXPECT_LE(chunk.bytes.size(), max_chunk_bytes);
      EXPECT_GE(chunk.bytes.size(), 1u);
      joined += chunk.bytes;
    }
    EXPECT_EQ(joined, text);
  }
}

TEST(Grams, EqualPlainCounting) {
  std::mt19937 random(9);
  std::vector<uint32_t> symbols;
  std::vector<int64_t> weights;
  for (int i = 0; i < 2000; ++i) {
    // All positions of a stretch weigh the same.
    const bool separator = i == 0 || random() % 12 == 0;
    symbols.push_back(separator ? no_gram : random() % 5);
    weights.push_back(separator ? static_cast<int64_t>(random() % 3) : weights.back());
  }
  Grams level = single_symbols(symbols, 5, weights);
  for (size_t length = 2; length <= 5; ++length) {
    std::map<std::vector<uint32_t>, int64_t> counts;
    for (size_t p = 0; p + length <= symbols.size(); ++p) {
      const std::vector<uint32_t> gram(symbols.begin() + static_cast<std::ptrdiff_t>(p),
                                       symbols.begin() + static_cast<std::ptrdiff_t>(p + length));
      if (std::find(gram.begin(), gram.end(), no_gram) == gram.end()) counts[gram] += weights[p];
    }
    Grams longer = longer_grams(level, weights, 7);
    size_t frequent = 0;
    for (const auto& [gram, count] : counts) frequent += count >= 7;
    EXPECT_EQ(longer.count.size(), frequent);
    for (size_t p = 0; p + length <= symbols.size(); ++p) {
      const std::vector<uint32_t> gram(symbols.begin() + static_cast<std::ptrdiff_t>(p),
                                       symbols.begin() + static_cast<std::ptrdiff_t>(p + length));
      const auto found = counts.find(gram);
      const bool expected = found != counts.end() && found->second >= 7;
      ASSERT_EQ(longer.at[p] != no_gram, expected);
      if (expected) {
        EXPECT_EQ(longer.count[longer.at[p]], found->second);
      }
    }
    level = std::move(longer);
  }
}

TEST(Trie, FindsItsKeysAndNothingElse) {
  std::mt19937 random(10);
  std::map<std::string, int32_t> items;
  for (int i = 0; i < 20'000; ++i) {
    std::string key;
    for (size_t c = 1 + random() % 6; c > 0; --c)
      key.push_back(static_cast<char>(i % 2 == 0 ? random() % 256 : 'a' + random() % 3));
    items.emplace(key, static_cast<int32_t>(items.size()));
  }
  std::vector<std::string_view> keys;
  std::vector<int32_t> ids;
  for (const auto& [key, id] : items) {
    keys.push_back(key);
    ids.push_back(id);
  }
  const Trie trie = Trie::build(keys, ids);
  for (const auto& [key, id] : items) EXPECT_EQ(trie.find(key), id);
  for (int i = 0; i < 50'000; ++i) {
    std::string key;
    for (size_t c = 1 + random() % 6; c > 0; --c)
      key.push_back(static_cast<char>(i % 2 == 0 ? random() % 256 : 'a' + random() % 3));
    const auto found = items.find(key);
    EXPECT_EQ(trie.find(key), found == items.end() ? -1 : found->second);
  }
  std::set<std::string> prefixes;
  for (const auto& [key, id] : items)
    for (size_t length = 1; length <= key.size(); ++length) prefixes.insert(key.substr(0, length));
  EXPECT_LT(trie.cells(), prefixes.size() + prefixes.size() / 2 + 8192);
}

}  // namespace
}  // namespace sauropod::tokenizer
