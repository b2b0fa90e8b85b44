// The pointwise kernels for one instruction set (see pointwise.inc; flags in CMakeLists.txt).
#define SAUROPOD_POINTWISE_TABLE pointwise_portable
#define SAUROPOD_POINTWISE_NAME "portable"
#include "ops/pointwise.inc"
