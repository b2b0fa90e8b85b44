#include "tokenizer/corpus.h"

#include <algorithm>

#include "base/threads.h"
#include "tokenizer/segment.h"

namespace sauropod::tokenizer {
namespace {

// Fixed sizes: the numbering of chunks must not depend on the number of threads.
constexpr size_t piece_bytes = size_t{1} << 20;
constexpr size_t pending_bytes = size_t{16} << 20;

// The end of the part of a document that begins at `begin`: behind the first run of newlines that ends at or after
// piece_bytes, so that no segment is cut; or the end of the text.
size_t part_end(std::string_view text, size_t begin) {
  if (text.size() - begin <= piece_bytes) return text.size();
  const size_t newline = text.find('\n', begin + piece_bytes);
  if (newline == std::string_view::npos) return text.size();
  const size_t end = text.find_first_not_of('\n', newline);
  return end == std::string_view::npos ? text.size() : end;
}

}  // namespace

struct CorpusBuilder::Piece {
  ByteTable chunks;
  std::vector<int64_t> counts;
  std::vector<ChunkKind> kinds;
  std::vector<uint32_t> runs;

  void count(std::string_view text) {
    std::vector<Chunk> cut;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = segment_end(text, begin);
      cut.clear();
      cut_chunks(text.substr(begin, end - begin), cut);
      begin = end;
      size_t length = 0;  // of the run that ends here
      for (const Chunk& chunk : cut) {
        const uint32_t id = chunks.add(chunk.bytes);
        if (id == counts.size()) {
          counts.push_back(0);
          kinds.push_back(chunk.kind);
        }
        ++counts[id];
        if (chunk.kind == ChunkKind::other) {
          end_run(length);
        } else {
          runs.push_back(id);
          ++length;
        }
      }
      end_run(length);
    }
  }

  void end_run(size_t& length) {
    if (length == 1) runs.pop_back();
    if (length > 1) runs.push_back(run_break);
    length = 0;
  }
};

CorpusBuilder::CorpusBuilder(int threads) : threads_(threads) {}

void CorpusBuilder::add(std::string_view document) {
  ++corpus_.documents;
  corpus_.bytes += static_cast<int64_t>(document.size());
  for (size_t begin = 0; begin < document.size();) {
    const size_t end = part_end(document, begin);
    pending_ += document.substr(begin, end - begin);
    part_ends_.push_back(pending_.size());
    if (pending_.size() >= pending_bytes) count_pending();
    begin = end;
  }
}

Corpus CorpusBuilder::finish() {
  count_pending();
  return std::move(corpus_);
}

void CorpusBuilder::count_pending() {
  // Small documents share a piece: a range of parts.
  std::vector<size_t> piece_ends;
  size_t piece_begin = 0;
  for (size_t part = 0; part < part_ends_.size(); ++part) {
    if (part_ends_[part] - piece_begin < piece_bytes && part + 1 < part_ends_.size()) continue;
    piece_ends.push_back(part + 1);
    piece_begin = part_ends_[part];
  }
  std::vector<Piece> pieces(piece_ends.size());
  base::parallel_for(pieces.size(), 1, threads_, [&](size_t first, size_t last) {
    for (size_t p = first; p < last; ++p) {
      size_t part = p == 0 ? 0 : piece_ends[p - 1];
      size_t begin = part == 0 ? 0 : part_ends_[part - 1];
      for (; part < piece_ends[p]; ++part) {
        pieces[p].count(std::string_view(pending_).substr(begin, part_ends_[part] - begin));
        begin = part_ends_[part];
      }
    }
  });
  for (const Piece& piece : pieces) merge(piece);
  pending_.clear();
  part_ends_.clear();
}

void CorpusBuilder::merge(const Piece& piece) {
  std::vector<uint32_t> global(piece.chunks.size());
  for (uint32_t id = 0; id < piece.chunks.size(); ++id) {
    global[id] = corpus_.chunks.add(piece.chunks[id]);
    if (global[id] == corpus_.counts.size()) {
      corpus_.counts.push_back(0);
      corpus_.kinds.push_back(piece.kinds[id]);
    }
    corpus_.counts[global[id]] += piece.counts[id];
  }
  corpus_.runs.reserve(corpus_.runs.size() + piece.runs.size());
  for (const uint32_t id : piece.runs)
    corpus_.runs.push_back(id == run_break ? run_break : global[id]);
}

}  // namespace sauropod::tokenizer
