// The pointwise kernels for one instruction set (see pointwise.inc; flags in CMakeLists.txt).
#define SAUROPOD_POINTWISE_TABLE pointwise_avx512
#define SAUROPOD_POINTWISE_NAME "avx512"
#include "ops/pointwise.inc"
