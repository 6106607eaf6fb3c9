# Helpers that every folder uses: warnings as errors, sanitizers, ccache, and the two target kinds.

find_program(SYSONE_CCACHE ccache)
if(SYSONE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${SYSONE_CCACHE})
endif()

find_package(Threads REQUIRED)

add_library(sysone_flags INTERFACE)
target_include_directories(sysone_flags INTERFACE ${PROJECT_SOURCE_DIR})
# g++ 12 sees an overlap in every "literal" + std::string() (GCC bug 105651).
target_compile_options(sysone_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Werror;-Wno-restrict>")
target_link_libraries(sysone_flags INTERFACE Threads::Threads)
if(SYSONE_SANITIZE)
  target_compile_options(sysone_flags INTERFACE -fsanitize=${SYSONE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(sysone_flags INTERFACE -fsanitize=${SYSONE_SANITIZE})
endif()

# sysone_library(NAME SOURCES a.cc … [DEPS targets…])
function(sysone_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC sysone_flags ${ARG_DEPS})
endfunction()

# sysone_program(NAME SOURCES a.cc … [DEPS targets…])
function(sysone_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sysone_flags ${ARG_DEPS})
endfunction()

# sysone_test(NAME SOURCES a.cc … [DEPS targets…] [TIMEOUT seconds]): a GoogleTest program, one ctest entry.
function(sysone_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sysone_flags ${ARG_DEPS} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE SYSONE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests_bin)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT})
endfunction()
