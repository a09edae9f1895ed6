/* Finds and opens cuBLASLt. */
#include "common/kernels/cuda/cublaslt.cuh"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_(x)  #x
#define TEXT(x)   TEXT_(x)
#define FILE_NAME "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR)

static const char *const names[] = {
#define HT_EACH_FUNCTION(name) #name,
    HT_CUBLASLT_FUNCTIONS(HT_EACH_FUNCTION)
#undef HT_EACH_FUNCTION
};

/* An opened library stays open: threads that have used it run its clean-up when they end, and a new context need not
   load its kernels again. */
enum { HOW = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE };

enum ht_status ht_cublaslt_open(struct ht_cublaslt *lt, struct ht_error *err)
{
    const char *named = getenv("HT_CUBLASLT");
    const char *const places[] = {FILE_NAME, "/usr/local/cuda/lib64/" FILE_NAME};
    char why[512] = "";
    lt->library = named ? dlopen(named, HOW) : NULL;
    if (named && !lt->library) return ht_fail(err, HT_INFEASIBLE, "HT_CUBLASLT: %s", dlerror());
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && !lt->library; i++) {
        lt->library = dlopen(places[i], HOW);
        if (!lt->library && i == 0) snprintf(why, sizeof(why), "%s", dlerror());
    }
    if (!lt->library)
        return ht_fail(err, HT_INFEASIBLE, "cuBLASLt is not here (%s); name its file in the environment as HT_CUBLASLT",
                       why);
    void **entry = &lt->library + 1; /* the functions follow, in the order of their names */
    static_assert(sizeof(*lt) == (1 + sizeof(names) / sizeof(names[0])) * sizeof(void *), "a table of pointers");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        void *f = dlsym(lt->library, names[i]);
        if (!f) {
            ht_cublaslt_close(lt);
            return ht_fail(err, HT_INFEASIBLE, "this cuBLASLt has no %s", names[i]);
        }
        memcpy(entry + i, &f, sizeof(f));
    }
    return HT_OK;
}

void ht_cublaslt_close(struct ht_cublaslt *lt)
{
    if (lt->library) dlclose(lt->library);
    lt->library = NULL;
}
