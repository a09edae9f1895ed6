/* A drawn state, written into stores as the ranks of a layout would. */
#ifndef TESTS_COMMON_STORE_STORED_H
#define TESTS_COMMON_STORE_STORED_H

#include "common/store/catalog.h"
#include "common/store/layout.h"
#include "tests/common/ckpt/held.h"

#include <check.h>
#include <stdio.h>

/* Reads an extent's elements out of the held state (ht_extent_read). */
static enum ht_status read_held(void *ctx, const struct ht_extent *e, int64_t first, int64_t n, float *out,
                                const float **at, struct ht_error *err)
{
    const struct held *h = ctx;
    const struct ht_model *m = &h->state->model;
    struct ht_model part = e->tp_parts > 1 ? ht_model_part(m, e->tp_part, e->tp_parts) : *m;
    (void)at, (void)err;
    for (int64_t i = 0; i < n; i++)
        out[i] = held_at(h, e->unit, (int)e->part)[ht_unit_part_run(&part, e->unit, e->begin + first + i).whole];
    return HT_OK;
}

static inline void store_dir(const char *root, int32_t node, char dir[512])
{
    snprintf(dir, 512, "%s/node-%04d", root, node);
}

/* Writes what rank `rank` of a layout has into its node's store. */
static inline enum ht_status write_rank(const char *root, const struct ht_store_layout *l, struct ht_version v,
                                        int32_t rank, struct held *h, struct ht_error *err)
{
    int64_t n, n_own = 0;
    char dir[512];
    struct ht_transfer_sink *sinks = ht_store_layout_sinks(l, &h->state->model, &n);
    struct ht_extent *own = HT_NEW_ARRAY(struct ht_extent, n);
    struct ht_store_part p = {.version = v, .rank = rank};
    for (int64_t i = 0; i < n; i++)
        if (sinks[i].rank == rank) own[n_own++] = sinks[i].extent;
    store_dir(root, l->per_node ? rank / l->per_node : 0, dir);
    ht_store_part_arrange(&p, &h->state->model, own, n_own);
    enum ht_status status = ht_store_write(dir, &p, h->state, NULL, 0, read_held, h, err);
    ht_store_part_free(&p);
    free(own);
    free(sinks);
    return status;
}

static inline void write_all(const char *root, const struct ht_store_layout *l, struct ht_version v, struct held *h)
{
    struct ht_error err;
    for (int32_t r = 0; r < ht_store_layout_ranks(l); r++)
        ck_assert_msg(write_rank(root, l, v, r, h, &err) == HT_OK, "%s", err.text);
}

/* Keeps the lines that a catalog says. */
struct lines {
    char text[4096];
    int n;
};

static void keep_line(void *ctx, const char *line)
{
    struct lines *l = ctx;
    size_t used = strlen(l->text);
    snprintf(l->text + used, sizeof(l->text) - used, "%s\n", line);
    l->n++;
}

static inline struct ht_catalog catalog_of(const char *root, int32_t nodes, struct lines *lines)
{
    struct ht_catalog c = {0};
    for (int32_t n = 0; n < nodes; n++) {
        char dir[512];
        store_dir(root, n, dir);
        ht_catalog_add(&c, dir, HT_STORE_DISK, n, (struct ht_catalog_log){keep_line, lines});
    }
    return c;
}

#endif
