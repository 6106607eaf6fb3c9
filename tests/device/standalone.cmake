# The libraries that the targets of this folder need, of as few sources as will do. Names are those of the whole build.
cmake_path(GET CMAKE_CURRENT_SOURCE_DIR PARENT_PATH tests)
cmake_path(GET tests PARENT_PATH SYSONE_ROOT)
set(PROJECT_SOURCE_DIR ${SYSONE_ROOT})
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(SYSONE_CUDA ON CACHE STRING "")
include(${SYSONE_ROOT}/cmake/sysone.cmake)
include(${SYSONE_ROOT}/cmake/cuda.cmake)
enable_testing()

find_package(GTest QUIET)
find_package(simdjson QUIET)
set(SYSONE_WITH_JSON ${simdjson_FOUND})
message(STATUS "GoogleTest: ${GTest_FOUND}; simdjson: ${SYSONE_WITH_JSON}")

# sysone_part(NAME FOLDER DEPS targets… SOURCES a.cc…): a library of some of a folder's sources.
function(sysone_part name folder)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  list(TRANSFORM ARG_SOURCES PREPEND ${SYSONE_ROOT}/${folder}/)
  sysone_library(${name} SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS})
endfunction()

set(base_sources log.cc status.cc)
set(model_sources tensor_index.cc dequantise.cc ggml_types.cc model_config.cc)
if(SYSONE_WITH_JSON)
  list(APPEND base_sources json.cc)
  list(APPEND model_sources mapped_file.cc gguf.cc safetensors.cc gguf_config.cc hf_config.cc model_folder.cc model_weights.cc)
endif()
sysone_part(sysone_base base SOURCES ${base_sources})
target_compile_definitions(sysone_base PRIVATE SYSONE_VERSION="${PROJECT_VERSION}")
if(SYSONE_WITH_JSON)
  target_link_libraries(sysone_base PRIVATE simdjson::simdjson)
endif()
sysone_part(sysone_kernels kernels SOURCES reference/reference_backend.cc cpu/cpu_limits.cc cpu/thread_pool.cc shared_positions.cc DEPS sysone_base)
# The CPU backend's instruction sets, of which there are none here.
target_sources(sysone_kernels PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/no_cpu_backend.cc)
sysone_part(sysone_model model SOURCES ${model_sources} DEPS sysone_base)
set_source_files_properties(${SYSONE_ROOT}/model/dequantise.cc PROPERTIES
  COMPILE_OPTIONS "-O3;-ffp-contract=off;-fno-trapping-math")
sysone_part(sysone_worker_lib worker
  SOURCES rope.cc shard.cc weight_reader.cc stored_rows.cc layer_parts.cc pass.cc read_plan.cc padded_batch.cc decoder.cc
          comm/collective.cc
  DEPS sysone_kernels sysone_model)
add_subdirectory(${SYSONE_ROOT}/kernels/cuda ${CMAKE_BINARY_DIR}/kernels/cuda)
