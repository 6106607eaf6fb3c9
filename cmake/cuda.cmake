# NVIDIA GPUs: finds CUDA and says in one line what is built with it. Sets SYSONE_CUDA_FOUND and, where it is true, enables the
# language CUDA and defines sysone_cuda_toolkit (CUDA's headers, cublasLt, the static runtime); and sysone_nccl where NCCL is
# there too. Whatever needs no GPU builds alike in all cases.

set(SYSONE_CUDA AUTO CACHE STRING "GPU programs: AUTO (where CUDA works), ON (CUDA has to work), OFF")
set_property(CACHE SYSONE_CUDA PROPERTY STRINGS AUTO ON OFF)
# Machine code runs on devices of the same major number and of an equal or higher minor one, so these three cover 8.x, 9.x and
# 10.x. PTX is translated by the driver for any later device; that of an older architecture would serve none but covered ones.
set(SYSONE_CUDA_ARCHITECTURES 80-real 90-real 100-real 100-virtual
    CACHE STRING "What GPU code is made for, as CMAKE_CUDA_ARCHITECTURES names it")

# Sets `known` to those of SYSONE_CUDA_ARCHITECTURES that nvcc knows (sm_100 came with CUDA 12.8); PTX that it does not know is
# replaced by that of the newest one.
function(sysone_known_architectures known)
  execute_process(COMMAND ${SYSONE_NVCC} --list-gpu-arch OUTPUT_VARIABLE listed ERROR_QUIET)
  set(found "")
  foreach(wanted ${SYSONE_CUDA_ARCHITECTURES})
    string(REGEX MATCH "^[0-9]+" number ${wanted})
    if(listed MATCHES "compute_${number}\n")
      list(APPEND found ${wanted})
      set(newest ${number})
    endif()
  endforeach()
  if(newest AND SYSONE_CUDA_ARCHITECTURES MATCHES "virtual" AND NOT found MATCHES "virtual")
    list(APPEND found ${newest}-virtual)
  endif()
  set(${known} ${found} PARENT_SCOPE)
endfunction()

# Sets `fault` to why GPU code cannot be compiled here, to nothing where it can; then CMAKE_CUDA_ARCHITECTURES is set too.
function(sysone_look_for_nvcc fault)
  find_program(SYSONE_NVCC nvcc PATHS ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT SYSONE_NVCC)
    set(${fault} "no nvcc in PATH, CUDA_HOME or /usr/local/cuda" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${SYSONE_NVCC} --version OUTPUT_VARIABLE version ERROR_QUIET)
  if(NOT version MATCHES "release ([0-9]+\\.[0-9]+)")
    set(${fault} "${SYSONE_NVCC} does not run" PARENT_SCOPE)
    return()
  endif()
  if(CMAKE_MATCH_1 VERSION_LESS 12.4)
    set(${fault} "${SYSONE_NVCC} is of CUDA ${CMAKE_MATCH_1}; 12.4 is the oldest that serves" PARENT_SCOPE)
    return()
  endif()
  sysone_known_architectures(architectures)
  if(NOT architectures)
    set(${fault} "${SYSONE_NVCC} knows none of ${SYSONE_CUDA_ARCHITECTURES}" PARENT_SCOPE)
    return()
  endif()
  # A project of its own tries the language first, as enable_language ends the configuration where the compiler is broken.
  if(NOT CMAKE_CUDA_COMPILER)
    set(ENV{CUDACXX} ${SYSONE_NVCC})
    unset(CMAKE_CUDA_COMPILER CACHE)
    include(CheckLanguage)
    check_language(CUDA)
  endif()
  if(NOT CMAKE_CUDA_COMPILER)
    set(${fault} "${SYSONE_NVCC} cannot compile, see CMakeFiles/CMakeError.log" PARENT_SCOPE)
    return()
  endif()
  set(${fault} "" PARENT_SCOPE)
  set(CMAKE_CUDA_ARCHITECTURES ${architectures} PARENT_SCOPE)
endfunction()

if(NOT SYSONE_CUDA)
  set(cuda_fault "SYSONE_CUDA is OFF")
elseif(SYSONE_SANITIZE AND SYSONE_CUDA STREQUAL AUTO)
  set(cuda_fault "sanitizers see the host alone")
else()
  sysone_look_for_nvcc(cuda_fault)
endif()
if(NOT cuda_fault)
  enable_language(CUDA)
  find_package(CUDAToolkit QUIET)
  foreach(library cudart_static cublasLt)
    if(NOT TARGET CUDA::${library})
      set(cuda_fault "${SYSONE_NVCC} is there, but not the library ${library}")
    endif()
  endforeach()
endif()

if(cuda_fault)
  if(SYSONE_CUDA AND NOT SYSONE_CUDA STREQUAL AUTO)
    message(FATAL_ERROR "SYSONE_CUDA is ${SYSONE_CUDA}, but ${cuda_fault}")
  endif()
  set(SYSONE_CUDA_FOUND FALSE)
  set(SYSONE_CUDA_SUMMARY "GPU programs are not built: ${cuda_fault}" CACHE INTERNAL "")
  message(STATUS "${SYSONE_CUDA_SUMMARY}")
  return()
endif()

set(SYSONE_CUDA_FOUND TRUE)
set(CMAKE_CUDA_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/cmake/nvcc_launcher)
if(SYSONE_CCACHE)
  list(APPEND CMAKE_CUDA_COMPILER_LAUNCHER ${SYSONE_CCACHE})
endif()

if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
# -Wpedantic is for C++ alone: it complains of line directives that nvcc writes.
# lineinfo costs no speed and lets compute-sanitizer and profilers name source lines.
target_compile_options(sysone_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Wall,-Wextra,-Wshadow,-Wconversion,-Werror;-lineinfo;-Xptxas=-v>")

add_library(sysone_cuda_toolkit INTERFACE)
target_link_libraries(sysone_cuda_toolkit INTERFACE CUDA::cudart_static CUDA::cublasLt)

find_path(SYSONE_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(SYSONE_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
if(SYSONE_NCCL_INCLUDE AND SYSONE_NCCL_LIBRARY)
  add_library(sysone_nccl UNKNOWN IMPORTED)
  set_target_properties(sysone_nccl PROPERTIES IMPORTED_LOCATION ${SYSONE_NCCL_LIBRARY}
                                               INTERFACE_INCLUDE_DIRECTORIES ${SYSONE_NCCL_INCLUDE})
endif()

list(JOIN CMAKE_CUDA_ARCHITECTURES " " made_for)
set(SYSONE_CUDA_SUMMARY "GPU programs are built: CUDA ${CUDAToolkit_VERSION} (${SYSONE_NVCC}) for ${made_for}, NCCL: ${SYSONE_NCCL_LIBRARY}"
    CACHE INTERNAL "")
message(STATUS "${SYSONE_CUDA_SUMMARY}")
