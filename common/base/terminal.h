/*
 * What people read text on: its width, its colours, and a stream that breaks lines to fit.
 *
 * Text for a program (a pipe, a file) has no width, so scripts get whole lines; COLUMNS sets one there, too.
 */
#ifndef HT_BASE_TERMINAL_H
#define HT_BASE_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

enum { HT_LEAST_COLUMNS = 40 };

/* Returns the width of standard output in characters: COLUMNS, else the terminal's; 0: no limit. A width below
   HT_LEAST_COLUMNS counts as that many. */
int ht_terminal_columns(void);

/* Returns true if standard output may be coloured: it is a terminal, not TERM=dumb, and NO_COLOR (no-color.org) is not
   set. */
bool ht_terminal_colours(void);

/* Returns the columns that UTF-8 text takes: its characters, without escape sequences for colours. */
int ht_text_columns(const char *text);

/* Prints text and a newline in lines of at most `columns` (0: no limit), the first behind `column` characters that are
   there already. Further lines begin with `indent`; lines that go on end with `mark`. Lines are broken at blanks only. */
void ht_print_wrapped(const char *text, int column, const char *indent, const char *mark, int columns, FILE *out);

/* Returns a stream that passes text on to `to` and breaks lines at blanks, so that none is longer than `columns`. The
   rest of a line stands 2 columns further in than its beginning. A longer word is broken behind a comma or slash, or
   anywhere. fclose writes what is held, and leaves `to` open; errors of `to` are those of the stream. */
FILE *ht_wrap_open(FILE *to, int columns);

#endif
