#include "train/memory_policy.h"

#include <malloc.h>

namespace sauropod::train {

void set_memory_policy() {
#ifdef __GLIBC__
  // mallopt takes an int; 1 GiB is the largest round number that fits.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
#endif
}

}  // namespace sauropod::train
