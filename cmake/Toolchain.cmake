# Warnings, ccache and the mold linker when they are present.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
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
