// A target needs a source; this one has only the precompiled header (Libtorch.cmake).
