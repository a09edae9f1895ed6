/*
 * Builds the tree of config.h: bytes -> checks (size, UTF-8, no control characters) -> libfyaml's events -> nodes.
 *
 * It uses events rather than libfyaml's own documents: no resolving of aliases, no quadratic search for duplicate keys,
 * and 80 bytes per node. A frame of the stack is an open list or map; a map's scalar events alternate between key and
 * value.
 */
#include "common/base/config.h"

#include <errno.h>
#include <libfyaml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/array.h"
#include "common/base/text.h"

enum {
    MAX_NODES = 32 << 20,
    CHUNK_NODES = 1024,
    CHUNK_BYTES = 1 << 16,
    MAX_OPEN = 9999,
};

struct chunk {
    struct chunk *next;
    size_t used, size;
    _Alignas(16) char data[];
};

struct ht_doc {
    struct ht_node *root; /* the only node without a parent; its key is the document's name */
    char *name;
    struct chunk *nodes, *strings;
    size_t n_nodes;
    bool kept; /* to the end of the process */
};

struct frame {
    struct ht_node *node, *last; /* open list or map, and its last child */
    const char *key;             /* map: a key whose value has not come yet */
    uint32_t key_line, key_column;
};

struct reader {
    struct ht_doc *doc;
    const char *input; /* the document's bytes */
    size_t input_bytes;
    struct ht_error *err;
    struct frame stack[HT_DOC_MAX_DEPTH];
    int depth;
    uint32_t line, column; /* position of the last event that had one */
};

static void *chunk_get(struct chunk **list, size_t bytes, size_t chunk_bytes)
{
    struct chunk *c = *list;
    if (!c || c->size - c->used < bytes) {
        size_t size = bytes > chunk_bytes ? bytes : chunk_bytes;
        c = ht_alloc(sizeof(*c) + size);
        c->size = size;
        c->next = *list;
        *list = c;
    }
    void *p = c->data + c->used;
    c->used += bytes;
    return p;
}

static void chunks_free(struct chunk *c)
{
    while (c) {
        struct chunk *next = c->next;
        free(c);
        c = next;
    }
}

void ht_doc_destroy(struct ht_doc *doc)
{
    if (!doc || doc->kept) return;
    chunks_free(doc->nodes);
    chunks_free(doc->strings);
    free(doc->name);
    free(doc);
}

void ht_doc_keep(struct ht_doc *doc)
{
    doc->kept = true;
}

const struct ht_node *ht_doc_root(const struct ht_doc *doc)
{
    return doc->root;
}

const char *ht_doc_name(const struct ht_doc *doc)
{
    return doc->name;
}

/* ---- events to nodes ---- */

static enum ht_status read_error(struct reader *r, uint32_t line, uint32_t column, const char *key, const char *text)
{
    char what[400];
    snprintf(what, sizeof(what), "%s%.80s%s%s", key ? "key '" : "", key ? key : "", key ? "': " : "", text);
    return ht_fail(r->err, HT_BAD_INPUT, "%s:%u:%u: %s", r->doc->name, line, column, what);
}

static void set_position(struct reader *r, const struct fy_token *token)
{
    const struct fy_mark *mark = token ? fy_token_start_mark((struct fy_token *)token) : NULL;
    if (!mark) return;
    r->line = (uint32_t)mark->line + 1;
    r->column = (uint32_t)mark->column + 1;
}

/* Appends a node to the open list or map, or makes it the root. */
static enum ht_status append_node(struct reader *r, enum ht_node_kind kind, struct ht_node **out)
{
    struct ht_doc *doc = r->doc;
    if (++doc->n_nodes > MAX_NODES)
        return read_error(r, r->line, r->column, NULL, "the document has too many values; expected at most 32 Mi");
    struct ht_node *node = chunk_get(&doc->nodes, sizeof(*node), sizeof(*node) * CHUNK_NODES);
    node->kind = kind;
    node->line = r->line;
    node->column = r->column;
    if (r->depth == 0) {
        node->key = doc->name;
        doc->root = node;
    } else {
        struct frame *top = &r->stack[r->depth - 1];
        node->parent = top->node;
        node->key = top->key;
        node->key_line = top->key_line;
        node->key_column = top->key_column;
        top->key = NULL;
        if (top->last)
            top->last->next = node;
        else
            top->node->child = node;
        top->last = node;
        top->node->n_children++;
    }
    *out = node;
    return HT_OK;
}

