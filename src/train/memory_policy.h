// How the process asks the kernel for memory.
#pragma once

namespace sauropod::train {

// Keeps freed activations in the process. Under glibc's defaults every large tensor is a fresh mapping
// whose pages fault anew in each step, which costs pointwise operations a fifth of their speed. Call
// once, before the first large allocation.
void set_memory_policy();

}  // namespace sauropod::train
