/* Who is there: hosts from a file or a command get nodes of their kind and keep them; what is lost comes back when it may. */
#include "common/base/array.h"
#include "harness/elastic/members.h"
#include "tests/support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Two kinds of nodes: three of kind 0, two of kind 1 with two devices each. */
static struct ht_cluster *five_nodes(void)
{
    struct ht_cluster *c = HT_NEW(struct ht_cluster);
    c->n_nodes = 5;
    c->nodes = HT_NEW_ARRAY(struct ht_machine, 5);
    for (int i = 0; i < 5; i++) c->nodes[i].group = i >= 3, c->nodes[i].n_gpus = i >= 3 ? 2 : 1;
    return c;
}

struct source {
    char path[32];
    struct ht_members m;
};

static void open_source(struct source *s)
{
    struct ht_cluster *c = five_nodes();
    strcpy(s->path, "/tmp/members-XXXXXX");
    close(mkstemp(s->path));
    ht_members_init(&s->m, c, s->path, 100);
    free(c->nodes);
    free(c);
}

static void close_source(struct source *s)
{
    unlink(s->path);
    ht_members_free(&s->m);
}

/* Writes the source's file and asks. */
static enum ht_status ask(struct source *s, const char *text, struct ht_error *err)
{
    FILE *f = fopen(s->path, "w");
    fputs(text, f);
    fclose(f);
    return ht_members_ask(&s->m, err);
}

static const char *usable(const struct source *s, double now_s)
{
    static char list[HT_MEMBER_LIST];
    ht_members_list(&s->m, now_s, list);
    return list;
}

START_TEST(hosts_keep_their_nodes)
{
    struct source s;
    struct ht_error err;
    open_source(&s);
    ck_assert_str_eq(usable(&s, 1), "");
    ck_assert_int_eq(ask(&s, "a\nb kind=1 slots=2 # big\n\n# none\nc node=2\n", &err), HT_OK);
    ck_assert_str_eq(usable(&s, 1), "0,2,3");
    /* b comes first now, d is new: a and b keep 0 and 3, d gets the free one of its kind */
    ck_assert_int_eq(ask(&s, "b kind=1\nd\na\n", &err), HT_OK);
    ck_assert_str_eq(usable(&s, 1), "0,1,3");
    ck_assert_int_eq(ht_members_node_of(&s.m, "d"), 1);
    ck_assert_int_eq(ht_members_node_of(&s.m, "e"), -1);
    close_source(&s);
}
END_TEST

START_TEST(lost_ones_come_back)
{
    struct source s;
    struct ht_error err;
    open_source(&s);
    ck_assert_int_eq(ask(&s, "a\nb\n", &err), HT_OK);
    s.m.nodes[1].lost_s = 50;
    ck_assert_str_eq(usable(&s, 149), "0"); /* 100 s have not passed */
    ck_assert_str_eq(usable(&s, 150), "0,1");
    s.m.nodes[1].lost_s = 150;
    ck_assert_int_eq(ask(&s, "a\n", &err), HT_OK);
    ck_assert_int_eq(ask(&s, "a\nb\n", &err), HT_OK); /* it was away: it is another one */
    ck_assert_str_eq(usable(&s, 151), "0,1");
    s.m.nodes[0].lost_s = s.m.nodes[1].lost_s = 151;
    ck_assert_int_eq(ht_members_readmit(&s.m), 2);
    s.m.nodes[0].noticed = true;
    ck_assert_str_eq(usable(&s, 152), "1");
    close_source(&s);
}
END_TEST

START_TEST(what_is_wrong_changes_nothing)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"a\nb c\n", ":2: 'c' was not expected"},
        {"a\nb\nc\nd\n", ":4: host 'd': the cluster has no free node of kind 0"},
        {"a kind=1 slots=1\n", ":1: host 'a' has 1 slots; node 3 has 2 devices"},
        {"a node=7\n", ":1: host 'a': the cluster has no free node with number 7"},
        {"a node=1\nb node=1\n", ":2: host 'b': the cluster has no free node with number 1"},
        {"a slots=x\n", ":1: "},
    };
    struct source s;
    struct ht_error err;
    open_source(&s);
    s.m.answer_s = 600;
    ck_assert_int_eq(ask(&s, "x\ny\n", &err), HT_OK);
    for (size_t i = 0; i < HT_COUNT(rows); i++) {
        ck_assert_int_eq(ask(&s, rows[i].text, &err), HT_BAD_INPUT);
        ck_assert_msg(strstr(err.text, rows[i].why) && !strncmp(err.text, "--hosts: /tmp/", 14), "%s", err.text);
        ck_assert_str_eq(usable(&s, 1), "0,1");
    }
    s.m.source = "/tmp"; /* opens, but cannot be read */
    ck_assert_int_eq(ht_members_ask(&s.m, &err), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "--hosts: /tmp: Is a directory");
    ck_assert_str_eq(usable(&s, 1), "0,1");
    s.m.source = "!echo x; false";
    ck_assert_int_eq(ht_members_ask(&s.m, &err), HT_FAILED);
    ck_assert_str_eq(usable(&s, 1), "0,1");
    s.m.answer_s = 0.2;
    s.m.source = "!echo x; sleep 1000";
    ck_assert_int_eq(ht_members_ask(&s.m, &err), HT_FAILED);
    ck_assert_str_eq(err.text, "--hosts: echo x; sleep 1000: no answer within 0.2 s");
    ck_assert_str_eq(usable(&s, 1), "0,1");
    s.m.source = "!exec >&-; sleep 1000";
    ck_assert_int_eq(ht_members_ask(&s.m, &err), HT_FAILED);
    s.m.answer_s = 600;
    s.m.source = "!true";
    ck_assert_int_eq(ht_members_ask(&s.m, &err), HT_OK);
    ck_assert_str_eq(usable(&s, 1), "");
    s.m.source = "!echo x; echo z kind=1";
    ck_assert_int_eq(ht_members_ask(&s.m, &err), HT_OK);
    ck_assert_str_eq(usable(&s, 1), "0,3");
    close_source(&s);
}
END_TEST

START_TEST(lists)
{
    char list[HT_MEMBER_LIST] = "";
    ck_assert_int_eq(ht_list_count(list), 0);
    ck_assert_int_eq(ht_list_at(list, 0), -1);
    ht_list_add(list, 2);
    ht_list_add(list, 13);
    ck_assert_str_eq(list, "2,13");
    ck_assert_int_eq(ht_list_count(list), 2);
    ck_assert_int_eq(ht_list_at(list, 1), 13);
    ck_assert_int_eq(ht_list_at(list, 2), -1);
    ck_assert(ht_list_has(list, 13) && !ht_list_has(list, 1));
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, hosts_keep_their_nodes);
    tcase_add_test(t, lost_ones_come_back);
    tcase_add_test(t, what_is_wrong_changes_nothing);
    tcase_add_test(t, lists);
}

int main(void)
{
    return run_suite("members", add);
}
