// Float matrix products: the contract between gemm_cpu.cpp, which divides the work, and the file compiled
// for AVX-512.
//
// Why not MKL's: on processors that are not Intel's it reaches 75–90% of what the vector units give
// (docs/decisions.md). Blocking as in Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication" (2008): the right operand is packed in panels of 64 columns, shared by all threads; a
// block of up to 96 rows of the left one stays in the second-level cache.
#pragma once

#include <cstdint>

namespace sauropod::ops {

inline constexpr int64_t kGemmDepth = 512;   // longest reduction of one pass
inline constexpr int64_t kGemmRows = 96;     // rows of a left block
inline constexpr int64_t kGemmPanel = 64;    // columns of a panel

// A matrix in memory: element (i, j) at data[i · stride + j], or at data[j · stride + i] if transposed.
struct GemmOperand {
  const float* data = nullptr;
  int64_t stride = 0;
  bool transposed = false;
};

// Packs panel columns [column, column + 64) of B[depth, n] as packed[depth][64]; columns past n are 0.
void pack_panel_avx512(const GemmOperand& b, int64_t depth, int64_t n, int64_t column,
                       float* packed);

// Packs A[rows, depth] given transposed, as packed[rows][kGemmDepth]; rows <= kGemmRows.
void pack_rows_avx512(const GemmOperand& a, int64_t rows, int64_t depth, float* packed);

// C[rows, columns] = or += A[rows, depth] · panel, columns <= 64; A row-major.
void multiply_panel_avx512(int64_t rows, int64_t columns, int64_t depth, const float* a,
                           int64_t a_stride, const float* panel, float* c, int64_t c_stride,
                           bool accumulate);

}  // namespace sauropod::ops
