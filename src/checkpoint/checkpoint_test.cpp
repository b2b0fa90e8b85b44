// Writing and reading whole checkpoints: content, resharding, damage, retention, faults.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>

#include "base/file.h"
#include "base/hash.h"
#include "checkpoint/catalog.h"
#include "checkpoint/reader.h"
#include "checkpoint/test_support.h"
#include "checkpoint/writer.h"
#include "formats/safetensors.h"
#include "storage/fault_store.h"
#include "storage/local_store.h"

namespace sauropod::checkpoint {
namespace {

namespace fs = std::filesystem;
using storage::Cause;
using storage::Fault;
using storage::Operation;

// Small boxes and files, so that a few kilobytes make several of each.
constexpr WriterOptions small{.threads = 2, .box_bytes = 256, .file_bytes = 1024};

std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<float> read_whole(const Reader& reader, const TestTensor& tensor,
                              const std::string& kind) {
  std::vector<float> values(static_cast<size_t>(size_of(tensor.shape)));
  reader.read(tensor.parameter, kind, "F32", Dimensions(tensor.shape.size(), 0), tensor.shape,
              values.data());
  return values;
}

void expect_content(const Reader& reader, int64_t step) {
  EXPECT_EQ(reader.manifest().step, step);
  EXPECT_EQ(reader.manifest().training.at("tokens"), step * 1000);
  for (const char* kind : {"master", "moment1", "moment2"})
    for (const TestTensor& tensor : test_tensors())
      EXPECT_EQ(read_whole(reader, tensor, kind),
                tensor_of(tensor.parameter, kind, step, size_of(tensor.shape)))
          << kind << " of " << tensor.parameter;
}

template <typename Work>
std::string message_of(Work&& work) {
  try {
    work();
  } catch (const base::Error& error) {
    return error.what();
  }
  return "";
}

class CheckpointTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  storage::LocalStore store_{folder_.path()};
};

TEST_F(CheckpointTest, ReadsWhatItWrote) {
  Writer writer(store_, {}, small);
  const Snapshot snapshot = make_snapshot(7);
  writer.write(snapshot);
  const Reader reader(store_, 7, Check::hashes);
  expect_content(reader, 7);
  EXPECT_EQ(reader.manifest().training, snapshot.training);
  EXPECT_EQ(reader.manifest().model, snapshot.model);
  EXPECT_EQ(reader.tokenizer_file(), snapshot.tokenizer_file);
  EXPECT_EQ(reader.manifest().parameters(), 240 + 17 + 60 + 1);
  EXPECT_GT(reader.manifest().files.size(), 1U);
  EXPECT_TRUE(reader.has("bias", "moment2"));
  EXPECT_FALSE(reader.has("bias", "moment3"));
  EXPECT_THROW(reader.read("none", "master", "F32", {0}, {1}, nullptr), base::Error);
  EXPECT_THROW(reader.read("bias", "master", "F32", {10}, {8}, nullptr), base::Error);
  EXPECT_THROW(reader.read("bias", "master", "F32", {0, 0}, {1, 1}, nullptr), base::Error);
}

TEST_F(CheckpointTest, DataFilesAreSafetensors) {
  Writer(store_, {}, small).write(make_snapshot(1));
  const Reader reader(store_, 1);
  size_t tensors = 0, boxes = 0;
  for (const DataFile& file : reader.manifest().files)
    tensors += formats::SafetensorsFile(folder_.path() / "step-000000001" / file.name)
                   .header()
                   .tensors.size();
  for (const StoredTensor& tensor : reader.manifest().tensors) boxes += tensor.boxes.size();
  EXPECT_EQ(tensors, boxes);
}

TEST_F(CheckpointTest, TheSameFilesFromAnyNumberOfThreads) {
  const auto files = [&](int threads) {
    const TemporaryFolder folder;
    storage::LocalStore store(folder.path());
    Writer(store, {}, {.threads = threads, .box_bytes = 256, .file_bytes = 1024})
        .write(make_snapshot(3));
    // Only the attempt's name differs, and so does the hash of the manifest that lists the names.
    const fs::path written = folder.path() / "step-000000003";
    std::vector<std::string> names = files_in(written);
    const std::string attempt = attempt_of(names.front());
    EXPECT_EQ(attempt.size(), 8U);
    std::string all;
    for (const std::string& name : names) {
      std::string bytes = base::read_file(written / name);
      if (name == manifest_name) bytes.resize(bytes.size() - 45);
      all += name + bytes;
    }
    for (size_t at; (at = all.find(attempt)) != std::string::npos;) all.replace(at, 8, "ATTEMPT");
    return all;
  };
  EXPECT_TRUE(files(1) == files(4));
}

TEST_F(CheckpointTest, MixesElementTypes) {
  Snapshot snapshot = make_snapshot(1);
  const std::vector<double> wide{1.0 / 3, -2, 1e300};
  const std::vector<uint16_t> narrow{0x3f80, 0xc000, 0x7fc0};
  snapshot.boxes.push_back({"narrow", "master", "BF16", {3}, {0}, {3}, narrow.data()});
  snapshot.boxes.push_back({"wide", "master", "F64", {3}, {0}, {3}, wide.data()});
  Writer(store_).write(snapshot);
  const Reader reader(store_, 1, Check::hashes);
  expect_content(reader, 1);
  std::vector<double> doubles(3);
  reader.read("wide", "master", "F64", {0}, {3}, doubles.data());
  EXPECT_EQ(doubles, wide);
  std::vector<float> floats(3);
  reader.read("wide", "master", "F32", {0}, {3}, floats.data());
  EXPECT_EQ(floats, (std::vector<float>{1.0F / 3, -2, INFINITY}));
  reader.read("narrow", "master", "F32", {0}, {3}, floats.data());
  EXPECT_EQ(floats[0], 1);
  EXPECT_EQ(floats[1], -2);
  EXPECT_TRUE(std::isnan(floats[2]));
  std::vector<uint16_t> halves(3);
  reader.read("narrow", "master", "BF16", {0}, {3}, halves.data());
  EXPECT_EQ(halves, narrow);
  for (const StoredTensor& tensor : reader.manifest().tensors)
    for (const StoredBox& box : tensor.boxes)
      EXPECT_EQ(box.begin % element_size(parse_element(tensor.dtype)), 0U) << tensor.parameter;
}

// Random tilings by random cuts on one side, random boxes on the other.
TEST_F(CheckpointTest, ReadsAnyBoxFromAnyBoxes) {
  const uint64_t key = base::random_key(5, "resharding");
  uint64_t counter = 0;
  const auto draw = [&](int64_t below) {
    return static_cast<int64_t>(base::random_bits(key, counter++) % static_cast<uint64_t>(below));
  };
  for (int64_t round = 1; round <= 60; ++round) {
    Dimensions shape(static_cast<size_t>(1 + draw(4)));
    for (int64_t& size : shape) size = 1 + draw(9);
    const Region full{Dimensions(shape.size(), 0), shape};
    std::vector<Region> tiles{full};
    for (int64_t cuts = draw(12); cuts > 0; --cuts) {
      Region& tile = tiles[static_cast<size_t>(draw(static_cast<int64_t>(tiles.size())))];
      const auto d = static_cast<size_t>(draw(static_cast<int64_t>(shape.size())));
      if (tile.shape[d] == 1) continue;
      Region rest = tile;
      tile.shape[d] = 1 + draw(tile.shape[d] - 1);
      rest.offset[d] += tile.shape[d];
      rest.shape[d] -= tile.shape[d];
      tiles.push_back(rest);
    }
    std::vector<float> values(static_cast<size_t>(full.elements()));
    std::iota(values.begin(), values.end(), 1.0F);
    std::vector<std::vector<float>> buffers;
    Snapshot snapshot;
    snapshot.step = round;
    for (const Region& tile : tiles) {
      auto& buffer = buffers.emplace_back(static_cast<size_t>(tile.elements()));
      copy_part(tile, full, Element::f32, values.data(), tile, Element::f32, buffer.data());
      snapshot.boxes.push_back(
          {"t", "master", "F32", shape, tile.offset, tile.shape, buffer.data()});
    }
    Writer(store_, {.keep_last = 1},
           {.box_bytes = 4 * static_cast<uint64_t>(1 + draw(100)), .file_bytes = 256})
        .write(snapshot);
    const Reader reader(store_, round, round % 2 == 0 ? Check::hashes : Check::sizes);
    for (int reads = 0; reads < 12; ++reads) {
      Region wanted = full;
      for (size_t d = 0; d < shape.size(); ++d) {
        wanted.offset[d] = draw(shape[d]);
        wanted.shape[d] = 1 + draw(shape[d] - wanted.offset[d]);
      }
      std::vector<float> got(static_cast<size_t>(wanted.elements()), -1);
      reader.read("t", "master", "F32", wanted.offset, wanted.shape, got.data());
      // The expectation by plain index arithmetic.
      Dimensions index(shape.size(), 0);
      for (size_t i = 0; i < got.size(); ++i) {
        int64_t element = 0;
        for (size_t d = 0; d < shape.size(); ++d)
          element = element * shape[d] + wanted.offset[d] + index[d];
        ASSERT_EQ(got[i], static_cast<float>(element + 1)) << to_text(wanted);
        for (size_t d = shape.size(); d-- > 0;) {
          if (++index[d] < wanted.shape[d]) break;
          index[d] = 0;
        }
      }
    }
  }
}

TEST_F(CheckpointTest, RefusesBoxesThatDoNotTile) {
  const std::vector<float> data(12);
  const auto write = [&](std::vector<Box> boxes) {
    Snapshot snapshot;
    snapshot.boxes = std::move(boxes);
    Writer(store_).write(snapshot);
  };
  const auto box = [&](Dimensions offset, Dimensions shape) {
    return Box{"t", "master", "F32", {3, 4}, std::move(offset), std::move(shape), data.data()};
  };
  write({box({0, 0}, {3, 2}), box({0, 2}, {3, 2})});
  EXPECT_THROW(write({box({0, 0}, {3, 2})}), base::Bug);
  EXPECT_THROW(write({box({0, 0}, {3, 3}), box({0, 2}, {3, 2})}), base::Bug);
  EXPECT_THROW(write({box({0, 0}, {2, 4}), box({1, 0}, {1, 4})}), base::Bug);
  EXPECT_THROW(write({box({0, 0}, {4, 3})}), base::Bug);
  EXPECT_THROW(write({box({0, 0}, {3, 4}), box({0, 0}, {3, 4})}), base::Bug);
  EXPECT_TRUE(Reader::newest_intact(store_)) << "the good one from before is still there";
}

TEST_F(CheckpointTest, RefusesNumbersThatJsonLoses) {
  Snapshot snapshot = make_snapshot(1);
  snapshot.training["guard"] = {{"window", {1.0, std::nan("")}}};
  EXPECT_NE(message_of([&] { Writer(store_).write(snapshot); }).find("training.guard.window"),
            std::string::npos);
  snapshot.training = {{"path", "\xff\xfe"}};
  EXPECT_NE(message_of([&] { Writer(store_).write(snapshot); }), "");
  EXPECT_TRUE(store_.list("").empty());
}

TEST_F(CheckpointTest, OneAlteredByteInAnyFileIsNamed) {
  Writer writer(store_, {}, small);
  writer.write(make_snapshot(1));
  writer.write(make_snapshot(2));
  const fs::path folder = folder_.path() / "step-000000002";
  const uint64_t key = base::random_key(9, "damage");
  uint64_t counter = 0;
  for (const std::string& name : files_in(folder)) {
    const std::string whole = base::read_file(folder / name);
    for (int i = 0; i < 40; ++i) {
      std::string altered = whole;
      const size_t place = base::random_bits(key, counter++) % altered.size();
      altered[place] = static_cast<char>(altered[place] ^ (1 << base::random_bits(key, counter++) % 8));
      base::write_file_atomically(folder / name, altered);
      std::vector<std::string> complaints;
      const auto reader = Reader::newest_intact(store_, &complaints);
      ASSERT_TRUE(reader);
      EXPECT_EQ(reader->manifest().step, 1);
      ASSERT_EQ(complaints.size(), 1U);
      EXPECT_NE(complaints[0].find((folder / name).string()), std::string::npos) << complaints[0];
      EXPECT_NE(complaints[0].find("bytes "), std::string::npos) << complaints[0];
      if (name == manifest_name) continue;
      // Found by reading too, when nothing was verified before.
      const Reader unverified(store_, 2);
      const auto read_all = [&] {
        unverified.tokenizer_file();
        for (const StoredTensor& tensor : unverified.manifest().tensors) {
          std::vector<float> values(static_cast<size_t>(size_of(tensor.shape)));
          unverified.read(tensor.parameter, tensor.kind, "F32",
                          Dimensions(tensor.shape.size(), 0), tensor.shape, values.data());
        }
      };
      const bool in_header = unverified.damages().front().find("(header)") != std::string::npos;
      if (!in_header) {
        EXPECT_NE(message_of([&] { read_all(); }).find(name), std::string::npos);
      }
    }
    base::write_file_atomically(folder / name, whole);
  }
  expect_content(*Reader::newest_intact(store_), 2);
}

TEST_F(CheckpointTest, CutShortOrMissingFilesAreNamed) {
  Writer writer(store_, {}, small);
  writer.write(make_snapshot(1));
  writer.write(make_snapshot(2));
  const fs::path folder = folder_.path() / "step-000000002";
  for (const std::string& name : files_in(folder)) {
    const std::string whole = base::read_file(folder / name);
    for (const size_t size : {size_t{0}, whole.size() / 2, whole.size() - 1, whole.size() + 1}) {
      std::string other = whole;
      other.resize(size, 'x');
      base::write_file_atomically(folder / name, other);
      std::vector<std::string> complaints;
      const auto reader = Reader::newest_intact(store_, &complaints, Check::sizes);
      ASSERT_TRUE(reader);
      EXPECT_EQ(reader->manifest().step, 1);
      ASSERT_EQ(complaints.size(), 1U);
      EXPECT_NE(complaints[0].find(name), std::string::npos) << complaints[0];
    }
    fs::remove(folder / name);
    std::vector<std::string> complaints;
    EXPECT_EQ(Reader::newest_intact(store_, &complaints, Check::sizes)->manifest().step, 1);
    // Without a manifest it is no checkpoint at all, and nothing to complain about.
    EXPECT_EQ(complaints.size(), name == manifest_name ? 0U : 1U);
    base::write_file_atomically(folder / name, whole);
  }
}

TEST_F(CheckpointTest, ManifestsThatLieAreRefused) {
  Writer(store_, {}, small).write(make_snapshot(1));
  const Manifest good = Reader(store_, 1).manifest();
  const std::string first = good.files[0].name, second = good.files[1].name;
  const auto refused = [&](const std::function<void(std::string&)>& alter) {
    std::string text = good.to_bytes();
    text.resize(text.size() - 45);
    alter(text);
    // With a right hash again, so that only the content can be what is wrong.
    text += ",\n\"hash\":\"" + base::hash128(text) + "\"}\n";
    return !message_of([&] { Manifest::parse(text, "m"); }).empty();
  };
  const auto replace = [](const std::string& from, const std::string& to) {
    return [from, to](std::string& text) {
      const size_t at = text.find(from);
      ASSERT_NE(at, std::string::npos) << from;
      text.replace(at, from.size(), to);
    };
  };
  EXPECT_FALSE(refused([](std::string&) {}));
  EXPECT_TRUE(refused(replace("\"version\":1", "\"version\":2")));
  EXPECT_TRUE(refused(replace("sauropod-checkpoint", "something-else")));
  EXPECT_TRUE(refused(replace("\"begin\":", "\"begin\":1")));
  EXPECT_TRUE(refused(replace("\"begin\":", "\"begin\":-")));
  EXPECT_TRUE(refused(replace("\"end\":", "\"end\":99999999999999999999")));
  EXPECT_TRUE(refused(replace("\"file\":0", "\"file\":1000")));
  EXPECT_TRUE(refused(replace("\"dtype\":\"F32\"", "\"dtype\":\"F31\"")));
  EXPECT_TRUE(refused(replace("\"dtype\":\"F32\"", "\"dtype\":\"F64\"")));
  EXPECT_TRUE(refused(replace(first, "../" + first)));
  EXPECT_TRUE(refused(replace(first, second)));
  EXPECT_TRUE(refused(replace(first, "manifest.json")));
  EXPECT_TRUE(refused(replace("\"shape\":[24,10]", "\"shape\":[24,11]")));
  EXPECT_TRUE(refused(replace("\"shape\":[24,10]", "\"shape\":[4611686018427387904,4]")));
  EXPECT_TRUE(refused(replace("\"offset\":[0,0]", "\"offset\":[1,0]")));
  EXPECT_TRUE(refused(replace("\"offset\":[0,0]", "\"offset\":[]")));
  EXPECT_TRUE(refused(replace("\"offset\":[0,0]", "\"offset\":7")));
  EXPECT_TRUE(refused(replace("\"tensors\":", "\"tensor\":")));
  EXPECT_TRUE(refused([](std::string& text) { text += ",\"x\":[[[["; }));
}

TEST_F(CheckpointTest, BackgroundWritesReportAtTheNextCall) {
  storage::FaultStore faults(store_);
  Writer writer(faults, {}, small);
  bool released = false;
  {
    Snapshot snapshot = make_snapshot(1);
    snapshot.owner = std::shared_ptr<const void>(
        &released, [&released, keep = snapshot.owner](const void*) { released = true; });
    writer.write_in_background(std::move(snapshot));
  }
  writer.wait();
  EXPECT_TRUE(released);
  expect_content(*Reader::newest_intact(store_), 1);

  faults.add({.operation = Operation::write, .nth = faults.count(Operation::write) + 3,
              .cause = Cause::no_space});
  writer.write_in_background(make_snapshot(2));
  EXPECT_NE(message_of([&] { writer.write_in_background(make_snapshot(3)); }).find("full"),
            std::string::npos);
  writer.wait();  // reported once
  EXPECT_EQ(Reader::newest_intact(store_)->manifest().step, 1) << "step 3 was not begun";
  writer.write_in_background(make_snapshot(4));
  writer.write_in_background(make_snapshot(5));
  writer.wait();
  expect_content(*Reader::newest_intact(store_), 5);
}

// Every operation of a write fails once, in every way: the error comes out, what was there before is
// intact, nothing of the new one is left unless it was committed, and the next write succeeds.
TEST_F(CheckpointTest, AnyOperationMayFail) {
  storage::FaultStore counting(store_);
  {
    Writer writer(counting, {.keep_last = 1}, small);
    writer.write(make_snapshot(1));
    counting.clear();
    writer.write(make_snapshot(2));
  }
  const uint64_t operations = counting.count(Operation::any);
  EXPECT_GT(operations, 30U);
  for (uint64_t nth = 1; nth <= operations; ++nth)
    for (const Fault::Effect effect : {Fault::Effect::error, Fault::Effect::short_write}) {
      const TemporaryFolder folder;
      storage::LocalStore local(folder.path());
      storage::FaultStore faults(local);
      Writer writer(faults, {.keep_last = 1}, {.threads = 1, .box_bytes = 256, .file_bytes = 1024});
      writer.write(make_snapshot(1));
      faults.clear();
      faults.add({.nth = nth, .effect = effect,
                  .cause = nth % 2 == 0 ? Cause::no_space : Cause::read_only});
      EXPECT_NE(message_of([&] { writer.write(make_snapshot(2)); }), "") << nth;
      const int64_t newest = Reader::newest_intact(local)->manifest().step;
      expect_content(*Reader::newest_intact(local), newest);
      if (newest == 1) {
        EXPECT_EQ(files_in(folder.path()), (std::vector<std::string>{"step-000000001"})) << nth;
      }
      writer.write(make_snapshot(3));
      expect_content(*Reader::newest_intact(local), 3);
      EXPECT_EQ(files_in(folder.path()), (std::vector<std::string>{"step-000000003"})) << nth;
    }
}

TEST_F(CheckpointTest, AStoreThatLosesDataSilentlyIsFoundOut) {
  storage::FaultStore faults(store_);
  Writer writer(faults, {}, small);
  writer.write(make_snapshot(1));
  faults.clear();
  faults.add({.operation = Operation::commit, .nth = 2, .effect = Fault::Effect::truncate});
  EXPECT_NE(message_of([&] { writer.write(make_snapshot(2)); }).find("loses data"),
            std::string::npos);
  EXPECT_EQ(files_in(folder_.path()), (std::vector<std::string>{"step-000000001"}));
  // The manifest itself is found out by readers.
  faults.clear();
  writer.write(make_snapshot(2));
  const uint64_t commits = faults.count(Operation::commit);
  faults.add({.operation = Operation::commit, .nth = 2 * commits, .effect = Fault::Effect::truncate});
  writer.write(make_snapshot(3));
  std::vector<std::string> complaints;
  expect_content(*Reader::newest_intact(store_, &complaints), 2);
  EXPECT_EQ(complaints.size(), 1U);
}

TEST_F(CheckpointTest, KeepsTheLastAndEveryNth) {
  Writer writer(store_, {.keep_last = 2, .keep_every = 30});
  for (int64_t step = 10; step <= 100; step += 10) writer.write(make_snapshot(step));
  EXPECT_EQ(files_in(folder_.path()),
            (std::vector<std::string>{"step-000000030", "step-000000060", "step-000000090",
                                      "step-000000100"}));
  Writer(store_, {.keep_last = 1}).write(make_snapshot(110));
  EXPECT_EQ(files_in(folder_.path()), (std::vector<std::string>{"step-000000110"}));
}

TEST_F(CheckpointTest, ADamagedCheckpointDoesNotCountAsOneOfTheLast) {
  {
    Writer writer(store_, {.keep_last = 0}, small);
    for (int64_t step = 1; step <= 3; ++step) writer.write(make_snapshot(step));
  }
  const fs::path file =
      folder_.path() / "step-000000003" / Reader(store_, 3).manifest().files[0].name;
  std::string bytes = base::read_file(file);
  bytes.back() ^= 1;
  base::write_file_atomically(file, bytes);
  Writer writer(store_, {.keep_last = 2}, small);  // a new run, which fell back to step 2
  writer.write(make_snapshot(4));
  EXPECT_EQ(files_in(folder_.path()), (std::vector<std::string>{"step-000000002", "step-000000003",
                                                                "step-000000004"}));
  writer.write(make_snapshot(5));
  EXPECT_EQ(files_in(folder_.path()),
            (std::vector<std::string>{"step-000000004", "step-000000005"}));
}

TEST_F(CheckpointTest, LaterStepsOfAnAbandonedRunAreLeftAlone) {
  Writer writer(store_, {.keep_last = 1});
  writer.write(make_snapshot(10));
  writer.write(make_snapshot(5));
  EXPECT_EQ(files_in(folder_.path()),
            (std::vector<std::string>{"step-000000005", "step-000000010"}));
}

TEST_F(CheckpointTest, AStepCanBeWrittenAgain) {
  Writer writer(store_, {}, small);
  writer.write(make_snapshot(3));
  Snapshot other = make_snapshot(9);
  other.step = 3;
  const fs::path folder = folder_.path() / "step-000000003";
  const size_t files = files_in(folder).size();
  for (int i = 0; i < 3; ++i) {
    writer.write(other);
    EXPECT_EQ(files_in(folder).size(), files);
  }
  const Reader reader(store_, 3, Check::hashes);
  EXPECT_EQ(reader.manifest().training.at("tokens"), 9000);
  EXPECT_EQ(read_whole(reader, {"bias", {17}}, "master"), tensor_of("bias", "master", 9, 17));

  // A failure on the way leaves the one that was to be replaced.
  storage::FaultStore faults(store_);
  Writer failing(faults, {}, small);
  faults.add({.operation = Operation::commit, .nth = 2, .cause = Cause::no_space});
  EXPECT_THROW(failing.write(make_snapshot(3)), storage::StoreError);
  EXPECT_EQ(files_in(folder).size(), files);
  EXPECT_EQ(Reader(store_, 3, Check::hashes).manifest().training.at("tokens"), 9000);

  other.tokenizer_file = "another";
  EXPECT_NE(message_of([&] { writer.write(other); }).find("another tokenizer"),
            std::string::npos);
  Reader(store_, 3, Check::hashes).tokenizer_file();
}

TEST_F(CheckpointTest, CleansUpAfterKilledWriters) {
  Writer writer(store_, {}, small);
  writer.write(make_snapshot(1));
  fs::create_directories(folder_.path() / "step-000000002");
  std::ofstream(folder_.path() / "step-000000002/data-00000.safetensors") << "half";
  std::ofstream(folder_.path() / "step-000000001/manifest.json.tmp-1-1") << "half";
  // What is left of an attempt to write a step again.
  const std::string beside = data_file_name("0a0b0c0d", 0, 0);
  std::ofstream(folder_.path() / "step-000000001" / beside) << "half";
  std::ofstream(folder_.path() / "step-000000001/notes.txt") << "mine";
  std::ofstream(folder_.path() / "notes.txt") << "mine";
  expect_content(*Reader::newest_intact(store_), 1);
  writer.write(make_snapshot(3));
  EXPECT_EQ(files_in(folder_.path()),
            (std::vector<std::string>{"notes.txt", "step-000000001", "step-000000003"}));
  EXPECT_FALSE(fs::exists(folder_.path() / "step-000000001/manifest.json.tmp-1-1"));
  EXPECT_FALSE(fs::exists(folder_.path() / "step-000000001" / beside));
  EXPECT_TRUE(fs::exists(folder_.path() / "step-000000001/notes.txt"));
  expect_content(Reader(store_, 1, Check::hashes), 1);
}

TEST_F(CheckpointTest, OpensWhatAPersonMayPoint) {
  const fs::path run = folder_.path() / "run";
  storage::LocalStore store(run / "checkpoints");
  Writer writer(store);
  writer.write(make_snapshot(1));
  writer.write(make_snapshot(2));
  EXPECT_EQ(Reader::open(run.string()).manifest().step, 2);
  EXPECT_EQ(Reader::open((run / "checkpoints").string()).manifest().step, 2);
  EXPECT_EQ(Reader::open((run / "checkpoints/step-000000001/").string()).manifest().step, 1);
  fs::rename(run / "checkpoints/step-000000001", run / "my model");
  expect_content(Reader::open((run / "my model").string()), 1);
  EXPECT_THROW(Reader::open((run / "none").string()), base::Error);
  fs::create_directories(run / "empty");
  EXPECT_THROW(Reader::open((run / "empty").string()), base::Error);
  fs::rename(run / "checkpoints/step-000000002", run / "checkpoints/step-000000003");
  EXPECT_NE(message_of([&] { Reader::open(run.string()); }).find("renamed"), std::string::npos);
}

}  // namespace
}  // namespace sauropod::checkpoint
