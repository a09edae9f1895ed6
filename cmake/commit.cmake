# Writes OUT, which tells the program the commit that it is built from; "-dirty" when tracked files have changes, "unknown"
# without git or a repository. Runs at each build, and writes only what is new: a commit compiles one file and links hetbench.
execute_process(COMMAND git -C ${SOURCE_DIR} describe --always --dirty --abbrev=12
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR commit STREQUAL "")
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT [[#include "harness/result/provenance.h"

const char *ht_built_commit(void)
{
    return "@commit@";
}
]] @ONLY)
