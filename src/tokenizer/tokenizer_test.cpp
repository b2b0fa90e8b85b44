// Encoding, decoding, streaming and the file. Training is in train_test.cpp.
#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <tuple>

#include "base/error.h"
#include "base/hash.h"
#include "tokenizer/export_huggingface.h"
#include "tokenizer/inspect.h"
#include "tokenizer/segment.h"
#include "tokenizer/stream.h"
#include "tokenizer/tokenizer_file.h"

namespace sauropod::tokenizer {
namespace {

Tokenizer make(const std::vector<Item>& items, uint32_t byte_cost = 20 << 20) {
  FileContent content;
  content.byte_costs.assign(256, byte_cost);
  content.items = items;
  return Tokenizer::parse(write_file(content, nlohmann::json::object()), "test.json");
}

Tokenizer english() {
  return make({{" of", 5 << 20},
               {" of the", 6 << 20},
               {" the", 4 << 20},
               {"the", 6 << 20},
               {" U.S. Senate", 9 << 20},
               {"  ", 7 << 20},
               {"    ", 8 << 20},
               {"\n\n", 3 << 20},
               {"ab", 9 << 20},
               {"aaa", 12 << 20},
               {"aaaa", 12 << 20},
               {"\xC3\xA9t\xC3\xA9", 9 << 20},
               {"\xE2\x96\x81the", 9 << 20},
               {"\\x", 9 << 20},
               {"x.y, z", 1 << 20},
               {"(x)", 1 << 20},
               {"a\nb", 1 << 20}});
}

// Text of pieces that meet the rules in many ways, and of any bytes.
std::string random_text(std::mt19937& random, size_t pieces) {
  static const std::vector<std::string> all = {
      "a",  "b",    "aaaa", " of the", " the",       " ",    "  ",       "\n", "\n\n",     "\r\n",
      "\t", ",",    "(",    ")",       ".",          "word", "word. A",  "U.S. Senate",    ".\n",
      "x.", "ab. ", "é",    "été",     "\xE2\x96\x81", "<0x41>", "\xFF", "\xC3", "\xE2\x96", std::string(1, '\0')};
  std::string text;
  for (size_t i = 0; i < pieces; ++i)
    text += random() % 8 == 0 ? std::string(1, static_cast<char>(random() % 256))
                              : all[random() % all.size()];
  return text;
}

TEST(Segments, BreakAtHardBoundaries) {
  const auto cut = [](std::string_view text) {
    std::vector<std::string> parts;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = segment_end(text, begin);
      parts.emplace_back(text.substr(begin, end - begin));
      begin = end;
    }
    return parts;
  };
  using Parts = std::vector<std::string>;
  EXPECT_EQ(cut("one two\n\n\nthree"), (Parts{"one two", "\n\n\n", "three"}));
  EXPECT_EQ(cut("f(a, b)"), (Parts{"f", "(", "a", ",", " b", ")"}));
  EXPECT_EQ(cut("A word. Next"), (Parts{"A word", ".", " Next"}));
  EXPECT_EQ(cut("end.\nword.\r\nlast."), (Parts{"end", ".", "\n", "word", ".", "\r", "\n", "last", "."}));
  EXPECT_EQ(cut("the U.S. Senate, e.g. Dr. No. a. B"), (Parts{"the U.S. Senate", ",", " e.g. Dr. No. a. B"}));
  EXPECT_EQ(cut("a.b ...word.c .. (.x"), (Parts{"a.b ...word.c .. ", "(", ".x"}));
  EXPECT_EQ(cut("word.."), (Parts{"word.."}));
  EXPECT_EQ(cut("été. ok"), (Parts{"été. ok"}));  // é is no ASCII letter: two of these are asked for
}

TEST(Encode, TakesTheMostProbableSequence) {
  const Tokenizer tokenizer = english();
  const auto pieces = [&](std::string_view text) {
    std::vector<std::string> out;
    for (const int32_t id : tokenizer.encode(text)) out.emplace_back(tokenizer.bytes_of(id));
    return out;
  };
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(pieces(" of the"), (Pieces{" of the"}));
  EXPECT_EQ(pieces(" of thea"), (Pieces{" of the", "a"}));
  EXPECT_EQ(pieces(" U.S. Senate"), (Pieces{" U.S. Senate"}));
  EXPECT_EQ(pieces("\n\n\n"), (Pieces{"\n", "\n\n"}));
  // Items that hold a boundary are never used, whatever their cost.
  EXPECT_EQ(pieces("(x)"), (Pieces{"(", "x", ")"}));
  EXPECT_EQ(pieces("a\nb"), (Pieces{"a", "\n", "b"}));
  EXPECT_TRUE(tokenizer.encode("").empty());
}

struct Best {
  uint64_t cost = 0;
  std::vector<int32_t> ids;
};

// Fewer items, then the longest last item, then the longest before it, and so on.
bool better(const Tokenizer& tokenizer, const Best& a, const Best& b) {
  if (a.cost != b.cost) return a.cost < b.cost;
  if (a.ids.size() != b.ids.size()) return a.ids.size() < b.ids.size();
  for (size_t i = a.ids.size(); i-- > 0;) {
    const size_t length = tokenizer.bytes_of(a.ids[i]).size(), other = tokenizer.bytes_of(b.ids[i]).size();
    if (length != other) return length > other;
  }
  return false;
}

// All sequences of items that spell the text, one by one.
void try_all(const Tokenizer& tokenizer, std::string_view text, Best& so_far, std::optional<Best>& best) {
  if (text.empty()) {
    if (!best || better(tokenizer, so_far, *best)) best = so_far;
    return;
  }
  for (size_t length = 1; length <= text.size(); ++length) {
    const int32_t id = tokenizer.find(text.substr(0, length));
    if (id < 0) continue;
    so_far.ids.push_back(id);
    so_far.cost += tokenizer.cost_of(id);
    try_all(tokenizer, text.substr(length), so_far, best);
    so_far.cost -= tokenizer.cost_of(id);
    so_far.ids.pop_back();
  }
}

TEST(Encode, EqualsExhaustiveSearchWithTies) {
  std::mt19937 random(7);
  size_t ties = 0;
  for (int round = 0; round < 60; ++round) {
    // Few different costs, so that equal sums are common.
    const uint32_t unit = round % 3 == 0 ? 1 : 1 << 20;
    std::map<std::string, uint32_t> items;
    for (int i = 0; i < 12; ++i) {
      std::string bytes;
      const size_t length = 2 + random() % 4;
      for (size_t c = 0; c < length; ++c) bytes.push_back("ab "[random() % 3]);
      items[bytes] = unit * (1 + random() % 4);
    }
    std::vector<Item> list;
    for (const auto& [bytes, cost] : items) list.push_back({bytes, cost});
    const Tokenizer tokenizer = make(list, unit * 2);
    for (int t = 0; t < 30; ++t) {
      std::string text;
      for (size_t c = 1 + random() % 12; c > 0; --c) text.push_back("ab "[random() % 3]);
      Best so_far;
      std::optional<Best> best;
      try_all(tokenizer, text, so_far, best);
      const std::vector<int32_t> ids = tokenizer.encode(text);
      EXPECT_EQ(ids, best->ids) << "\"" << text << "\" in round " << round;
      // The mirrored order of the same items is as cheap: a tie that had to be broken.
      std::vector<int32_t> sorted = ids;
      std::sort(sorted.begin(), sorted.end());
      ties += sorted.front() != sorted.back();
    }
  }
  EXPECT_GT(ties, 100u);
}

TEST(Encode, IsLossless) {
  const Tokenizer tokenizer = english();
  std::vector<std::string> texts = {
      "", "\xEF\xBB\xBF" "text", "\xE2\x96\x81literal", "<0x41>", "a\r\nb\r\n", "\ttabs\t\t", "no\xC2\xA0" "break",
      std::string("a\0b\0", 4), "\xC0\x80\xE0\x80\xAF\xF8\x88\x80\x80\x80", "\xED\xA0\x80", "  both ends  ",
      "<|endofdocument|>", "\xF4\x90\x80\x80", "\\x41 \\\\"};
  for (size_t spaces = 1; spaces <= 40; ++spaces) {
    texts.push_back(std::string(spaces, ' '));
    texts.push_back(std::string(spaces, ' ') + "the" + std::string(spaces, ' '));
  }
  std::string all;
  for (int b = 0; b < 256; ++b) all.push_back(static_cast<char>(b));
  texts.push_back(all);
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::string bytes(random() % 400, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    texts.push_back(bytes);
    texts.push_back(random_text(random, random() % 60));
  }
  for (const std::string& text : texts) {
    const std::vector<int32_t> ids = tokenizer.encode(text);
    EXPECT_EQ(tokenizer.decode(ids), text);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer.end_of_document()), 0);
  }
}

