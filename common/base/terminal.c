#include "common/base/terminal.h"

#include "common/base/array.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { ESCAPE = 0x1b, FURTHER_IN = 2, MOST_INDENT = 24 };

int ht_terminal_columns(void)
{
    const char *text = getenv("COLUMNS");
    struct winsize size = {0};
    char *end;
    long columns = text ? strtol(text, &end, 10) : 0;
    if (text && (*end || columns <= 0 || columns > 100000)) columns = 0;
    if (!columns && isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
    return columns && columns < HT_LEAST_COLUMNS ? HT_LEAST_COLUMNS : (int)columns;
}

bool ht_terminal_colours(void)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(no && *no) && term && strcmp(term, "dumb") != 0;
}

/* Measures an escape sequence at p ("\33[1m"), in bytes; 0: p has none. */
static size_t escape_bytes(const char *p, size_t left)
{
    size_t n = 2;
    if (left < 2 || p[0] != ESCAPE || p[1] != '[') return 0;
    while (n < left && !isalpha((unsigned char)p[n])) n++;
    return n < left ? n + 1 : n;
}

/* Returns true for a byte that begins a character of UTF-8. */
static bool begins(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

/* Returns the columns of the first `left` bytes. */
static int columns_of(const char *p, size_t left)
{
    int n = 0;
    while (left) {
        size_t bytes = escape_bytes(p, left);
        if (!bytes) n += begins(*p), bytes = 1;
        p += bytes;
        left -= bytes;
    }
    return n;
}

int ht_text_columns(const char *text)
{
    return columns_of(text, strlen(text));
}

void ht_print_wrapped(const char *text, int column, const char *indent, const char *mark, int columns, FILE *out)
{
    for (;;) {
        int room = columns - column;
        size_t n = strcspn(text, "\n"), cut = 0;
        if (columns && columns_of(text, n) > room) {
            room -= ht_text_columns(mark);
            for (size_t at = strcspn(text, " "); at < n; at += 1 + strcspn(text + at + 1, " "))
                if (!cut || columns_of(text, at) <= room) cut = at;
        }
        size_t bytes = cut ? cut : n;
        fprintf(out, "%.*s%s\n", (int)bytes, text, cut ? mark : "");
        text += bytes;
        if (!*text) return;
        text++; /* the blank or the end of the line */
        fputs(indent, out);
        column = ht_text_columns(indent);
    }
}

/* ---- lines that are broken ------------------------------------------------------------------------------------- */

/* A line on its way: `column` characters of it are written, then come `blanks`, then the word that is held. */
struct wrap {
    FILE *to;
    int columns, column, blanks, indent;
    bool failed; /* a write did */
    char *word;
    size_t n, cap;
};

static void put_blanks(struct wrap *w, int n)
{
    w->column += n;
    while (n-- > 0) putc(' ', w->to);
}

static void break_line(struct wrap *w)
{
    putc('\n', w->to);
    w->column = w->blanks = 0;
    put_blanks(w, w->indent + FURTHER_IN);
}

static void put_bytes(struct wrap *w, size_t n)
{
    fwrite(w->word, 1, n, w->to);
    w->column += columns_of(w->word, n);
    memmove(w->word, w->word + n, w->n - n);
    w->n -= n;
}

/* Returns how many bytes of the held word to write on a line with `room` columns: up to its last comma or slash, or as
   many as fit. */
static size_t cut_of(const struct wrap *w, int room)
{
    size_t most = 0, nice = 0;
    for (size_t i = 1; i <= w->n; i++) {
        if (i < w->n && !begins(w->word[i])) continue;
        if (columns_of(w->word, i) > room) break;
        most = i;
        if (strchr(",/;", w->word[i - 1])) nice = i;
    }
    return nice ? nice : most;
}

/* Writes the held word, on a new line where it does not fit this one. */
static void put_word(struct wrap *w)
{
    if (!w->n) return;
    bool begun = w->column > 0;
    if (!begun) w->indent = w->blanks < MOST_INDENT ? w->blanks : MOST_INDENT;
    if (begun && w->column + w->blanks + columns_of(w->word, w->n) > w->columns) break_line(w);
    put_blanks(w, w->blanks);
    w->blanks = 0;
    while (w->column + columns_of(w->word, w->n) > w->columns) {
        put_bytes(w, cut_of(w, w->columns - w->column));
        break_line(w);
    }
    put_bytes(w, w->n);
}

static ssize_t on_write(void *cookie, const char *text, size_t n)
{
    struct wrap *w = cookie;
    for (size_t i = 0; i < n; i++) {
        if (text[i] != ' ' && text[i] != '\n') {
            HT_PUSH(w->word, w->n, w->cap, text[i]);
            continue;
        }
        put_word(w);
        w->blanks += text[i] == ' ';
        if (text[i] != '\n') continue;
        putc('\n', w->to);
        w->column = w->blanks = w->indent = 0;
    }
    w->failed |= fflush(w->to) != 0 || ferror(w->to);
    return w->failed ? 0 : (ssize_t)n;
}

static int on_close(void *cookie)
{
    struct wrap *w = cookie;
    put_word(w);
    put_blanks(w, w->blanks);
    bool failed = fflush(w->to) != 0 || w->failed;
    free(w->word);
    free(w);
    return failed ? EOF : 0;
}

FILE *ht_wrap_open(FILE *to, int columns)
{
    struct wrap *w = HT_NEW(struct wrap);
    *w = (struct wrap){.to = to, .columns = columns};
    FILE *out = fopencookie(w, "w", (cookie_io_functions_t){.write = on_write, .close = on_close});
    if (!out) free(w);
    return out;
}
