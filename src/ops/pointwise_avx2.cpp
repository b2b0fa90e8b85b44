// The pointwise kernels for one instruction set (see pointwise.inc; flags in CMakeLists.txt).
#define SAUROPOD_POINTWISE_TABLE pointwise_avx2
#define SAUROPOD_POINTWISE_NAME "avx2"
#include "ops/pointwise.inc"