static enum ht_status open_frame(struct reader *r, enum ht_node_kind kind)
{
    struct frame *top = r->depth ? &r->stack[r->depth - 1] : NULL;
    if (top && top->node->kind == HT_NODE_MAP && !top->key)
        return read_error(r, r->line, r->column, NULL, "a list or map is used as a key; expected a word");
    if (r->depth == HT_DOC_MAX_DEPTH)
        return read_error(r, r->line, r->column, NULL,
                          "lists and maps are nested too deep; expected at most 32 levels");
    struct ht_node *node;
    enum ht_status st = append_node(r, kind, &node);
    if (st) return st;
    r->stack[r->depth++] = (struct frame){.node = node};
    return HT_OK;
}

/* Returns true for a single-quoted scalar with '' after '', which is refused unread, because libfyaml 0.7.12 leaks when
   it unescapes it. */
static bool leaks(const struct reader *r, struct fy_token *token)
{
    const struct fy_mark *from = fy_token_start_mark(token), *to = fy_token_end_mark(token);
    if (fy_token_scalar_style(token) != FYSS_SINGLE_QUOTED || !from || !to || to->input_pos > r->input_bytes)
        return false;
    return memmem(r->input + from->input_pos, to->input_pos - from->input_pos, "''''", 4) != NULL;
}

static enum ht_status read_scalar(struct reader *r, struct fy_token *token)
{
    size_t bytes = 0;
    if (token && leaks(r, token))
        return read_error(r, r->line, r->column, NULL,
                          "a value holds two quotes in a row; expected double quotes around it");
    const char *text = token ? fy_token_get_text(token, &bytes) : "";
    enum fy_scalar_style style = token ? fy_token_scalar_style(token) : FYSS_PLAIN;
    if (!text || bytes > UINT32_MAX - 1 || memchr(text, 0, bytes))
        return read_error(r, r->line, r->column, NULL, "a value holds a NUL character; expected text");
    char *copy = chunk_get(&r->doc->strings, bytes + 1, CHUNK_BYTES);
    memcpy(copy, text, bytes);
    copy[bytes] = 0;

    struct frame *top = r->depth ? &r->stack[r->depth - 1] : NULL;
    if (top && top->node->kind == HT_NODE_MAP && !top->key) {
        if (!bytes) return read_error(r, r->line, r->column, NULL, "an entry has no key; expected 'key: value'");
        if (strcmp(copy, "<<") == 0 && style == FYSS_PLAIN)
            return read_error(r, r->line, r->column, copy,
                              "merge keys are not supported; expected the keys themselves");
        top->key = copy;
        top->key_line = r->line;
        top->key_column = r->column;
        return HT_OK;
    }
    struct ht_node *node;
    enum ht_status st = append_node(r, HT_NODE_SCALAR, &node);
    if (st) return st;
    node->text = copy;
    node->text_bytes = (uint32_t)bytes;
    node->quoted = style != FYSS_PLAIN;
    return HT_OK;
}

static int by_key(const void *a, const void *b)
{
    const struct ht_node *x = *(const struct ht_node *const *)a, *y = *(const struct ht_node *const *)b;
    int c = strcmp(x->key, y->key);
    if (c) return c;
    return x->key_line != y->key_line ? (x->key_line < y->key_line ? -1 : 1) : (x->key_column < y->key_column ? -1 : 1);
}

