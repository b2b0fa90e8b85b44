#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "config/environment.h"
#include "config/nearest.h"
#include "config/recipe.h"
#include "config/reference.h"

namespace sauropod::config {
namespace {

struct Corpus {
  std::string path;
  double weight = 0;
  static Corpus from_string(std::string_view text) { return {.path = std::string(text)}; }
  void declare(Section& s) {
    s.option("path", path, {.help = "Prefix of the files", .required = true});
    s.option("weight", weight, {.help = "Share", .min = 0});
  }
};

struct Guard {
  double z_score = 6;
  void declare(Section& s) { s.option("z_score", z_score, {.help = "Outlier", .min = 0}); }
};

struct Train {
  int64_t steps = 1000;
  double learning_rate = 3e-4;
  bool recompute = false;
  int threads = 0;
  std::string precision = "fp32";
  std::vector<std::string> tags = {"a", "b"};
  std::vector<int64_t> sizes;
  std::vector<std::vector<int64_t>> ramp = {{0, 32}};
  int64_t memory = 8000000000;
  std::chrono::seconds max_time{0};
  Guard guard;
  void declare(Section& s) {
    s.option("steps", steps, {.help = "Optimizer steps", .unit = "steps", .min = 1, .max = 1e6});
    s.option("learning_rate", learning_rate, {.help = "Peak | rate", .min = 0, .max = 1});
    s.option("recompute", recompute, {.help = "Recompute"});
    s.option("threads", threads, {.help = "Threads", .min = 0});
    s.option("precision", precision, {.help = "Numbers", .choices = {"fp32", "bf16"}});
    s.option("tags", tags, {.help = "Tags"});
    s.option("sizes", sizes, {.help = "Sizes", .min = 1});
    s.option("ramp", ramp, {.help = "Ramp", .min = 0});
    s.bytes("memory", memory, {.help = "Memory", .min = 1000});
    s.duration("max_time", max_time, {.help = "Time", .max = 86400});
    s.table("guard", guard);
  }
};

struct Data {
  std::vector<Corpus> train = {{.path = "standard"}};
  void declare(Section& s) { s.table_list("train", train, {.help = "Corpora"}); }
};

struct All {
  Train train;
  Data data;
  void read(Recipe& recipe) {
    recipe.bind("train", train);
    recipe.bind("data", data);
    recipe.finish();
  }
};

All read(std::string_view text, const std::vector<std::string>& sets = {}) {
  Recipe recipe = Recipe::parse(text, "r.toml", sets);
  All all;
  all.read(recipe);
  return all;
}

// The message of the usage error that reading must end with.
std::string error(std::string_view text, const std::vector<std::string>& sets = {}) {
  try {
    read(text, sets);
  } catch (const base::Error& error) {
    EXPECT_EQ(error.exit_code(), base::Exit::usage);
    return error.what();
  }
  return "no error";
}

TEST(Recipe, ReadsEveryKind) {
  const All all = read(R"(
[train]
steps = 1e3
learning_rate = 1
recompute = true
threads = 3
precision = "bf16"
tags = "one"
sizes = [1, 2]
ramp = [[0, 8], [1000, 16]]
memory = "1.5 GiB"
max_time = "2h"
guard.z_score = 4
[[data.train]]
path = "x"
weight = 2
[[data.train]]
path = "y"
)");
  EXPECT_EQ(all.train.steps, 1000);
  EXPECT_EQ(all.train.learning_rate, 1.0);
  EXPECT_TRUE(all.train.recompute);
  EXPECT_EQ(all.train.threads, 3);
  EXPECT_EQ(all.train.precision, "bf16");
  EXPECT_EQ(all.train.tags, std::vector<std::string>{"one"});
  EXPECT_EQ(all.train.sizes, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(all.train.ramp, (std::vector<std::vector<int64_t>>{{0, 8}, {1000, 16}}));
  EXPECT_EQ(all.train.memory, 1610612736);
  EXPECT_EQ(all.train.max_time.count(), 7200);
  EXPECT_EQ(all.train.guard.z_score, 4);
  ASSERT_EQ(all.data.train.size(), 2u);
  EXPECT_EQ(all.data.train[0].weight, 2);
  EXPECT_EQ(all.data.train[1].path, "y");
}

TEST(Recipe, ListsTakeBareStringsAndSingleElements) {
  EXPECT_EQ(read("data.train = 'x'").data.train.at(0).path, "x");
  const All all = read("data.train = ['x', {path = 'y', weight = 1}]");
  ASSERT_EQ(all.data.train.size(), 2u);
  EXPECT_EQ(all.data.train[0].path, "x");
  EXPECT_EQ(all.data.train[1].weight, 1);
  EXPECT_EQ(read("").data.train.at(0).path, "standard");
}

TEST(Recipe, SetsOverrideAndTakeBareWords) {
  const All all = read("[train]\nsteps = 5\n", {"train.steps=7", "train.precision=bf16",
                                                "train.max_time = 2h", "train.guard.z_score=1e1",
                                                "data.train=[\"p\"]", "train.tags=123"});
  EXPECT_EQ(all.train.steps, 7);
  EXPECT_EQ(all.train.precision, "bf16");
  EXPECT_EQ(all.train.max_time.count(), 7200);
  EXPECT_EQ(all.train.guard.z_score, 10);
  EXPECT_EQ(all.data.train.at(0).path, "p");
  EXPECT_EQ(all.train.tags.at(0), "123");
}

TEST(Recipe, UnknownNamesSuggestTheNearest) {
  EXPECT_EQ(error("[train]\n\nstepz = 1"),
            "r.toml:3: unknown key train.stepz; did you mean train.steps?");
  EXPECT_EQ(error("[trian]\nsteps = 1"), "r.toml:1: unknown section [trian]; did you mean [train]?");
  EXPECT_EQ(error("[data]\nsteps = 1"),
            "r.toml:2: unknown key data.steps; did you mean train.steps?");
  EXPECT_EQ(error("[train.gaurd]\nz_score = 1"),
            "r.toml:1: unknown key train.gaurd; did you mean train.guard?");
  EXPECT_EQ(error("[train.guard]\nzscore = 1"),
            "r.toml:2: unknown key train.guard.zscore; did you mean train.guard.z_score?");
  EXPECT_EQ(error("", {"train.learning-rate=1"}),
            "--set train.learning-rate=1: unknown key train.learning-rate; did you mean "
            "train.learning_rate?");
  EXPECT_EQ(error("", {"steps=1"}),
            "--set steps=1: unknown key steps; did you mean train.steps?");
  EXPECT_EQ(error("[data]\ntrain = [{path = 'x', wieght = 1}]"),
            "r.toml:2: unknown key data.train[0].wieght; did you mean data.train[0].weight?");
  EXPECT_EQ(error("[data]\nqwertyuiop = 1"),
            "r.toml:2: unknown key data.qwertyuiop; known keys of data: train");
}

TEST(Recipe, WrongValuesSayWhereAndWhatIsAllowed) {
  EXPECT_EQ(error("[train]\nsteps = 0"),
            "r.toml:2: train.steps is 0; it must be between 1 and 1000000 steps");
  EXPECT_EQ(error("", {"train.steps=0"}),
            "--set train.steps=0: train.steps is 0; it must be between 1 and 1000000 steps");
  EXPECT_EQ(error("train.steps = 'x'"),
            "r.toml:1: train.steps must be a whole number, not a string");
  EXPECT_EQ(error("train.steps = 1.5"),
            "r.toml:1: train.steps must be a whole number, not a number");
  EXPECT_EQ(error("train.learning_rate = nan"),
            "r.toml:1: train.learning_rate must be a finite number");
  EXPECT_EQ(error("train.precision = 'fp23'"),
            "r.toml:1: train.precision is \"fp23\"; it must be one of: fp32, bf16 (did you mean "
            "fp32?)");
  EXPECT_EQ(error("train.sizes = [\n1,\n0]"), "r.toml:3: train.sizes is 0; it must be at least 1");
  EXPECT_EQ(error("train.memory = '8 bananas'").substr(0, 24), "r.toml:1: train.memory: ");
  EXPECT_EQ(error("train.max_time = '2d'"),
            "r.toml:1: train.max_time is 2d 00h; it must be at most 1d 00h");
  EXPECT_EQ(error("train = 1"),
            "r.toml:1: train is a section: write [train] and its keys below it");
  EXPECT_EQ(error("[train]\nguard = 1"),
            "r.toml:2: train.guard is a section: write [train.guard] and its keys below it");
  EXPECT_EQ(error("data.train = [1]"),
            "r.toml:1: data.train must be a table or a string, not a whole number");
  EXPECT_NE(error("data.train = [{weight = 1}]").find("data.train[0].path is missing"),
            std::string::npos);
  EXPECT_NE(error("train.threads = 5000000000").find("it must be between 0 and 2147483647"),
            std::string::npos);
}

TEST(Recipe, SyntaxErrorsAndDuplicatesNameTheLine) {
  EXPECT_EQ(error("[train]\nsteps = 1\nsteps = 2").substr(0, 10), "r.toml:3: ");
  EXPECT_EQ(error("[train]\nsteps = \n").substr(0, 7), "r.toml:");
  EXPECT_EQ(error("\xff\xfe = 1").substr(0, 10), "r.toml:1: ");
  EXPECT_NE(error("", {"train.steps"}).find("write --set section.key=value"), std::string::npos);
  EXPECT_NE(error("", {"=1"}).find("write --set section.key=value"), std::string::npos);
  EXPECT_NE(error("", {"data.train=[x"}).find("is not a TOML value"), std::string::npos);
  EXPECT_NE(error("train.steps=1", {"train.steps.x=1"}).find("not a section"), std::string::npos);
  EXPECT_NE(error("train.steps=1", {"train={}"}).find("is a section"), std::string::npos);
}

TEST(Recipe, ReportsEverythingAtOnce) {
  const std::string message = error("[train]\nsteps = 0\nstepz = 1\n", {"train.threads=-1"});
  EXPECT_NE(message.find("3 problems"), std::string::npos);
  EXPECT_NE(message.find("r.toml:2"), std::string::npos);
  EXPECT_NE(message.find("r.toml:3"), std::string::npos);
  EXPECT_NE(message.find("--set train.threads=-1"), std::string::npos);
}

TEST(Recipe, EffectiveTomlLoadsToTheSameValues) {
  Recipe first = Recipe::parse(
      "[train]\nlearning_rate = 0.1\ntags = [\"q\\\"uo\\\\te\", \"ünï\\u0001\\n\"]\nmemory = 1234567\n"
      "[data]\ntrain = [{path = 'x', weight = 0.3333333333333333}, 'y']\n",
      "r.toml", {"train.max_time=90m", "train.guard.z_score=7"});
  All a;
  a.read(first);
  const std::string toml = first.to_toml();
  Recipe second = Recipe::parse(toml, "run.toml");
  All b;
  b.read(second);
  EXPECT_EQ(first.to_json(), second.to_json()) << toml;
  EXPECT_EQ(first.hash(), second.hash());
  EXPECT_EQ(b.train.tags, a.train.tags);
  EXPECT_NE(toml.find("steps = 1000"), std::string::npos);
  EXPECT_NE(toml.find("# default"), std::string::npos);
  EXPECT_NE(toml.find("# r.toml:2"), std::string::npos);
  EXPECT_NE(toml.find("# --set train.guard.z_score=7"), std::string::npos);
  EXPECT_NE(toml.find("max_time = \"90m\""), std::string::npos);
  EXPECT_NE(toml.find("memory = 1234567 "), std::string::npos);
}

TEST(Recipe, DifferencesNameTheKeys) {
  Recipe a = Recipe::parse("train.steps = 1", "a");
  Recipe b = Recipe::parse("train.steps = 2\ntrain.guard.z_score = 1", "b");
  All one, two;
  one.read(a);
  two.read(b);
  auto other = b.to_json();
  other["train"]["gone"] = true;
  EXPECT_EQ(a.differences(other),
            (std::vector<Difference>{{"train.guard.z_score", "6.0", "1.0"},
                                     {"train.steps", "1", "2"},
                                     {"train.gone", "absent", "true"}}));
  EXPECT_TRUE(a.differences(a.to_json()).empty());
  EXPECT_NE(a.hash(), b.hash());
}

TEST(Recipe, DescribesValuesWithTheirOrigins) {
  Recipe recipe = Recipe::parse("[train]\nsteps = 5", "r.toml", {"train.threads=2"});
  All all;
  all.read(recipe);
  const auto json = recipe.describe();
  EXPECT_EQ(json["values"]["train"]["steps"], 5);
  EXPECT_EQ(json["values"]["train"]["guard"]["z_score"], 6.0);
  EXPECT_EQ(json["values"]["data"]["train"][0]["path"], "standard");
  EXPECT_EQ(json["origins"]["train.steps"], "r.toml:2");
  EXPECT_EQ(json["origins"]["train.threads"], "--set train.threads=2");
  EXPECT_EQ(json["origins"]["train.guard.z_score"], "default");
  EXPECT_EQ(json["hash"], recipe.hash());
}

TEST(Recipe, DeclaringTwiceIsABug) {
  Recipe recipe = Recipe::parse("", "r.toml");
  Train train;
  recipe.bind("train", train);
  EXPECT_THROW(recipe.bind("train", train), base::Bug);
}

TEST(Reference, ListsEachOptionOnce) {
  Recipe recipe = Recipe::parse("", "");
  All all;
  all.read(recipe);
  const std::string text = write_reference(recipe.options());
  EXPECT_NE(text.find("| `steps` | whole number | `1000` | between 1 and 1000000 steps | Optimizer "
                      "steps |"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("| `precision` | `fp32`, `bf16` | `\"fp32\"` |  | Numbers |"),
            std::string::npos);
  EXPECT_NE(text.find("Peak \\| rate"), std::string::npos);
  EXPECT_NE(text.find("## [train.guard]"), std::string::npos);
  EXPECT_NE(text.find("| `train[].path` | string | required |"), std::string::npos);
  EXPECT_NE(text.find("`SAUROPOD_LOG`"), std::string::npos);
}

TEST(Nearest, CountsEdits) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("steps", "stpes"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  const std::vector<std::string> names = {"layers", "hidden"};
  EXPECT_EQ(nearest("hiden", names), "hidden");
  EXPECT_EQ(nearest("xyz", names), std::nullopt);
}

TEST(Environment, WrongValuesNameTheVariable) {
  ::setenv("SAUROPOD_LOG", "inf", 1);
  try {
    log_level();
    ADD_FAILURE();
  } catch (const base::Error& error) {
    EXPECT_NE(std::string(error.what()).find("SAUROPOD_LOG=inf"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("did you mean info?"), std::string::npos);
  }
  ::unsetenv("SAUROPOD_LOG");
  EXPECT_EQ(log_level(), "info");
}

}  // namespace
}  // namespace sauropod::config
