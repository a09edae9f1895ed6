/* Files of all sizes around blocks are copied to the byte, over longer ones, too; a copy can be stopped. */
#include "common/store/copier.h"

#include "common/base/array.h"
#include "common/base/rng.h"
#include "tests/support/suite.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static void write_drawn(const char *path, int64_t bytes)
{
    uint64_t *data = HT_NEW_ARRAY(uint64_t, bytes / 8 + 1);
    for (int64_t i = 0; i < bytes / 8 + 1; i++) data[i] = ht_random_below(7, (uint64_t)i, UINT64_MAX);
    FILE *f = fopen(path, "wb");
    ck_assert(f && fwrite(data, 1, (size_t)bytes, f) == (size_t)bytes && fclose(f) == 0);
    free(data);
}

static bool goes_on(void *ctx, int64_t bytes)
{
    return bytes < *(int64_t *)ctx;
}

static enum ht_status copy(const char *from, const char *to, int64_t most, struct ht_error *err, uint64_t *hash)
{
    struct ht_copier *c = ht_copier_create();
    struct ht_durable out;
    int in = open(from, O_RDONLY);
    ck_assert_int_ge(in, 0);
    enum ht_status status = ht_durable_open(to, err, &out);
    ck_assert_int_eq(status, HT_OK);
    status = ht_copier_copy(c, in, from, &out, goes_on, &most, err, hash);
    if (status == HT_OK)
        status = ht_durable_commit(&out, err, NULL);
    else
        ht_durable_discard(&out);
    close(in);
    ht_copier_destroy(c);
    return status;
}

START_TEST(sizes)
{
    static const int64_t all[] = {0,       1,           4095,    4096, MIB - 1, MIB, MIB + 1, 2 * MIB + 4096,
                                  8 * MIB, 9 * MIB + 5, 17 * MIB};
    char dir[] = "/tmp/ht_copier_XXXXXX", from[64], to[64];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(from, sizeof(from), "%s/from", dir);
    snprintf(to, sizeof(to), "%s/to", dir);
    for (size_t i = 0; i < HT_COUNT(all); i++)
        for (int over = 0; over < 2; over++) {
            struct ht_error err;
            uint64_t said, is;
            int64_t bytes;
            char spare[80];
            snprintf(spare, sizeof(spare), "%s.spare", to);
            if (over) write_drawn(spare, all[i] + 5000);
            write_drawn(from, all[i]);
            ck_assert_msg(copy(from, to, INT64_MAX, &err, &said) == HT_OK, "%s", err.text);
            ck_assert_int_ne(access(spare, F_OK), 0);
            ck_assert_int_eq(ht_hash_file(to, &err, &is, &bytes), HT_OK);
            ck_assert_msg(bytes == all[i] && is == said, "%d bytes: %d were copied", (int)all[i], (int)bytes);
            ck_assert_int_eq(ht_hash_file(from, &err, &is, &bytes), HT_OK);
            ck_assert(is == said);
            unlink(to);
        }
    unlink(from);
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

/* A copy that is stopped in the middle of a file leaves nothing. */
START_TEST(stopped)
{
    char dir[] = "/tmp/ht_copier_XXXXXX", from[64], to[64];
    struct ht_error err;
    uint64_t hash;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(from, sizeof(from), "%s/from", dir);
    snprintf(to, sizeof(to), "%s/to", dir);
    write_drawn(from, 9 * MIB);
    ck_assert_int_eq(copy(from, to, 5 * MIB, &err, &hash), HT_INTERRUPTED);
    unlink(from);
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, sizes);
    tcase_add_test(t, stopped);
}

int main(void)
{
    return run_suite("copier", add);
}
