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

# OpenBLAS, serial build on purpose: our own workers split a matrix product into panels and each calls BLAS on its panel, so
# that the split (and with it every bit of the result) is ours, and no second thread pool competes for the cores.
find_path(BLAS_INCLUDE NAMES cblas.h HINTS /usr/include/x86_64-linux-gnu/openblas-serial /usr/include/openblas-serial REQUIRED)
find_library(BLAS_LIBRARY NAMES openblas
             HINTS /usr/lib/x86_64-linux-gnu/openblas-serial /usr/lib/openblas-serial NO_DEFAULT_PATH)
if(NOT BLAS_LIBRARY)
  find_library(BLAS_LIBRARY NAMES openblas REQUIRED)
  message(STATUS "serial OpenBLAS not found; using ${BLAS_LIBRARY}")
endif()
add_library(deps_blas INTERFACE)
target_include_directories(deps_blas SYSTEM INTERFACE ${BLAS_INCLUDE})
target_link_libraries(deps_blas INTERFACE ${BLAS_LIBRARY})