/* Checks a finished map for duplicate keys: pairwise when it is small, sorted when it is large. */
static enum ht_status check_keys(struct reader *r, const struct ht_node *map)
{
    const struct ht_node *first = NULL, *second = NULL;
    if (map->n_children <= 16) {
        for (const struct ht_node *a = map->child; a && !second; a = a->next)
            for (const struct ht_node *b = a->next; b && !second; b = b->next)
                if (strcmp(a->key, b->key) == 0) first = a, second = b;
    } else {
        const struct ht_node **v = HT_NEW_ARRAY(const struct ht_node *, map->n_children);
        size_t n = 0;
        HT_EACH_CHILD(map, c) v[n++] = c;
        qsort(v, n, sizeof(*v), by_key);
        for (size_t i = 1; i < n && !second; i++)
            if (strcmp(v[i - 1]->key, v[i]->key) == 0) first = v[i - 1], second = v[i];
        free(v);
    }
    if (!second) return HT_OK;
    char text[96];
    snprintf(text, sizeof(text), "is given twice; expected it once (first on line %u)", first->key_line);
    return read_error(r, second->key_line, second->key_column, second->key, text);
}

static bool is_quoted(struct fy_token *token)
{
    enum fy_scalar_style style = token ? fy_token_scalar_style(token) : FYSS_PLAIN;
    return style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED;
}

static enum ht_status read_event(struct reader *r, struct fy_event *e, int *n_documents)
{
    struct fy_token *anchor = NULL, *tag = NULL;
    switch (e->type) {
    case FYET_DOCUMENT_START:
        if (++*n_documents > 1)
            return read_error(r, r->line + 1, 1, NULL, "a second document begins; expected one document a file");
        return HT_OK;
    case FYET_ALIAS:
        set_position(r, e->alias.anchor);
        return read_error(r, r->line, r->column, NULL, "aliases are not supported; expected the value itself");
    case FYET_SCALAR:
        set_position(r, e->scalar.value);
        if (is_quoted(e->scalar.value)) r->column -= r->column > 1; /* libfyaml points behind the quote */
        anchor = e->scalar.anchor;
        tag = e->scalar.tag;
        break;
    case FYET_MAPPING_START:
        set_position(r, e->mapping_start.mapping_start);
        anchor = e->mapping_start.anchor;
        tag = e->mapping_start.tag;
        break;
    case FYET_SEQUENCE_START:
        set_position(r, e->sequence_start.sequence_start);
        anchor = e->sequence_start.anchor;
        tag = e->sequence_start.tag;
        break;
    case FYET_MAPPING_END:
        return check_keys(r, r->stack[--r->depth].node);
    case FYET_SEQUENCE_END:
        r->depth--;
        return HT_OK;
    default:
        return HT_OK;
    }
    if (anchor || tag) {
        set_position(r, anchor ? anchor : tag);
        return read_error(r, r->line, r->column, NULL,
                          anchor ? "anchors are not supported; expected a plain value"
                                 : "tags are not supported; expected a plain value");
    }
    if (e->type == FYET_SCALAR) return read_scalar(r, e->scalar.value);
    return open_frame(r, e->type == FYET_MAPPING_START ? HT_NODE_MAP : HT_NODE_LIST);
}

/* Reports libfyaml's first error as one line of our form. */
static enum ht_status syntax_error(struct reader *r, struct fy_diag *diag, bool json)
{
    void *it = NULL;
    const struct fy_diag_error *e = fy_diag_errors_iterate(diag, &it);
    char text[240];
    snprintf(text, sizeof(text), "%.180s; expected %s", e && e->msg ? e->msg : "syntax error", json ? "JSON" : "YAML");
    uint32_t line = e && e->line > 0 ? (uint32_t)e->line : r->line ? r->line : 1;
    uint32_t column = e && e->column > 0 ? (uint32_t)e->column : 1;
    return read_error(r, line, column, NULL, text);
}