TEST(Encode, LongSegmentsTakeTheSamePath) {
  const Tokenizer tokenizer = english();
  // Above 2^18 bytes the sums are wide. With 'b' between, the stretches are independent: both forms
  // must agree with the short ones.
  const std::string stretch = std::string(50, 'a') + " of the  b";
  const std::vector<int32_t> once = tokenizer.encode(stretch);
  std::string text;
  std::vector<int32_t> expected;
  while (text.size() < 300'000) {
    text += stretch;
    expected.insert(expected.end(), once.begin(), once.end());
  }
  EXPECT_EQ(tokenizer.encode(text), expected);
  const std::string letters(1'000'000, 'a');
  const std::vector<int32_t> ids = tokenizer.encode(letters);
  EXPECT_EQ(ids.size(), 250'000u);
  EXPECT_EQ(tokenizer.decode(ids), letters);
}

TEST(Decode, RefusesIdsOutsideTheVocabulary) {
  const Tokenizer tokenizer = english();
  for (const int32_t id : {-1, tokenizer.size(), INT32_MAX}) {
    try {
      tokenizer.decode(std::vector<int32_t>{1, id});
      ADD_FAILURE() << id << " was accepted";
    } catch (const base::Error& error) {
      EXPECT_NE(std::string(error.what()).find("id " + std::to_string(id)), std::string::npos);
      EXPECT_EQ(error.exit_code(), base::Exit::usage);
    }
  }
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{0}), "");
}

