# Warnings, ccache and the mold linker when they are present.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # ccache keeps files that use a precompiled header only with these.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    add_compile_options(-fpch-preprocess)
  endif()
endif()

include(CheckLinkerFlag)
check_linker_flag(CXX "-fuse-ld=mold" SAUROPOD_HAVE_MOLD)
if(SAUROPOD_HAVE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# -ffp-contract=off keeps the same bits whatever the compiler decides to fuse; kernels that want a
# fused multiply-add ask for one.
add_compile_options(-Wall -Wextra -Wpedantic -Wno-unused-parameter -ffp-contract=off)
if(SAUROPOD_SANITIZE)
  add_compile_options(-fsanitize=${SAUROPOD_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${SAUROPOD_SANITIZE})
endif()
find_package(Threads REQUIRED)
