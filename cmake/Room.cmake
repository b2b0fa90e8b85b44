# sauropod_room(NAME SOURCES file... [ROOMS room...] [LIBRARIES target...] [PRIVATE_LIBRARIES target...])
#
# One folder of src/: a static library `sauropod_NAME`. ROOMS are the rooms above that its headers or
# sources use. Files named *_test.cpp in the folder become one test program `NAME_test`.
function(sauropod_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;ROOMS;LIBRARIES;PRIVATE_LIBRARIES;TEST_LIBRARIES" ${ARGN})
  set(target sauropod_${name})
  add_library(${target} STATIC ${ARG_SOURCES})
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  set(rooms ${ARG_ROOMS})
  list(TRANSFORM rooms PREPEND sauropod_)
  target_link_libraries(${target} PUBLIC ${rooms} ${ARG_LIBRARIES} Threads::Threads
    PRIVATE ${ARG_PRIVATE_LIBRARIES})
  if(libtorch IN_LIST ARG_LIBRARIES OR libtorch IN_LIST ARG_PRIVATE_LIBRARIES)
    # One precompiled header serves all rooms with tensors.
    target_precompile_headers(${target} REUSE_FROM sauropod_precompiled)
  endif()

  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cpp)
  if(SAUROPOD_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE ${target} ${ARG_TEST_LIBRARIES} GTest::gtest_main)
    if(libtorch IN_LIST ARG_LIBRARIES)
      target_precompile_headers(${name}_test REUSE_FROM sauropod_precompiled)
      target_compile_options(${name}_test PRIVATE -fPIC)  # as the precompiled header is
    endif()
    add_test(NAME ${name} COMMAND ${name}_test)
    set_tests_properties(${name} PROPERTIES LABELS room ENVIRONMENT "OMP_NUM_THREADS=2;OMP_WAIT_POLICY=PASSIVE")
  endif()
endfunction()