TEST(Stream, EqualsOneShotHoweverItIsCut) {
  const Tokenizer tokenizer = english();
  std::mt19937 random(3);
  for (int round = 0; round < 400; ++round) {
    const std::string text = random_text(random, 1 + random() % 80);
    StreamEncoder encoder(tokenizer);
    std::vector<int32_t> ids;
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + random() % (round % 2 == 0 ? 3 : 40);
      encoder.feed(std::string_view(text).substr(at, size), ids);
      at += size;
    }
    encoder.finish(ids);
    EXPECT_EQ(ids, tokenizer.encode(text)) << escape(text);
    StreamDecoder decoder(tokenizer);
    std::string back;
    for (const int32_t id : ids) back += decoder.feed(id);
    EXPECT_EQ(back + decoder.finish(), text);
  }
}

TEST(Stream, HoldsLittleOfTextWithoutBoundaries) {
  const Tokenizer tokenizer = english();
  std::mt19937 random(4);
  std::string text;
  while (text.size() < 600'000) {
    text += random() % 5 == 0 ? "aaaaa" : random() % 4 == 0 ? "word.x" : " of the";
    text += "bcd"[random() % 3];
  }
  StreamEncoder encoder(tokenizer);
  std::vector<int32_t> ids;
  size_t held = 0;
  for (size_t at = 0; at < text.size(); at += 1000) {
    encoder.feed(std::string_view(text).substr(at, 1000), ids);
    held = std::max(held, encoder.held_bytes());
  }
  encoder.finish(ids);
  EXPECT_EQ(ids, tokenizer.encode(text));
  EXPECT_LT(held, 70'000u);
}

TEST(Stream, DecodingHoldsBackOpenCharacters) {
  const Tokenizer tokenizer = english();
  StreamDecoder decoder(tokenizer);
  const auto feed = [&](unsigned char byte) { return decoder.feed(Tokenizer::first_byte + byte); };
  EXPECT_EQ(feed(0xE2), "");
  EXPECT_EQ(feed(0x96), "");
  EXPECT_EQ(feed(0x81), "\xE2\x96\x81");
  EXPECT_EQ(feed(0xE0), "");
  EXPECT_EQ(feed(0x80), "\xE0\x80");  // an overlong form: nothing can complete it
  EXPECT_EQ(feed(0xC3), "");
  EXPECT_EQ(feed('a'), "\xC3" "a");
  EXPECT_EQ(feed(0xF0), "");
  EXPECT_EQ(decoder.finish(), "\xF0");
}

TEST(File, RoundTripsAwkwardItems) {
  const std::vector<Item> items = {{"\\x", 5}, {"a\xFF", 6}, {std::string("\0\x01", 2), 7}, {"\"\\\"", 8},
                                   {"\xC2\x80", 9}, {"\xC3\xA9", max_cost}, {"\n\n", 1}};
  FileContent content;
  content.byte_costs.assign(256, 3);
  content.items = items;
  const std::string bytes = write_file(content, {{"note", "x"}});
  const FileContent back = read_file(bytes, "x");
  EXPECT_EQ(back.byte_costs, content.byte_costs);
  ASSERT_EQ(back.items.size(), items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    EXPECT_EQ(back.items[i].bytes, items[i].bytes);
    EXPECT_EQ(back.items[i].cost, items[i].cost);
  }
  EXPECT_EQ(Tokenizer::parse(bytes, "x").file(), bytes);
}

TEST(File, DamageIsNamed) {
  const std::string good = english().file();
  const auto message = [](const std::string& bytes) -> std::string {
    try {
      Tokenizer::parse(bytes, "tok.json");
    } catch (const base::Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message(good), "accepted");
  EXPECT_NE(message(good.substr(0, good.size() / 2)).find("cut short"), std::string::npos);
  EXPECT_NE(message("").find("cut short"), std::string::npos);
  EXPECT_NE(message("{}").find("not a tokenizer file"), std::string::npos);
  EXPECT_NE(message("{\"format\": \"other\"}").find("not a tokenizer file"), std::string::npos);
  // One altered byte anywhere but in the spaces of the last lines.
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    std::string bad = good;
    const size_t at = random() % (good.size() - 4);
    bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 7));
    const std::string said = message(bad);
    EXPECT_EQ(said.rfind("tok.json: ", 0), 0u) << "byte " << at << ": " << said;
  }
  // Content that is wrong under a checksum that is right.
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string bad = good;
    const size_t at = bad.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    bad.replace(at, from.size(), to);
    bad.resize(bad.rfind("\"checksum\""));
    return message(bad + "\"checksum\": \"" + base::hash128(bad) + "\"\n}\n");
  };
  EXPECT_NE(with("\"version\": 1", "\"version\": 2").find("version 2"), std::string::npos);
  EXPECT_NE(with("\"comma\"", "\"colon\"").find("boundaries"), std::string::npos);
  EXPECT_NE(with("[\"ab\", 9437184]", "[\"ab\", 0]").find("cost"), std::string::npos);
  EXPECT_NE(with("[\"ab\", 9437184]", "[\"ab\", 1.5]").find("cost"), std::string::npos);
  EXPECT_NE(with("[\"ab\", ", "[\"aaa\", ").find("twice"), std::string::npos);
  EXPECT_NE(with("[\"ab\", ", "[\"a\", ").find("1 bytes"), std::string::npos);
  EXPECT_NE(with("[\"ab\", ", "[\"\\\\q\", ").find("entry 8"), std::string::npos);
  EXPECT_NE(with("\"size\": ", "\"size\": 1").find("size"), std::string::npos);
  EXPECT_NE(with("\"size\"", "\"sized\"").find("\"size\" is missing"), std::string::npos);
}

