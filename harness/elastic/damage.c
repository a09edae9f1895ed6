#include "harness/elastic/damage.h"

#include "common/base/array.h"
#include "common/store/catalog.h"
#include "harness/run/drill.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int remove_one(const char *path, const struct stat *sb, int kind, struct FTW *ftw)
{
    (void)sb, (void)kind, (void)ftw;
    remove(path);
    return 0;
}

void ht_damage_remove(const char *dir)
{
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void ht_damage_lose_node(const struct ht_state_options *o, int32_t node)
{
    const char *roots[] = {o->store, o->store_memory};
    char dir[HT_STORE_DIR];
    for (size_t i = 0; i < HT_COUNT(roots); i++) {
        if (!roots[i]) continue;
        ht_store_node_dir(roots[i], node, dir);
        ht_damage_remove(dir);
    }
}

static void quiet(void *ctx, const char *line)
{
    (void)ctx, (void)line;
}

static const struct ht_catalog_log silent = {.say = quiet};

/* Reads what all stores have. */
static void read_all(const struct ht_state_options *o, struct ht_catalog *c)
{
    *c = (struct ht_catalog){0};
    if (o->store_memory) ht_catalog_add_tree(c, o->store_memory, silent);
    ht_catalog_add_tree(c, o->store, silent);
}

/* Inverts a byte in the middle of a file. */
static void invert(const char *path)
{
    struct stat sb;
    unsigned char byte;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    off_t at = fstat(fd, &sb) == 0 ? sb.st_size / 2 : 0;
    if (pread(fd, &byte, 1, at) == 1) {
        byte = (unsigned char)~byte;
        if (pwrite(fd, &byte, 1, at) != 1) perror(path);
    }
    close(fd);
}

void ht_damage_corrupt(const struct ht_state_options *o, uint64_t number)
{
    struct ht_catalog c;
    int64_t n, of_newest = 0;
    char path[HT_STORE_PATH];
    read_all(o, &c);
    struct ht_version *versions = ht_catalog_versions(&c, &n);
    for (int64_t i = 0; n && i < c.n; i++) of_newest += ht_version_compare(&c.rows[i].version, &versions[0]) == 0;
    int64_t left = of_newest ? (int64_t)(number % (uint64_t)of_newest) : 0;
    for (int64_t i = 0; of_newest && i < c.n; i++) {
        if (ht_version_compare(&c.rows[i].version, &versions[0]) != 0 || left--) continue;
        ht_store_path(c.stores[c.rows[i].store].dir, versions[0], c.rows[i].file, path);
        invert(path);
        break;
    }
    free(versions);
    ht_catalog_free(&c);
}

void ht_damage_make_room(const struct ht_state_options *o)
{
    char path[4096];
    snprintf(path, sizeof(path), "%.3900s/%s", o->store, HT_DRILL_FILLER);
    unlink(path);
}

void ht_damage_forget(const struct ht_state_options *o)
{
    struct ht_catalog c;
    read_all(o, &c);
    for (int64_t i = 0; i < c.n_stores; i++) {
        int64_t n;
        struct ht_version *versions = ht_store_versions(c.stores[i].dir, &n);
        for (int64_t k = 0; k < n; k++) ht_store_remove(c.stores[i].dir, versions[k]);
        free(versions);
    }
    ht_catalog_free(&c);
}
