# Finds libtorch inside a PyTorch wheel and makes the target `libtorch`.
#
# The wheel's own TorchConfig.cmake demands a CUDA toolkit when the wheel is a CUDA build, even for
# use on the CPU, so the libraries are named here. Torch ships its own copy of fmt: its headers come
# last in the search order (-idirafter), so that Debian's fmt wins.
#
# Input: SAUROPOD_TORCH_DIR (default: the wheel in .venv), SAUROPOD_CUDA.

set(SAUROPOD_TORCH_DIR "" CACHE PATH "Folder of the torch wheel (…/site-packages/torch)")
set(_torch ${SAUROPOD_TORCH_DIR})
if(NOT _torch)
  set(_venv .venv)
  if(SAUROPOD_CUDA)
    set(_venv .venv-cuda)
  endif()
  file(GLOB _found ${CMAKE_SOURCE_DIR}/${_venv}/lib/python3*/site-packages/torch)
  list(LENGTH _found _count)
  if(_count EQUAL 0)
    message(FATAL_ERROR "No torch wheel in ${CMAKE_SOURCE_DIR}/${_venv}. Run scripts/setup, or set "
      "-DSAUROPOD_TORCH_DIR to the folder of an installed torch package.")
  endif()
  list(GET _found 0 _torch)
endif()

if(NOT EXISTS ${_torch}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "${_torch}/lib/libtorch_cpu.so is missing: the torch package there is "
    "incomplete. Remove its environment and run scripts/setup again.")
endif()

set(_version "")
if(EXISTS ${_torch}/version.py)
  file(STRINGS ${_torch}/version.py _version REGEX "^__version__")
  string(REGEX MATCH "[0-9]+\\.[0-9]+(\\.[0-9]+)?" _version "${_version}")
endif()
if(_version STREQUAL "" OR _version VERSION_LESS 2.9 OR _version VERSION_GREATER_EQUAL 3)
  message(FATAL_ERROR "${_torch} is torch '${_version}'; 2.9 or newer, before 3, is supported. "
    "scripts/setup installs one in .venv.")
endif()
message(STATUS "libtorch ${_version}: ${_torch}")

add_library(libtorch INTERFACE)
target_compile_options(libtorch INTERFACE
  "SHELL:-idirafter ${_torch}/include"
  "SHELL:-idirafter ${_torch}/include/torch/csrc/api/include"
  -fopenmp)
target_link_directories(libtorch INTERFACE ${_torch}/lib)
# libtorch_cpu's own OpenMP runtime is the only one in the process: a second one would bring a second
# team of threads to every parallel region.
file(GLOB _gomp ${_torch}/lib/libgomp*.so* ${_torch}/../torch.libs/libgomp*.so*)
if(_gomp)
  list(GET _gomp 0 _gomp)
else()
  set(_gomp gomp)
endif()
target_link_libraries(libtorch INTERFACE
  ${_torch}/lib/libtorch_cpu.so ${_torch}/lib/libc10.so ${_gomp})
target_link_options(libtorch INTERFACE
  -Wl,-rpath,${_torch}/lib -Wl,-rpath-link,${_torch}/lib)

if(SAUROPOD_CUDA)
  if(NOT EXISTS ${_torch}/lib/libtorch_cuda.so)
    message(FATAL_ERROR "${_torch} is a CPU build of torch, and SAUROPOD_CUDA needs a CUDA build: "
      "run scripts/setup --cuda.")
  endif()
  target_compile_definitions(libtorch INTERFACE SAUROPOD_CUDA=1)
  foreach(dir nvidia/cu13/include nvidia/nccl/include)
    target_compile_options(libtorch INTERFACE "SHELL:-idirafter ${_torch}/../${dir}")
  endforeach()
  file(GLOB _nvidia_libs ${_torch}/../nvidia/*/lib)
  foreach(dir IN LISTS _nvidia_libs)
    target_link_options(libtorch INTERFACE -Wl,-rpath,${dir} -Wl,-rpath-link,${dir})
  endforeach()
  # Nothing refers to libtorch_cuda by symbol; its kernels register when it is loaded.
  target_link_libraries(libtorch INTERFACE
    -Wl,--no-as-needed ${_torch}/lib/libtorch_cuda.so ${_torch}/lib/libc10_cuda.so -Wl,--as-needed)
endif()

# The headers that nearly every file with tensors reads, parsed once. Rooms take it with REUSE_FROM, so
# its options are those of every room.
add_library(sauropod_precompiled STATIC ${CMAKE_SOURCE_DIR}/cmake/precompiled.cpp)
find_package(fmt REQUIRED)
target_include_directories(sauropod_precompiled PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(sauropod_precompiled PRIVATE libtorch fmt::fmt Threads::Threads)
target_precompile_headers(sauropod_precompiled PRIVATE <ATen/core/Tensor.h> <fmt/format.h>)