TEST(Inspect, CountsWhatTheTextUses) {
  const Tokenizer tokenizer = english();
  Inspector inspector(tokenizer);
  inspector.add("one of the U.S. Senate of the");
  const Inspection found = inspector.finish(1);
  EXPECT_EQ(found.size, tokenizer.size());
  EXPECT_EQ(found.multi_word, 3);  // " of the", " U.S. Senate", "x.y, z"
  EXPECT_EQ(found.multi_word_tokens(), 3);
  EXPECT_EQ(found.words, 7);
  ASSERT_EQ(found.most_used.size(), 1u);
  EXPECT_EQ(tokenizer.bytes_of(found.most_used[0].id), " of the");
  EXPECT_EQ(found.most_used[0].count, 2);
  ASSERT_EQ(found.longest.size(), 1u);
  EXPECT_EQ(tokenizer.bytes_of(found.longest[0].id), " U.S. Senate");
}

TEST(Export, HuggingFaceFileHasTheSameItems) {
  const Tokenizer tokenizer = english();
  const auto file = nlohmann::json::parse(to_huggingface(tokenizer));
  const auto& vocabulary = file["model"]["vocab"];
  ASSERT_EQ(vocabulary.size(), static_cast<size_t>(tokenizer.size()));
  EXPECT_EQ(vocabulary[0][0], "<|endofdocument|>");
  EXPECT_EQ(vocabulary[tokenizer.find(" of the")][0], "\u0120of\u0120the");
  EXPECT_EQ(vocabulary[1 + 0][0], "\u0100");
  EXPECT_LT(vocabulary[tokenizer.find(" of the")][1], vocabulary[tokenizer.find(" of")][1]);
}

}  // namespace
}  // namespace sauropod::tokenizer
