// A recipe: a TOML file that sets options, with overrides from the command line.
//
//   config::Recipe recipe = config::Recipe::load("recipes/quickstart.toml", {"train.steps=100"});
//   recipe.bind("train", train_options);   // reads [train] into the struct
//   recipe.finish();                       // throws when anything in the recipe is wrong
//   base::write_file_atomically(run / "run.toml", recipe.to_toml());
//
// Described for users in docs/recipes.md.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/section.h"

namespace sauropod::config {

// An option whose value differs between two runs. Values as JSON; "absent" where there is none.
struct Difference {
  std::string key;  // "train.steps"
  std::string here;
  std::string there;
  bool operator==(const Difference&) const = default;
};

// Not thread-safe. Options keep the defaults until bind(), and wrong values leave them as they are, so
// nothing may act on bound options before finish() has returned.
class Recipe {
 public:
  // Throws base::Error when the file can't be read, isn't TOML, or an override isn't key=value.
  static Recipe load(const std::string& path, const std::vector<std::string>& sets = {});
  // `name` stands for the path in messages.
  static Recipe parse(std::string_view text, std::string name,
                      const std::vector<std::string>& sets = {});

  // Reads one section; "train.guard" is [train.guard]. Wrong values are kept for finish().
  template <class T>
  void bind(const std::string& section, T& options) {
    bind_section(section, [&](Section& reader) { options.declare(reader); });
  }

  // Throws base::Error (usage) that lists everything wrong: each with file:line or its --set. Keys and
  // sections nobody declared are wrong, and get the nearest known name.
  void finish();

  // The effective values, as bound. TOML that loads to the same values, each line saying where its
  // value came from; JSON with one object per section (bytes and seconds as numbers).
  std::string to_toml() const;
  nlohmann::json to_json() const;
  // What `config show --json` prints: {"values": to_json(), "origins": {"train.steps": "--set …"},
  // "hash": hash()}.
  nlohmann::json describe() const;
  // XXH3-128 of to_json(): equal exactly when all effective values are.
  std::string hash() const;
  // The options that differ from another recipe's to_json(), by name.
  std::vector<Difference> differences(const nlohmann::json& other) const;

  const std::vector<Option>& options() const { return options_; }
  const std::string& name() const { return name_; }

 private:
  void set(const std::string& text);
  void bind_section(const std::string& name, const std::function<void(Section&)>& declare);
  void find_unknown(const Table& table, const std::string& section);

  std::string name_;
  Table table_;
  std::vector<Option> options_;
  std::set<std::string> sections_;  // bound, with those around and within them
  std::vector<std::string> problems_;
};

// The keys ("train.steps") whose values differ between two to_json() results.
std::vector<Difference> differences(const nlohmann::json& here, const nlohmann::json& there);

}  // namespace sauropod::config
