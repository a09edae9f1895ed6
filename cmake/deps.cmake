# Every outside library, found once, behind an interface target named deps_*.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
function(ht_pkg target module)
  pkg_check_modules(${target} REQUIRED IMPORTED_TARGET ${module})
  add_library(deps_${target} INTERFACE)
  target_link_libraries(deps_${target} INTERFACE PkgConfig::${target})
endfunction()
ht_pkg(fyaml libfyaml)
ht_pkg(jansson jansson)
ht_pkg(xxhash libxxhash)
ht_pkg(check check)

# OpenBLAS: the reference that bench_kernels holds our matrix products against (common/kernels/gemm.h says why they are our
# own). The pthread build, since Debian's serial one is not safe to call from two threads. Optional.
option(HT_BLAS "measure matrix products beside OpenBLAS" ON)
if(HT_BLAS)
  find_path(BLAS_INCLUDE NAMES cblas.h
            HINTS /usr/include/x86_64-linux-gnu/openblas-pthread /usr/include/openblas-pthread)
  find_library(BLAS_LIBRARY NAMES openblas
               HINTS /usr/lib/x86_64-linux-gnu/openblas-pthread /usr/lib/openblas-pthread NO_DEFAULT_PATH)
endif()
if(HT_BLAS AND BLAS_INCLUDE AND BLAS_LIBRARY)
  add_library(deps_blas INTERFACE)
  target_include_directories(deps_blas SYSTEM INTERFACE ${BLAS_INCLUDE})
  target_link_libraries(deps_blas INTERFACE ${BLAS_LIBRARY})
elseif(HT_BLAS)
  message(STATUS "OpenBLAS: not found; bench_kernels runs without its reference")
endif()

# GLPK solves the planners' integer programs. Without it they search exhaustively.
option(HT_GLPK "solve integer programs with GLPK" ON)
add_library(deps_glpk INTERFACE)
if(HT_GLPK)
  find_path(GLPK_INCLUDE NAMES glpk.h)
  find_library(GLPK_LIBRARY NAMES glpk)
  if(GLPK_INCLUDE AND GLPK_LIBRARY)
    target_include_directories(deps_glpk SYSTEM INTERFACE ${GLPK_INCLUDE})
    target_link_libraries(deps_glpk INTERFACE ${GLPK_LIBRARY})
    target_compile_definitions(deps_glpk INTERFACE HT_HAVE_GLPK)
  else()
    message(STATUS "GLPK not found; planners search exhaustively")
  endif()
endif()

# MPI carries messages between ranks. Without it there is one rank.
option(HT_MPI "train over several ranks with Open MPI" ON)
add_library(deps_mpi INTERFACE)
if(HT_MPI)
  find_package(MPI COMPONENTS C)
  if(MPI_C_FOUND)
    target_include_directories(deps_mpi SYSTEM INTERFACE ${MPI_C_INCLUDE_DIRS})
    target_link_libraries(deps_mpi INTERFACE ${MPI_C_LIBRARIES})
    target_link_options(deps_mpi INTERFACE LINKER:--as-needed) # only what starts MPI loads it
    target_compile_definitions(deps_mpi INTERFACE HT_HAVE_MPI)
  else()
    message(STATUS "MPI not found; training runs on one rank")
  endif()
endif()
