// What the ranks print, on the launcher's terminal and in files. Described in docs/launch.md.
#pragma once

#include <deque>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "telemetry/screen.h"

namespace sauropod::cluster {

// Lines go to standard error, each with its rank: "[2] text". Rank 0's standard output goes to standard
// output as it is, so that `--json` can be piped on, unless that is a terminal.
class Output {
 public:
  // `folder`: for a file of each rank, RANK.log; empty: none. `bar`: rank 0's standard error comes from a
  // terminal of its own (columns() wide), and what stands in its last line is a progress bar. Throws
  // base::Error when the files can't be made.
  Output(int ranks, const std::string& folder, telemetry::Screen& screen, bool bar, bool plain_standard_output);

  int columns() const;  // 0 without `bar`
  // Files begin anew with the first attempt, later ones are added.
  void begin(int attempt);
  void add(int rank, bool error, std::string_view bytes);
  // The rank has ended: prints what it left without a line end.
  void finish(int rank);
  // The last lines of its standard error in this attempt.
  const std::deque<std::string>& last_words(int rank) const { return ranks_[rank].last_words; }

 private:
  struct Rank {
    std::string unfinished[2];  // standard output, standard error
    std::deque<std::string> last_words;
    std::ofstream file;
  };
  void line(int rank, bool error, std::string text);
  void write_file(int rank, std::string_view bytes);

  std::vector<Rank> ranks_;
  std::string folder_;
  telemetry::Screen& screen_;
  bool bar_;
  bool plain_;
  bool file_failed_ = false;
};

// Text without what moves the cursor: carriage returns, "up" and "erase".
std::string without_cursor_moves(std::string_view text);

}  // namespace sauropod::cluster
