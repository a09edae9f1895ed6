/* Text that came from outside, such as names in files and arguments, made fit for a terminal: one line, no control
   characters, UTF-8. */
#ifndef HT_BASE_TEXT_H
#define HT_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character at p, of at most `left`; 0 when it is not UTF-8 (RFC 3629) or a control character (C0, DEL, C1,
   line and paragraph separators). */
size_t ht_char_bytes(const char *p, size_t left);

/* Has the text such characters only? */
bool ht_is_text(const char *text);

/* Copies `text` into buf[n]; other bytes become \n, \t or \x1b. What does not fit is left out, whole characters. Returns
   buf, which must not overlap the text. Text without other bytes is not changed, so doing it twice does no harm. */
const char *ht_shown(const char *text, char *buf, size_t n);

#endif
