/* The files that hetbench reads as it runs: the report's scripts, their experiments, the published measurements. */
#ifndef HT_HARNESS_CLI_DATA_ROOT_H
#define HT_HARNESS_CLI_DATA_ROOT_H

enum { HT_ROOT_BYTES = 4096 };

/* Returns the folder that holds harness/ and results/, in buf: BIN/../share/hetbench, where BIN is the executable's folder, or
   BIN/.. (a build folder in its tree), whichever has the report's script first; else the tree that was built. So an installation
   can be moved as a whole. */
const char *ht_data_root(char buf[HT_ROOT_BYTES]);

#endif