static enum ht_status read_tree(struct reader *r, const char *text, size_t bytes, bool json)
{
    enum ht_status st = HT_OK;
    struct fy_diag_cfg dc;
    fy_diag_cfg_default(&dc);
    dc.fp = NULL;
    r->input = text;
    r->input_bytes = bytes;
    struct fy_diag *diag = fy_diag_create(&dc);
    struct fy_parse_cfg cfg = {.flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG | FYPCF_DEFAULT_VERSION_1_2 |
                                        (json ? FYPCF_JSON_FORCE : FYPCF_JSON_NONE),
                               .diag = diag};
    if (diag) fy_diag_set_collect_errors(diag, true);
    struct fy_parser *parser = diag ? fy_parser_create(&cfg) : NULL;
    if (!parser || fy_parser_set_string(parser, text, bytes)) {
        st = ht_fail(r->err, HT_FAILED, "%s: cannot set up the YAML parser", r->doc->name);
        goto out;
    }
    int n_documents = 0;
    struct fy_event *e;
    while (st == HT_OK && (e = fy_parser_parse(parser))) {
        st = read_event(r, e, &n_documents);
        fy_parser_event_free(parser, e);
    }
    if (st == HT_OK && fy_parser_get_stream_error(parser)) st = syntax_error(r, diag, json);
    if (st == HT_OK && !r->doc->root)
        st = read_error(r, 1, 1, NULL, "the document is empty; expected 'key: value' lines");
out:
    if (parser) fy_parser_destroy(parser);
    if (diag) fy_diag_destroy(diag);
    return st;
}

/* ---- bytes ---- */

static enum ht_status check_text(struct reader *r, const char *text, size_t bytes)
{
    uint32_t line = 1, column = 1;
    int64_t open = 0; /* brackets, of strings and comments, too, so there may be more than levels */
    for (size_t i = 0; i < bytes;) {
        size_t n = text[i] == '\n' || text[i] == '\t' || text[i] == '\r' ? 1 : ht_char_bytes(text + i, bytes - i);
        if (!n) {
            char what[80];
            snprintf(what, sizeof(what), "the byte 0x%02x is not text; expected UTF-8", (unsigned char)text[i]);
            return read_error(r, line, column, NULL, what);
        }
        open += (text[i] == '[' || text[i] == '{') - (open && (text[i] == ']' || text[i] == '}'));
        if (open > MAX_OPEN) /* libfyaml takes 5 us for each before it hands the first one over */
            return read_error(r, line, column, NULL,
                              "10,000 brackets are open; expected lists and maps of at most 32 levels");
        column++;
        if (text[i] == '\n') line++, column = 1;
        i += n;
    }
    return HT_OK;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

enum ht_status ht_doc_parse(const char *text, size_t bytes, const char *name, struct ht_error *err, struct ht_doc **out)
{
    struct ht_doc *doc = HT_NEW(struct ht_doc);
    struct reader r = {.doc = doc, .err = err};
    doc->name = ht_strdup(name);
    enum ht_status st;
    if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) text += 3, bytes -= 3;
    if (bytes > HT_DOC_MAX_BYTES)
        st = ht_fail(err, HT_BAD_INPUT, "%s: the document is too large; expected at most 256 MiB", name);
    else if (!(st = check_text(&r, text, bytes)))
        st = read_tree(&r, text, bytes, ends_with(name, ".json"));
    if (st) {
        ht_doc_destroy(doc);
        return st;
    }
    *out = doc;
    return HT_OK;
}

enum ht_status ht_doc_open(const char *path, struct ht_error *err, struct ht_doc **out)
{
    static const char expected[] = "expected a YAML or JSON file";
    enum ht_status st = HT_OK;
    char *text = NULL;
    size_t n = 0, cap = 0;
    struct stat sb;
    FILE *f = fopen(path, "rb");
    if (!f) return ht_fail(err, HT_BAD_INPUT, "%s: cannot be opened: %s; %s", path, strerror(errno), expected);
    if (fstat(fileno(f), &sb) == 0 && S_ISDIR(sb.st_mode)) {
        st = ht_fail(err, HT_BAD_INPUT, "%s: is a directory; %s", path, expected);
        goto out;
    }
    for (;;) {
        HT_RESERVE(text, cap, n + 65536);
        size_t got = fread(text + n, 1, cap - n, f);
        n += got;
        if (n > HT_DOC_MAX_BYTES || got == 0) break;
    }
    if (ferror(f))
        st = ht_fail(err, HT_BAD_INPUT, "%s: cannot be read: %s; %s", path, strerror(errno), expected);
    else
        st = ht_doc_parse(text, n, path, err, out);
out:
    fclose(f);
    free(text);
    return st;
}
